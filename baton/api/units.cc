// The list of units, generated from cmake/units.cmake.
#include "baton/api/units.h"

#include <fmt/format.h>

#include <array>

namespace baton {

#define BATON_UNIT(name) extern const UnitEntry k_unit_##name;
#include "baton/unit_list.inc"
#undef BATON_UNIT

namespace {
// Pointers, because the entries themselves are constants of other files.
constexpr std::array kEntries = {
#define BATON_UNIT(name) &k_unit_##name,
#include "baton/unit_list.inc"
#undef BATON_UNIT
};
}  // namespace

std::span<const UnitEntry* const> unit_entries() { return kEntries; }

Result<std::unique_ptr<Unit>> create_unit(std::string_view name) {
  std::string names;
  for (const UnitEntry* entry : kEntries) {
    if (entry->name == name) return entry->create();
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry->name);
  }
  return fail(Code::kNotFound, fmt::format("no unit named '{}'; there are: {}", name, names));
}

}  // namespace baton

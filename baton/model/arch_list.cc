// The list of architectures, from arch_list.inc.
#include <array>

#include "baton/model/arch.h"

namespace baton {

#define BATON_ARCHITECTURE(name) extern const Architecture k_##name;
#include "baton/model/arch_list.inc"
#undef BATON_ARCHITECTURE

namespace {
constexpr std::array kArchitectures = {
#define BATON_ARCHITECTURE(name) &k_##name,
#include "baton/model/arch_list.inc"
#undef BATON_ARCHITECTURE
};
}  // namespace

std::span<const Architecture* const> architectures() { return kArchitectures; }

const Architecture* architecture_of(const Container& container) {
  for (const Architecture* architecture : kArchitectures) {
    if (architecture->matches(container)) return architecture;
  }
  return nullptr;
}

}  // namespace baton

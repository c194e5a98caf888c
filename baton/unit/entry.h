// What a unit's folder gives to the list of units.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/unit/options.h"
#include "baton/unit/unit.h"

namespace baton {

// Defined by each unit's folder as `extern const UnitEntry k_unit_<name>`: the list of cmake/units.cmake refers to it.
struct UnitEntry {
  std::string_view name;
  // The options have passed UnitOptions::parse with `options()`. kUnsupported with the reason when the machine lacks
  // what the unit needs.
  Result<std::unique_ptr<Unit>> (*create)(const UnitOptions&);
  // What it can be given, for this machine; null: nothing.
  std::vector<UnitOption> (*options)() = nullptr;
  bool only_prefills = false;  // Caps::decode_seats_max is 0, whatever the options
  // Options of further devices that this machine has beside the one that it takes without any, for lists: "1". Null:
  // none.
  std::vector<std::string> (*more)() = nullptr;
};

}  // namespace baton

// The units built into this program, in the order of cmake/units.cmake.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "baton/unit/entry.h"

namespace baton {

std::span<const UnitEntry* const> unit_entries();
// kNotFound names the units there are.
Result<std::unique_ptr<Unit>> create_unit(std::string_view name);

}  // namespace baton

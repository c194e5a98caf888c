// A quick look through the values of a state: the first that is NaN, infinite, not zero, or too large for a type. Of a
// type in blocks (rows.h) what fills rows up counts too, and rotated values are looked at as they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "baton/quant/format.h"

namespace baton {

// Index of the first of the dense `values` (of a type of states, perhaps unaligned) that is NaN or infinite.
std::optional<uint64_t> first_not_finite(std::span<const std::byte> values, DType dtype);

// Index of the first that is not zero, of either sign.
std::optional<uint64_t> first_not_zero(std::span<const std::byte> values, DType dtype);

// Index of the first of the values that fill `rows` of `columns` up that is not zero; of rotated rows, where filling is
// turned with the rest, none.
std::optional<uint64_t> first_filled(std::span<const std::byte> rows, DType dtype, uint64_t columns);

// Index of the first finite value of type `from` that rounds to an infinity of type `to`. The values are finite.
// Neither type has blocks: what is too large for one shows in its scales.
std::optional<uint64_t> first_overflow(std::span<const std::byte> values, DType from, DType to);

// Whether the finite values hold any but zeros, and all of these are below the smallest normal number of type `to`:
// they would lose digits, or all of them. Usually the first value tells. `from` has no blocks; of a `to` that has,
// below what its blocks keep a scale for that has the digits of their codes.
bool all_underflow(std::span<const std::byte> values, DType from, DType to);

// One value, for messages.
float value_at(std::span<const std::byte> values, DType dtype, uint64_t index);
// Where a value of rows of `columns` stands among those that are no filling, for messages.
uint64_t index_in_rows(DType dtype, uint64_t columns, uint64_t index);

}  // namespace baton

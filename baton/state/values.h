// A quick look through the values of a state: the first that is NaN, infinite, not zero, or too large for a type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "baton/quant/format.h"

namespace baton {

// Index of the first of the dense `values` (kF32, kF16 or kBF16, perhaps unaligned) that is NaN or infinite.
std::optional<uint64_t> first_not_finite(std::span<const std::byte> values, DType dtype);

// Index of the first that is not zero, of either sign.
std::optional<uint64_t> first_not_zero(std::span<const std::byte> values, DType dtype);

// Index of the first finite value of type `from` that rounds to an infinity of type `to`. The values are finite.
std::optional<uint64_t> first_overflow(std::span<const std::byte> values, DType from, DType to);

// Whether the finite values hold any but zeros, and all of these are below the smallest normal number of type `to`:
// they would lose digits, or all of them. Usually the first value tells.
bool all_underflow(std::span<const std::byte> values, DType from, DType to);

// One value, for messages.
float value_at(std::span<const std::byte> values, DType dtype, uint64_t index);

}  // namespace baton

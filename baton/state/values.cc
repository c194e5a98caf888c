// All questions are one: is the magnitude, as an integer, at least some limit? Compared a block at a time, without
// branches and with a count that the compiler knows, so that it vectorises it; a block that says yes is searched again.
#include "baton/state/values.h"

#include <algorithm>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/state/rows.h"
#include "baton/state/shape.h"

namespace baton {
namespace {

constexpr size_t kBlock = 512;

// limit - 1 - magnitude has its sign bit set when magnitude >= limit: both are below 2^(bits - 1).
template <class Bits>
Bits over(const std::byte* at, size_t i, Bits limit) {
  constexpr auto kMagnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  return static_cast<Bits>(limit - 1u - (load_as<Bits>(at + i * sizeof(Bits)) & kMagnitude));
}

template <size_t kCount, class Bits>
bool any_at_least(const std::byte* at, Bits limit) {
  Bits seen = 0;
  for (size_t i = 0; i < kCount; ++i) seen = static_cast<Bits>(seen | over(at, i, limit));
  return (seen >> (sizeof(Bits) * 8 - 1)) != 0;
}

template <class Bits>
std::optional<uint64_t> first_at_least(std::span<const std::byte> values, Bits limit) {
  const size_t count = values.size() / sizeof(Bits);
  for (size_t start = 0; start < count; start += kBlock) {
    const std::byte* at = values.data() + start * sizeof(Bits);
    const size_t block = std::min(count - start, kBlock);
    if (block == kBlock && !any_at_least<kBlock>(at, limit)) continue;
    for (size_t i = 0; i < block; ++i) {
      if (any_at_least<1>(at + i * sizeof(Bits), limit)) return start + i;
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> first_at_least_of(std::span<const std::byte> values, DType dtype, uint32_t limit) {
  return dtype == DType::kF32 ? first_at_least<uint32_t>(values, limit)
                              : first_at_least<uint16_t>(values, static_cast<uint16_t>(limit));
}

// Both types in blocks begin them with the scale, a half.
template <class Is>
std::optional<uint64_t> first_in_blocks(std::span<const std::byte> values, DType dtype, Is is) {
  const uint64_t bytes = format_of(dtype).block_bytes;
  for (uint64_t block = 0; block < values.size() / bytes; ++block) {
    if (const auto found = is(values.data() + block * bytes)) return block * kRowBlock + *found;
  }
  return std::nullopt;
}

std::optional<uint64_t> scale_not_finite(const std::byte* block) {
  if ((load_as<uint16_t>(block) & 0x7c00u) != 0x7c00u) return std::nullopt;
  return 0;
}

}  // namespace

std::optional<uint64_t> first_not_finite(std::span<const std::byte> values, DType dtype) {
  if (in_blocks(dtype)) return first_in_blocks(values, dtype, scale_not_finite);
  switch (dtype) {
    case DType::kF32:
      return first_at_least_of(values, dtype, 0x7f800000u);
    case DType::kF16:
      return first_at_least_of(values, dtype, 0x7c00u);
    default:
      return first_at_least_of(values, dtype, 0x7f80u);
  }
}

std::optional<uint64_t> first_not_zero(std::span<const std::byte> values, DType dtype) {
  if (in_blocks(dtype)) {
    return first_in_blocks(values, dtype, [&](const std::byte* block) -> std::optional<uint64_t> {
      float decoded[kRowBlock];
      format_of(dtype).decode(block, decoded, kRowBlock);
      const float* found = std::find_if(decoded, decoded + kRowBlock, [](float value) { return value != 0; });
      if (found == decoded + kRowBlock) return std::nullopt;
      return found - decoded;
    });
  }
  return first_at_least_of(values, dtype, 1);
}

std::optional<uint64_t> first_filled(std::span<const std::byte> rows, DType dtype, uint64_t columns) {
  const uint64_t filling = padded_columns(dtype, columns) - columns;
  if (dtype != DType::kQ8_0 || filling == 0) return std::nullopt;
  const uint64_t row_bytes = row_bytes_of(dtype, columns);
  for (uint64_t row = 1; row * row_bytes <= rows.size(); ++row) {
    const auto codes = rows.subspan(row * row_bytes - filling, filling);  // a block ends with its codes, a byte each
    const auto found = std::find_if(codes.begin(), codes.end(), [](std::byte code) { return code != std::byte{0}; });
    if (found != codes.end()) return row * (columns + filling) - static_cast<uint64_t>(codes.end() - found);
  }
  return std::nullopt;
}

std::optional<uint64_t> first_overflow(std::span<const std::byte> values, DType from, DType to) {
  // 65520 is halfway between the largest half, 65504, and 65536; ties go to even, which is infinity. 0x7f7f8000 is
  // halfway between the largest bfloat16 and 2^128.
  if (to == DType::kF16 && from == DType::kF32) return first_at_least_of(values, from, 0x477ff000u);
  if (to == DType::kF16 && from == DType::kBF16) return first_at_least_of(values, from, 0x4780u);
  if (to == DType::kBF16 && from == DType::kF32) return first_at_least_of(values, from, 0x7f7f8000u);
  return std::nullopt;
}

bool all_underflow(std::span<const std::byte> values, DType from, DType to) {
  if ((to != DType::kF16 && !in_blocks(to)) || (to == DType::kF16 && from == DType::kF16)) return false;
  // Of a scale that is a half, 2^-18 has 7 bits and 2^-20 has 5.
  const float least = to == DType::kF16 ? 0x1p-14f : to == DType::kQ8_0 ? 127 * 0x1p-18f : 8 * 0x1p-20f;
  const uint64_t count = values.size() / value_bytes(from);
  bool any = false;
  for (uint64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(value_at(values, from, i));
    if (magnitude >= least) return false;
    any = any || magnitude > 0;
  }
  return any;
}

uint64_t index_in_rows(DType dtype, uint64_t columns, uint64_t index) {
  const uint64_t padded = padded_columns(dtype, columns);
  return index / padded * columns + std::min(index % padded, columns - 1);
}

float value_at(std::span<const std::byte> values, DType dtype, uint64_t index) {
  if (in_blocks(dtype)) {
    float decoded[kRowBlock];
    format_of(dtype).decode(values.data() + index / kRowBlock * format_of(dtype).block_bytes, decoded, kRowBlock);
    return decoded[index % kRowBlock];
  }
  const std::byte* at = values.data() + index * value_bytes(dtype);
  switch (dtype) {
    case DType::kF32:
      return load_as<float>(at);
    case DType::kF16:
      return f16_to_f32(load_as<uint16_t>(at));
    default:
      return bf16_to_f32(load_as<uint16_t>(at));
  }
}

}  // namespace baton

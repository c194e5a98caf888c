// Q5_0: 32 values in 22 bytes. f16 d; u32 high; u8 q[16]: nibbles as in Q4_0, bit j of `high` is bit 4 of element j.
// value = d * (q - 16).
#include "baton/quant/codec.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = 22, kHalf = 16;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kBytes, to += kElements) {
    const float d = f16_at(from);
    const uint32_t high = load_as<uint32_t>(from + 2);
    for (size_t j = 0; j < kHalf; ++j) {
      const uint32_t q = u8_at(from, 6 + j);
      to[j] = d * static_cast<float>(static_cast<int>((q & 15) | (high >> j & 1) << 4) - 16);
      to[j + kHalf] = d * static_cast<float>(static_cast<int>(q >> 4 | (high >> (j + kHalf) & 1) << 4) - 16);
    }
  }
}

// d = (the value of largest magnitude, with its sign; the first one wins) / -16.
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kElements, to += kBytes) {
    float amax = 0, extreme = 0;
    for (size_t j = 0; j < kElements; ++j) {
      if (amax < std::fabs(from[j])) amax = std::fabs(from[j]), extreme = from[j];
    }
    const float d = extreme / -16.0f;
    const float inverse = reciprocal_or_zero(d);
    uint32_t high = 0;
    store_f16(to, d);
    for (size_t j = 0; j < kHalf; ++j) {
      const auto first = static_cast<uint32_t>(truncate_to(from[j] * inverse + 16.5f, 0, 31));
      const auto second = static_cast<uint32_t>(truncate_to(from[j + kHalf] * inverse + 16.5f, 0, 31));
      to[6 + j] = static_cast<std::byte>((first & 15) | (second & 15) << 4);
      high |= (first >> 4) << j | (second >> 4) << (j + kHalf);
    }
    store_as<uint32_t>(to + 2, high);
  }
}

}  // namespace

template <>
Codec codec<DType::kQ5_0>() {
  return {decode, encode};
}

}  // namespace baton

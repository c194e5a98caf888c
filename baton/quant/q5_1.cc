// Q5_1: 32 values in 24 bytes. f16 d; f16 m; u32 high; u8 q[16]: bits as in Q5_0. value = d * q + m.
#include <limits>

#include "baton/quant/codec.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = 24, kHalf = 16;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kBytes, to += kElements) {
    const float d = f16_at(from), m = f16_at(from + 2);
    const uint32_t high = load_as<uint32_t>(from + 4);
    for (size_t j = 0; j < kHalf; ++j) {
      const uint32_t q = u8_at(from, 8 + j);
      to[j] = d * static_cast<float>(static_cast<int>((q & 15) | (high >> j & 1) << 4)) + m;
      to[j + kHalf] = d * static_cast<float>(static_cast<int>(q >> 4 | (high >> (j + kHalf) & 1) << 4)) + m;
    }
  }
}

// d = (max - min) / 31, m = min.
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kElements, to += kBytes) {
    float low = std::numeric_limits<float>::max(), top = -low;
    for (size_t j = 0; j < kElements; ++j) {
      if (from[j] < low) low = from[j];
      if (from[j] > top) top = from[j];
    }
    const float d = (top - low) / 31.0f;
    const float inverse = reciprocal_or_zero(d);
    uint32_t high = 0;
    store_f16(to, d);
    store_f16(to + 2, low);
    for (size_t j = 0; j < kHalf; ++j) {
      const auto first = static_cast<uint32_t>(truncate_to((from[j] - low) * inverse + 0.5f, 0, 31));
      const auto second = static_cast<uint32_t>(truncate_to((from[j + kHalf] - low) * inverse + 0.5f, 0, 31));
      to[8 + j] = static_cast<std::byte>((first & 15) | (second & 15) << 4);
      high |= (first >> 4) << j | (second >> 4) << (j + kHalf);
    }
    store_as<uint32_t>(to + 4, high);
  }
}

}  // namespace

template <>
Codec codec<DType::kQ5_1>() {
  return {decode, encode};
}

}  // namespace baton

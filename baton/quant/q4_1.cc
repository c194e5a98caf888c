// Q4_1: 32 values in 20 bytes. f16 d; f16 m; u8 q[16]: low nibble = element j, high = element j + 16. value = d * q +
// m.
#include <limits>

#include "baton/quant/codec.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = 20, kHalf = 16;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kBytes, to += kElements) {
    const float d = f16_at(from), m = f16_at(from + 2);
    for (size_t j = 0; j < kHalf; ++j) {
      const int q = u8_at(from, 4 + j);
      to[j] = d * static_cast<float>(q & 15) + m;
      to[j + kHalf] = d * static_cast<float>(q >> 4) + m;
    }
  }
}

// d = (max - min) / 15, m = min.
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kElements, to += kBytes) {
    float low = std::numeric_limits<float>::max(), high = -low;
    for (size_t j = 0; j < kElements; ++j) {
      if (from[j] < low) low = from[j];
      if (from[j] > high) high = from[j];
    }
    const float d = (high - low) / 15.0f;
    const float inverse = reciprocal_or_zero(d);
    store_f16(to, d);
    store_f16(to + 2, low);
    for (size_t j = 0; j < kHalf; ++j) {
      const int first = truncate_to((from[j] - low) * inverse + 0.5f, 0, 15);
      const int second = truncate_to((from[j + kHalf] - low) * inverse + 0.5f, 0, 15);
      to[4 + j] = static_cast<std::byte>(first | second << 4);
    }
  }
}

}  // namespace

template <>
Codec codec<DType::kQ4_1>() {
  return {decode, encode};
}

}  // namespace baton

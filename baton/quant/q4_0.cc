// Q4_0: 32 values in 18 bytes. f16 d; u8 q[16]: low nibble = element j, high = element j + 16. value = d * (q - 8).
#include "baton/quant/codec.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = 18, kHalf = 16;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kBytes, to += kElements) {
    const float d = f16_at(from);
    for (size_t j = 0; j < kHalf; ++j) {
      const int q = u8_at(from, 2 + j);
      to[j] = d * static_cast<float>((q & 15) - 8);
      to[j + kHalf] = d * static_cast<float>((q >> 4) - 8);
    }
  }
}

// d = (the value of largest magnitude, with its sign; the first one wins) / -8.
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kElements, to += kBytes) {
    float amax = 0, extreme = 0;
    for (size_t j = 0; j < kElements; ++j) {
      if (amax < std::fabs(from[j])) amax = std::fabs(from[j]), extreme = from[j];
    }
    const float d = extreme / -8.0f;
    const float inverse = reciprocal_or_zero(d);
    store_f16(to, d);
    for (size_t j = 0; j < kHalf; ++j) {
      const int low = truncate_to(from[j] * inverse + 8.5f, 0, 15);
      const int high = truncate_to(from[j + kHalf] * inverse + 8.5f, 0, 15);
      to[2 + j] = static_cast<std::byte>(low | high << 4);
    }
  }
}

}  // namespace

template <>
Codec codec<DType::kQ4_0>() {
  return {decode, encode};
}

}  // namespace baton

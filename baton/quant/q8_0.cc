// Q8_0: 32 values in 34 bytes. f16 d; i8 q[32]. value = d * q.
#include "baton/quant/codec.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = 34;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kBytes, to += kElements) {
    const float d = f16_at(from);
    for (size_t j = 0; j < kElements; ++j) to[j] = d * static_cast<float>(static_cast<int8_t>(u8_at(from, 2 + j)));
  }
}

// d = amax / 127 is used in f32 to quantise and stored in f16; halves round away from zero.
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kElements, to += kBytes) {
    float amax = 0;
    for (size_t j = 0; j < kElements; ++j) amax = std::max(amax, std::fabs(from[j]));
    const float d = amax / 127.0f;
    const float inverse = reciprocal_or_zero(d);
    store_f16(to, d);
    for (size_t j = 0; j < kElements; ++j) {
      to[2 + j] = static_cast<std::byte>(truncate_to(std::round(from[j] * inverse), -128, 127));
    }
  }
}

}  // namespace

template <>
Codec codec<DType::kQ8_0>() {
  return {decode, encode};
}

}  // namespace baton

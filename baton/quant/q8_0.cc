// Q8_0: 32 values in 34 bytes. f16 d; i8 q[32]. value = d * q.
#include <cstring>

#include "baton/quant/codec.h"
#include "baton/quant/lanes.h"

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
    const float d = std::fabs(lanes().extreme(from)) / 127.0f;
    store_f16(to, d);
    int8_t codes[kElements];
    lanes().rounded_away(from, reciprocal_or_zero(d), codes);
    std::memcpy(to + 2, codes, kElements);
  }
}

}  // namespace

template <>
Codec codec<DType::kQ8_0>() {
  return {decode, encode, nullptr};
}

}  // namespace baton

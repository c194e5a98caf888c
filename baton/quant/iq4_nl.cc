// IQ4_NL: 32 values in 18 bytes, read only. f16 d; u8 q[16], nibbles as in Q4_0. value = d * table[q].
#include "baton/quant/codec.h"
#include "baton/quant/iq4_table.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = 18, kHalf = 16;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kBytes, to += kElements) {
    const float d = f16_at(from);
    for (size_t j = 0; j < kHalf; ++j) {
      to[j] = d * kIq4Values[u8_at(from, 2 + j) & 15];
      to[j + kHalf] = d * kIq4Values[u8_at(from, 2 + j) >> 4];
    }
  }
}

}  // namespace

template <>
Codec codec<DType::kIQ4_NL>() {
  return {decode, nullptr};
}

}  // namespace baton

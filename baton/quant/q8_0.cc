// Q8_0: 32 values in 34 bytes. f16 d; i8 q[32]. value = d * q.
#include <cstring>

#include "baton/quant/codec.h"
#include "baton/quant/searches.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = kBlockBytes<DType::kQ8_0>;

void unpack(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  for (size_t j = 0; j < kElements; ++j) to.codes[j] = u8_at(block, 2 + j) ^ 0x80;
}

// d = amax / 127 is used in f32 to quantise and stored in f16; halves round away from zero.
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kElements, to += kBytes) {
    const float d = std::fabs(searches().extreme(from)) / 127.0f;
    store_f16(to, d);
    int8_t codes[kElements];
    searches().rounded_away(from, reciprocal_or_zero(d), codes);
    std::memcpy(to + 2, codes, kElements);
  }
}

}  // namespace

template <>
Codec codec<DType::kQ8_0>() {
  return codec_of<DType::kQ8_0, unpack>(encode);
}

}  // namespace baton

// MXFP4 (OCP microscaling, GGUF's order): 32 values in 17 bytes. u8 e; u8 q[16], nibbles as in Q4_0.
// value = 2^(e - 128) * table[q], the table holding twice the E2M1 values.
#include "baton/quant/codec.h"
#include "baton/quant/searches.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = kBlockBytes<DType::kMXFP4>, kHalf = 16;

void unpack(const std::byte* block, Codes& to) {
  to.d = u8_at(block, 0);
  unpack_nibbles<kHalf>(block + 1, to.codes);
}

// e = floor(log2 of the largest magnitude) - 2 + 127, then the nearest code, the lower one of two that are as near.
// Largest magnitudes below 2^-125 have no such e; what the reference's conversion makes of them decodes to zeros.
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kElements, to += kBytes) {
    float amax = 0;
    for (size_t j = 0; j < kElements; ++j) {
      if (amax < std::fabs(from[j])) amax = std::fabs(from[j]);
    }
    const int exponent = amax > 0 ? truncate_to(std::floor(std::log2(amax)) + 125.0f, -1000, 1000) : 0;
    const auto e = static_cast<uint8_t>(exponent);
    uint8_t codes[kElements];
    searches().mxfp4_codes(from, power_of(e), codes);
    to[0] = static_cast<std::byte>(e);
    pack_nibbles<kHalf>(codes, to + 1);
  }
}

}  // namespace

template <>
Codec codec<DType::kMXFP4>() {
  return codec_of<DType::kMXFP4, unpack>(encode);
}

}  // namespace baton

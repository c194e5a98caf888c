// NVFP4 (GGUF's order): 64 values in 36 bytes, four parts of 16. u8 e[4], E4M3 without a sign; u8 q[32], of each part 8
// bytes, nibbles as in Q4_0. value = e / 2 * table[q], the table holding twice the E2M1 values; 0x7f, which is no
// number, counts as 0.
#include "baton/quant/codec.h"

namespace baton {
namespace {

void unpack(const std::byte* block, Codes& to) {
  for (size_t part = 0; part < 4; ++part) {
    const uint8_t e = u8_at(block, part);
    to.s[part] = e == 0x7f ? 0 : e & 0x7f;
    unpack_nibbles<8>(block + 4 + 8 * part, to.codes + 16 * part);
  }
}

}  // namespace

template <>
Codec codec<DType::kNVFP4>() {
  return codec_of<DType::kNVFP4, unpack>();
}

}  // namespace baton

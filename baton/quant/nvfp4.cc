// NVFP4 (GGUF's order): 64 values in 36 bytes, four parts of 16. u8 e[4], E4M3 without a sign; u8 q[32], of each part 8
// bytes, nibbles as in Q4_0. value = e / 2 * table[q], the table holding twice the E2M1 values; 0x7f, which is no
// number, counts as 0.
// NVFP4_F32: f32 d, then such a block; value = d * (e / 2) * table[q].
#include "baton/quant/codec.h"

namespace baton {
namespace {

void unpack(const std::byte* block, Codes& to) {
  to.d = 0;
  for (size_t part = 0; part < 4; ++part) {
    const uint8_t e = u8_at(block, part);
    to.s[part] = e == 0x7f ? 0 : e & 0x7f;
    unpack_nibbles<8>(block + 4 + 8 * part, to.codes + 16 * part);
  }
}

void unpack_with_scale(const std::byte* block, Codes& to) {
  unpack(block + 4, to);
  to.d = load_as<uint32_t>(block);
}

}  // namespace

template <>
Codec codec<DType::kNVFP4>() {
  return codec_of<DType::kNVFP4, unpack>();
}

template <>
Codec codec<DType::kNVFP4_F32>() {
  return codec_of<DType::kNVFP4_F32, unpack_with_scale>();
}

}  // namespace baton

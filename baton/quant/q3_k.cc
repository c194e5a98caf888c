// Q3_K: 256 values in 110 bytes, read only. u8 mask[32]; u8 q[64]; u8 scales[12]; f16 d. Low two bits as in Q2_K; bit
// e / 32 of mask[e mod 32] adds 4 to q - 4. Sixteen 6-bit scales, minus 32: low nibbles in bytes 0-7 (low half first),
// high bit pairs in bytes 8-11. value = d * scale * q.
#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = 110, kCodesAt = 32, kScalesAt = 96, kScaleAt = 108;

int scale_of(const std::byte* packed, size_t sub) {
  const int low = sub < 8 ? u8_at(packed, sub) & 15 : u8_at(packed, sub - 8) >> 4;
  const int high = u8_at(packed, 8 + sub % 4) >> (2 * static_cast<int>(sub / 4)) & 3;
  return (low | high << 4) - 32;
}

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kSuperBlock; ++block, from += kBytes) {
    const float d = f16_at(from + kScaleAt);
    for (size_t sub = 0; sub < 16; ++sub, to += 16) {
      const std::byte* codes = from + kCodesAt + 32 * (sub / 8) + 16 * (sub % 2);
      const std::byte* mask = from + 16 * (sub % 2);
      const int shift = 2 * static_cast<int>(sub % 8 / 2), bit = static_cast<int>(sub / 2);
      const float scale = d * static_cast<float>(scale_of(from + kScalesAt, sub));
      for (size_t l = 0; l < 16; ++l) {
        const int q = (u8_at(codes, l) >> shift & 3) + 4 * (u8_at(mask, l) >> bit & 1) - 4;
        to[l] = scale * static_cast<float>(q);
      }
    }
  }
}

}  // namespace

template <>
Codec codec<DType::kQ3_K>() {
  return {decode, nullptr};
}

}  // namespace baton

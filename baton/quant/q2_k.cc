// Q2_K: 256 values in 84 bytes, read only. u8 scales[16]: low nibble scale, high nibble min, per 16 values; u8 q[64]:
// per 128 values 32 bytes, bit pairs 0-3 of byte l are elements l, l + 32, l + 64, l + 96; f16 d; f16 dmin. value = d *
// scale * q - dmin * min.
#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = 84, kCodesAt = 16, kScaleAt = 80;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kSuperBlock; ++block, from += kBytes) {
    const float d = f16_at(from + kScaleAt), dmin = f16_at(from + kScaleAt + 2);
    for (size_t sub = 0; sub < 16; ++sub, to += 16) {
      const std::byte* codes = from + kCodesAt + 32 * (sub / 8) + 16 * (sub % 2);
      const int shift = 2 * static_cast<int>(sub % 8 / 2);
      const float scale = d * static_cast<float>(u8_at(from, sub) & 15);
      const float min = dmin * static_cast<float>(u8_at(from, sub) >> 4);
      for (size_t l = 0; l < 16; ++l) to[l] = scale * static_cast<float>(u8_at(codes, l) >> shift & 3) - min;
    }
  }
}

}  // namespace

template <>
Codec codec<DType::kQ2_K>() {
  return {decode, nullptr};
}

}  // namespace baton

// Q4_K: 256 values in 144 bytes. f16 d; f16 dmin; u8 pairs[12]; u8 q[128]. Eight sub-blocks of 32 with a 6-bit scale
// and min each (k_search.h); per 64 values 32 bytes: low nibbles the first 32, high nibbles the next. value = d*sc*q -
// dmin*m.
#include <array>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = 144, kCodesAt = 16;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kSuperBlock; ++block, from += kBytes) {
    const float d = f16_at(from), dmin = f16_at(from + 2);
    const std::byte* codes = from + kCodesAt;
    for (size_t pair = 0; pair < 4; ++pair, codes += 32, to += 64) {
      uint8_t scale = 0, min = 0;
      unpack_pair(from + 4, 2 * pair, &scale, &min);
      const float d1 = d * static_cast<float>(scale), m1 = dmin * static_cast<float>(min);
      unpack_pair(from + 4, 2 * pair + 1, &scale, &min);
      const float d2 = d * static_cast<float>(scale), m2 = dmin * static_cast<float>(min);
      for (size_t l = 0; l < 32; ++l) to[l] = d1 * static_cast<float>(u8_at(codes, l) & 15) - m1;
      for (size_t l = 0; l < 32; ++l) to[l + 32] = d2 * static_cast<float>(u8_at(codes, l) >> 4) - m2;
    }
  }
}

void pack(const uint8_t* codes, std::byte* block) {
  for (size_t pair = 0; pair < 4; ++pair) {
    for (size_t l = 0; l < 32; ++l) {
      block[kCodesAt + 32 * pair + l] = static_cast<std::byte>(codes[64 * pair + l] | codes[64 * pair + l + 32] << 4);
    }
  }
}

void encode_weighted(const float* from, const float* importance, std::byte* to, size_t count) {
  encode_pairs({15, -1.0f, 20, kBytes, pack}, from, importance, to, count);
}
void encode(const float* from, std::byte* to, size_t count) { encode_weighted(from, nullptr, to, count); }

}  // namespace

template <>
Codec codec<DType::kQ4_K>() {
  return {decode, encode, encode_weighted};
}

}  // namespace baton

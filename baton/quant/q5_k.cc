// Q5_K: 256 values in 176 bytes. f16 d; f16 dmin; u8 pairs[12]; u8 high[32]; u8 q[128]. As Q4_K; the fifth bit of
// element l of the first half of 64-group g is bit 2g of high[l], of the second half bit 2g + 1. value = d*sc*q -
// dmin*m.
#include <array>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = 176, kHighAt = 16, kCodesAt = 48;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kSuperBlock; ++block, from += kBytes) {
    const float d = f16_at(from), dmin = f16_at(from + 2);
    const std::byte* codes = from + kCodesAt;
    const std::byte* high = from + kHighAt;
    for (int pair = 0; pair < 4; ++pair, codes += 32, to += 64) {
      uint8_t scale = 0, min = 0;
      unpack_pair(from + 4, 2 * static_cast<size_t>(pair), &scale, &min);
      const float d1 = d * static_cast<float>(scale), m1 = dmin * static_cast<float>(min);
      unpack_pair(from + 4, 2 * static_cast<size_t>(pair) + 1, &scale, &min);
      const float d2 = d * static_cast<float>(scale), m2 = dmin * static_cast<float>(min);
      for (size_t l = 0; l < 32; ++l) {
        const int q = (u8_at(codes, l) & 15) | (u8_at(high, l) >> (2 * pair) & 1) << 4;
        to[l] = d1 * static_cast<float>(q) - m1;
      }
      for (size_t l = 0; l < 32; ++l) {
        const int q = u8_at(codes, l) >> 4 | (u8_at(high, l) >> (2 * pair + 1) & 1) << 4;
        to[l + 32] = d2 * static_cast<float>(q) - m2;
      }
    }
  }
}

void pack(const uint8_t* codes, std::byte* block) {
  for (size_t l = 0; l < 32; ++l) {
    unsigned high = 0;
    for (size_t pair = 0; pair < 4; ++pair) {
      const unsigned first = codes[64 * pair + l], second = codes[64 * pair + l + 32];
      block[kCodesAt + 32 * pair + l] = static_cast<std::byte>((first & 15) | (second & 15) << 4);
      high |= (first >> 4) << (2 * pair) | (second >> 4) << (2 * pair + 1);
    }
    block[kHighAt + l] = static_cast<std::byte>(high);
  }
}

void encode_weighted(const float* from, const float* importance, std::byte* to, size_t count) {
  encode_pairs({31, -0.5f, 15, kBytes, pack}, from, importance, to, count);
}
void encode(const float* from, std::byte* to, size_t count) { encode_weighted(from, nullptr, to, count); }

}  // namespace

template <>
Codec codec<DType::kQ5_K>() {
  return {decode, encode, encode_weighted};
}

}  // namespace baton

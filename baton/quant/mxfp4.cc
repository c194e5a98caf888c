// MXFP4 (OCP microscaling, GGUF's order): 32 values in 17 bytes. u8 e; u8 q[16], nibbles as in Q4_0.
// value = 2^(e - 128) * table[q], the table holding twice the E2M1 values.
#include <array>
#include <bit>

#include "baton/quant/codec.h"
#include "baton/quant/lanes.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = 17, kHalf = 16;
constexpr std::array<float, 16> kTwiceE2M1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 128); the two smallest are denormal.
float scale_of(uint32_t e) { return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kBytes, to += kElements) {
    const float d = scale_of(u8_at(from, 0));
    for (size_t j = 0; j < kHalf; ++j) {
      to[j] = d * kTwiceE2M1[u8_at(from, 1 + j) & 15];
      to[j + kHalf] = d * kTwiceE2M1[u8_at(from, 1 + j) >> 4];
    }
  }
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
    lanes().mxfp4_codes(from, scale_of(e), codes);
    to[0] = static_cast<std::byte>(e);
    for (size_t j = 0; j < kHalf; ++j) to[1 + j] = static_cast<std::byte>(codes[j] | codes[j + kHalf] << 4);
  }
}

}  // namespace

template <>
Codec codec<DType::kMXFP4>() {
  return {decode, encode, nullptr};
}

}  // namespace baton

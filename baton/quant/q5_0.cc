// Q5_0: 32 values in 22 bytes. f16 d; u32 high; u8 q[16]: nibbles as in Q4_0, bit j of `high` is bit 4 of element j.
// value = d * (q - 16).#include <vector>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = 22, kHalf = 16;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kBytes, to += kElements) {
    const float d = f16_at(from);
    const uint32_t high = load_as<uint32_t>(from + 2);
    for (size_t j = 0; j < kHalf; ++j) {
      const uint32_t q = u8_at(from, 6 + j);
      to[j] = d * static_cast<float>(static_cast<int>((q & 15) | (high >> j & 1) << 4) - 16);
      to[j + kHalf] = d * static_cast<float>(static_cast<int>(q >> 4 | (high >> (j + kHalf) & 1) << 4) - 16);
    }
  }
}

// d = (the value of largest magnitude, with its sign; the first one wins) / -16.
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kElements, to += kBytes) {
    const float d = lanes().extreme(from) / -16.0f;
    store_f16(to, d);
    uint8_t codes[kElements];
    lanes().truncated(from, 0.0f, reciprocal_or_zero(d), 16.5f, 31, codes);
    uint32_t high = 0;
    for (size_t j = 0; j < kHalf; ++j) {
      const uint32_t first = codes[j], second = codes[j + kHalf];
      to[6 + j] = static_cast<std::byte>((first & 15) | (second & 15) << 4);
      high |= (first >> 4) << j | (second >> 4) << (j + kHalf);
    }
    store_as<uint32_t>(to + 2, high);
  }
}

// With weights from an importance matrix: a row at a time, since its mean square is part of them.
void encode_weighted(const float* from, const float* importance, std::byte* to, size_t count) {
  const float variance = sum_of_squares(from, count) / static_cast<float>(count);
  std::vector<float> weights(count);
  importance_weights(from, importance, count, variance, weights.data());
  std::vector<SymmetricFit> fits(count / kElements);
  lanes().symmetric(from, weights.data(), kElements, fits.size(), 16, fits.data());
  for (const SymmetricFit& fit : fits) {
    uint8_t codes[kElements];
    fit_codes(from, kElements, fit, 16, codes);
    store_f16(to, fit.scale);
    uint32_t high = 0;
    for (size_t j = 0; j < kHalf; ++j) {
      const uint32_t first = codes[j], second = codes[j + kHalf];
      to[6 + j] = static_cast<std::byte>((first & 15) | (second & 15) << 4);
      high |= (first >> 4) << j | (second >> 4) << (j + kHalf);
    }
    store_as<uint32_t>(to + 2, high);
    from += kElements;
    to += kBytes;
  }
}

}  // namespace

template <>
Codec codec<DType::kQ5_0>() {
  return {decode, encode, encode_weighted};
}

}  // namespace baton

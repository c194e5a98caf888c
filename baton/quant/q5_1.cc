// Q5_1: 32 values in 24 bytes. f16 d; f16 m; u32 high; u8 q[16]: bits as in Q5_0. value = d * q + m.
#include <limits>
#include <vector>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = kBlockBytes<DType::kQ5_1>;

void unpack(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  to.m = load_as<uint16_t>(block + 2);
  unpack_fives(block + 4, to.codes);
}

// d = (max - min) / 31, m = min.
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kElements, to += kBytes) {
    float low = 0, top = 0;
    searches().limits(from, &low, &top);
    const float d = (top - low) / 31.0f;
    store_f16(to, d);
    store_f16(to + 2, low);
    uint8_t codes[kElements];
    searches().truncated(from, low, reciprocal_or_zero(d), 0.5f, 31, codes);
    pack_fives(codes, to + 4);
  }
}

// With weights from an importance matrix: a row at a time, since its mean square is part of them.
void encode_weighted(const float* from, const float* importance, std::byte* to, size_t count) {
  const float variance = sum_of_squares(from, count) / static_cast<float>(count);
  std::vector<float> weights(count);
  importance_weights(from, importance, count, variance, weights.data());
  std::vector<AsymmetricFit> fits(count / kElements);
  const AsymmetricSearch search = {31, kWeightedStart, kWeightedDelta, kWeightedSteps, false};
  searches().asymmetric(from, weights.data(), kElements, fits.size(), search, fits.data());
  for (const AsymmetricFit& fit : fits) {
    uint8_t codes[kElements];
    fit_codes(from, kElements, fit, 31, codes);
    store_f16(to, fit.scale);
    store_f16(to + 2, -fit.minus_min);
    pack_fives(codes, to + 4);
    from += kElements;
    to += kBytes;
  }
}

}  // namespace

template <>
Codec codec<DType::kQ5_1>() {
  return codec_of<DType::kQ5_1, unpack>(encode, encode_weighted);
}

}  // namespace baton

// Q4_0: 32 values in 18 bytes. f16 d; u8 q[16]: low nibble = element j, high = element j + 16. value = d * (q -
// 8).
#include <vector>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = kBlockBytes<DType::kQ4_0>, kHalf = 16;

void unpack(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  unpack_nibbles<kHalf>(block + 2, to.codes);
}

// d = (the value of largest magnitude, with its sign; the first one wins) / -8.
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kElements, to += kBytes) {
    const float d = searches().extreme(from) / -8.0f;
    store_f16(to, d);
    uint8_t codes[kElements];
    searches().truncated(from, 0.0f, reciprocal_or_zero(d), 8.5f, 15, codes);
    pack_nibbles<kHalf>(codes, to + 2);
  }
}

// With weights from an importance matrix: a row at a time, since its mean square is part of them.
void encode_weighted(const float* from, const float* importance, std::byte* to, size_t count) {
  const float variance = sum_of_squares(from, count) / static_cast<float>(count);
  std::vector<float> weights(count);
  importance_weights(from, importance, count, variance, weights.data());
  std::vector<SymmetricFit> fits(count / kElements);
  searches().symmetric(from, weights.data(), kElements, fits.size(), 8, fits.data());
  for (const SymmetricFit& fit : fits) {
    uint8_t codes[kElements];
    fit_codes(from, kElements, fit, 8, codes);
    store_f16(to, fit.scale);
    pack_nibbles<kHalf>(codes, to + 2);
    from += kElements;
    to += kBytes;
  }
}

}  // namespace

template <>
Codec codec<DType::kQ4_0>() {
  return codec_of<DType::kQ4_0, unpack>(encode, encode_weighted);
}

}  // namespace baton

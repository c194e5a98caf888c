// Q5_0: 32 values in 22 bytes. f16 d; u32 high; u8 q[16]: nibbles as in Q4_0, bit j of `high` is bit 4 of element j.
// value = d * (q - 16).
#include <vector>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = kBlockBytes<DType::kQ5_0>;

void unpack(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  unpack_fives(block + 2, to.codes);
}

// d = (the value of largest magnitude, with its sign; the first one wins) / -16.
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kElements; ++block, from += kElements, to += kBytes) {
    const float d = searches().extreme(from) / -16.0f;
    store_f16(to, d);
    uint8_t codes[kElements];
    searches().truncated(from, 0.0f, reciprocal_or_zero(d), 16.5f, 31, codes);
    pack_fives(codes, to + 2);
  }
}

// With weights from an importance matrix: a row at a time, since its mean square is part of them.
void encode_weighted(const float* from, const float* importance, std::byte* to, size_t count) {
  const float variance = sum_of_squares(from, count) / static_cast<float>(count);
  std::vector<float> weights(count);
  importance_weights(from, importance, count, variance, weights.data());
  std::vector<SymmetricFit> fits(count / kElements);
  searches().symmetric(from, weights.data(), kElements, fits.size(), 16, fits.data());
  for (const SymmetricFit& fit : fits) {
    uint8_t codes[kElements];
    fit_codes(from, kElements, fit, 16, codes);
    store_f16(to, fit.scale);
    pack_fives(codes, to + 2);
    from += kElements;
    to += kBytes;
  }
}

}  // namespace

template <>
Codec codec<DType::kQ5_0>() {
  return codec_of<DType::kQ5_0, unpack>(encode, encode_weighted);
}

}  // namespace baton

// IQ4_NL: 32 values in 18 bytes. f16 d; u8 q[16], nibbles as in Q4_0. value = d * table[q].
#include <array>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kElements = 32, kBytes = kBlockBytes<DType::kIQ4_NL>, kHalf = 16;

void unpack(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  unpack_nibbles<kHalf>(block + 2, to.codes);
}

constexpr size_t kBatch = 16;  // blocks per search

void encode_weighted(const float* __restrict from, const float* __restrict importance, std::byte* __restrict to,
                     size_t count) {
  std::array<float, kBatch * kElements> weights;
  std::array<float, kBatch> scales;
  std::array<uint8_t, kElements> codes;
  for (size_t done = 0; done < count; done += kBatch * kElements) {
    const size_t blocks = std::min(kBatch, (count - done) / kElements);
    for (size_t block = 0; importance != nullptr && block < blocks; ++block) {
      const float* x = from + done + block * kElements;
      importance_weights(x, importance + done + block * kElements, kElements,
                         sum_of_squares(x, kElements) * (2.0f / kElements), weights.data() + block * kElements);
    }
    searches().iq4(from + done, importance != nullptr ? weights.data() : nullptr, blocks, scales.data());
    for (size_t block = 0; block < blocks; ++block, to += kBytes) {
      store_f16(to, scales[block]);
      searches().iq4_codes(from + done + block * kElements, kElements, reciprocal_or_zero(scales[block]), codes.data());
      pack_nibbles<kHalf>(codes.data(), to + 2);
    }
  }
}
void encode(const float* from, std::byte* to, size_t count) { encode_weighted(from, nullptr, to, count); }

}  // namespace

template <>
Codec codec<DType::kIQ4_NL>() {
  return codec_of<DType::kIQ4_NL, unpack>(encode, encode_weighted);
}

}  // namespace baton

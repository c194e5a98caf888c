// IQ4_XS: 256 values in 136 bytes. f16 d; u16 high; u8 low[4]; u8 q[128]. Eight sub-blocks of 32, nibbles as
// in IQ4_NL; 6-bit scale i, minus 32: nibble i of `low`, bit pair i of `high`. value = d * scale * table[q].
#include <array>

#include "baton/quant/codec.h"
#include "baton/quant/iq4_table.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = 136, kLowAt = 4, kCodesAt = 8;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kSuperBlock; ++block, from += kBytes) {
    const float d = f16_at(from);
    const unsigned high = load_as<uint16_t>(from + 2);
    for (size_t sub = 0; sub < 8; ++sub, to += 32) {
      const unsigned low = static_cast<unsigned>(u8_at(from, kLowAt + sub / 2)) >> (4 * (sub % 2)) & 15u;
      const float scale = d * static_cast<float>(static_cast<int>(low | (high >> (2 * sub) & 3u) << 4) - 32);
      const std::byte* codes = from + kCodesAt + 16 * sub;
      for (size_t j = 0; j < 16; ++j) {
        to[j] = scale * kIq4Values[u8_at(codes, j) & 15];
        to[j + 16] = scale * kIq4Values[u8_at(codes, j) >> 4];
      }
    }
  }
}

constexpr size_t kGroups = 8, kGroup = 32;
constexpr size_t kBatch = 2;  // super-blocks per search

// Scales as 6-bit codes of the one of largest magnitude; codes by the scale so made, not rounded to f16.
void write_block(const float* x, const float* scales, std::byte* to) {
  float scale_max = 0, magnitude_max = 0;
  for (size_t sub = 0; sub < kGroups; ++sub) {
    if (std::fabs(scales[sub]) > magnitude_max) magnitude_max = std::fabs(scales[sub]), scale_max = scales[sub];
  }
  const float d = -scale_max / 32;
  const float inverse = reciprocal_or_zero(d);
  store_f16(to, d);
  std::fill_n(to + 2, kCodesAt - 2, std::byte{0});
  unsigned high = 0;
  for (size_t sub = 0; sub < kGroups; ++sub) {
    const int scale = std::clamp(nearest_int(inverse * scales[sub]), -32, 31);
    std::array<uint8_t, kGroup> codes;
    lanes().iq4_codes(x + kGroup * sub, kGroup, reciprocal_or_zero(d * static_cast<float>(scale)), codes.data());
    std::byte* packed = to + kCodesAt + 16 * sub;
    for (size_t j = 0; j < 16; ++j) packed[j] = static_cast<std::byte>(codes[j] | codes[j + 16] << 4);
    const auto code = static_cast<unsigned>(scale + 32);
    to[kLowAt + sub / 2] |= static_cast<std::byte>((code & 15) << (4 * (sub % 2)));
    high |= (code >> 4) << (2 * sub);
  }
  store_as<uint16_t>(to + 2, static_cast<uint16_t>(high));
}

void encode_weighted(const float* __restrict from, const float* __restrict importance, std::byte* __restrict to,
                     size_t count) {
  std::array<float, kBatch * kSuperBlock> weights;
  std::array<float, kBatch * kGroups> scales;
  for (size_t done = 0; done < count; done += kBatch * kSuperBlock) {
    const size_t blocks = std::min(kBatch, (count - done) / kSuperBlock);
    for (size_t block = 0; importance != nullptr && block < blocks; ++block) {
      const float* x = from + done + block * kSuperBlock;
      importance_weights(x, importance + done + block * kSuperBlock, kSuperBlock,
                         sum_of_squares(x, kSuperBlock) * (2.0f / kSuperBlock), weights.data() + block * kSuperBlock);
    }
    lanes().iq4(from + done, importance != nullptr ? weights.data() : nullptr, kGroups * blocks, scales.data());
    for (size_t block = 0; block < blocks; ++block, to += kBytes) {
      write_block(from + done + block * kSuperBlock, scales.data() + block * kGroups, to);
    }
  }
}
void encode(const float* from, std::byte* to, size_t count) { encode_weighted(from, nullptr, to, count); }

}  // namespace

template <>
Codec codec<DType::kIQ4_XS>() {
  return {decode, encode, encode_weighted};
}

}  // namespace baton

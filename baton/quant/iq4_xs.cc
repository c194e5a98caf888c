// IQ4_XS: 256 values in 136 bytes. f16 d; u16 high; u8 low[4]; u8 q[128]. Eight sub-blocks of 32, nibbles as
// in IQ4_NL; 6-bit scale i, minus 32: nibble i of `low`, bit pair i of `high`. value = d * scale * table[q].
#include <array>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = kBlockBytes<DType::kIQ4_XS>, kLowAt = 4, kCodesAt = 8;

void unpack(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  const int high = load_as<uint16_t>(block + 2);
  for (int part = 0; part < 8; ++part) {
    const int low = u8_at(block, kLowAt + static_cast<size_t>(part / 2)) >> (4 * (part % 2)) & 15;
    to.s[part] = static_cast<uint8_t>((low | (high >> (2 * part) & 3) << 4) - 32);
  }
  for (size_t part = 0; part < 8; ++part) unpack_nibbles<16>(block + kCodesAt + 16 * part, to.codes + 32 * part);
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
    searches().iq4_codes(x + kGroup * sub, kGroup, reciprocal_or_zero(d * static_cast<float>(scale)), codes.data());
    pack_nibbles<16>(codes.data(), to + kCodesAt + 16 * sub);
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
    searches().iq4(from + done, importance != nullptr ? weights.data() : nullptr, kGroups * blocks, scales.data());
    for (size_t block = 0; block < blocks; ++block, to += kBytes) {
      write_block(from + done + block * kSuperBlock, scales.data() + block * kGroups, to);
    }
  }
}
void encode(const float* from, std::byte* to, size_t count) { encode_weighted(from, nullptr, to, count); }

}  // namespace

template <>
Codec codec<DType::kIQ4_XS>() {
  return codec_of<DType::kIQ4_XS, unpack>(encode, encode_weighted);
}

}  // namespace baton

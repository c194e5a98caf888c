// Q3_K: 256 values in 110 bytes. u8 mask[32]; u8 q[64]; u8 scales[12]; f16 d. Low two bits as in Q2_K; bit
// e / 32 of mask[e mod 32] adds 4 to q - 4. Sixteen 6-bit scales, minus 32: low nibbles in bytes 0-7 (low half first),
// high bit pairs in bytes 8-11. value = d * scale * q.
#include <array>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = kBlockBytes<DType::kQ3_K>, kCodesAt = 32, kScalesAt = 96, kScaleAt = 108;

void unpack(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block + kScaleAt);
  for (size_t part = 0; part < 16; ++part) {
    const int low = u8_at(block, kScalesAt + part % 8) >> (part / 8 * 4) & 15;
    const int high = u8_at(block, kScalesAt + 8 + part % 4) >> (part / 4 * 2) & 3;
    to.s[part] = static_cast<uint8_t>((low | high << 4) - 32);
  }
  unpack_twos(block + kCodesAt, to.codes);
  for (size_t e = 0; e < kSuperBlock; ++e) {
    to.codes[e] = static_cast<uint8_t>(to.codes[e] | (u8_at(block, e % 32) >> (e / 32) & 1) << 2);
  }
}

// 6-bit codes of the scale of largest magnitude, into `to`.
void plain_scales(const std::array<float, 16>& scales, std::byte* to, uint8_t* scale_codes) {
  float scale_max = 0, magnitude_max = 0;
  for (const float scale : scales) {
    if (std::fabs(scale) > magnitude_max) magnitude_max = std::fabs(scale), scale_max = scale;
  }
  if (scale_max == 0) {
    std::fill_n(scale_codes, 16, uint8_t{0});
    store_f16(to + kScaleAt, 0.0f);
    return;
  }
  const float inverse = -32.0f / scale_max;
  for (size_t j = 0; j < 16; ++j) {
    const auto code = static_cast<int8_t>(nearest_int(inverse * scales[j]));
    scale_codes[j] = static_cast<uint8_t>(std::clamp<int>(code, -32, 31) + 32);
  }
  store_f16(to + kScaleAt, 1 / inverse);
}

void weighted_scales(const std::array<float, 16>& scales, const float* weights, std::byte* to, uint8_t* scale_codes) {
  std::array<float, 16> sums;
  sum_groups(weights, 16, sums);
  SymmetricFit fit{};
  searches().symmetric(scales.data(), sums.data(), 16, 1, 32, &fit);
  fit_codes(scales.data(), 16, fit, 32, scale_codes);
  store_f16(to + kScaleAt, fit.scale);
}

void pack(const uint8_t* scale_codes, const uint8_t* codes, std::byte* to) {
  std::fill_n(to, kScaleAt, std::byte{0});
  for (size_t j = 0; j < 16; ++j) {
    to[kScalesAt + j % 8] |= static_cast<std::byte>((scale_codes[j] & 15) << (j < 8 ? 0 : 4));
    to[kScalesAt + 8 + j % 4] |= static_cast<std::byte>((scale_codes[j] >> 4) << (2 * (j / 4)));
  }
  pack_twos(codes, to + kCodesAt);
  for (size_t e = 0; e < kSuperBlock; ++e) to[e % 32] |= static_cast<std::byte>((codes[e] >> 2) << (e / 32));
}

void encode_weighted(const float* __restrict from, const float* __restrict importance, std::byte* __restrict to,
                     size_t count) {
  std::array<float, kSuperBlock> weights;
  std::array<float, 16> scales;
  std::array<uint8_t, 16> scale_codes;
  std::array<uint8_t, kSuperBlock> codes;
  std::array<SymmetricFit, 16> fits;
  for (size_t done = 0; done < count; done += kSuperBlock, to += kBytes) {
    const float* x = from + done;
    if (importance == nullptr) {
      searches().refined(x, 16, scales.data(), codes.data());
      plain_scales(scales, to, scale_codes.data());
    } else {
      importance_weights(x, importance + done, kSuperBlock,
                         2 * sum_of_squares(x, kSuperBlock) / static_cast<float>(kSuperBlock), weights.data());
      searches().symmetric(x, weights.data(), 16, 16, 4, fits.data());
      for (size_t j = 0; j < 16; ++j) {
        scales[j] = fits[j].scale;
        fit_codes(x + 16 * j, 16, fits[j], 4, codes.data() + 16 * j);
      }
      weighted_scales(scales, weights.data(), to, scale_codes.data());
    }
    for (size_t j = 0; j < 16; ++j) {
      const float d = f16_at(to + kScaleAt) * static_cast<float>(scale_codes[j] - 32);
      if (d != 0) searches().codes(x + 16 * j, 16, 0.0f, d, -4, 3, codes.data() + 16 * j);
    }
    pack(scale_codes.data(), codes.data(), to);
  }
}
void encode(const float* from, std::byte* to, size_t count) { encode_weighted(from, nullptr, to, count); }

}  // namespace

template <>
Codec codec<DType::kQ3_K>() {
  return codec_of<DType::kQ3_K, unpack>(encode, encode_weighted);
}

}  // namespace baton

// Q2_K: 256 values in 84 bytes. u8 scales[16]: low nibble scale, high nibble min, per 16 values; u8 q[64]:
// per 128 values 32 bytes, bit pairs 0-3 of byte l are elements l, l + 32, l + 64, l + 96; f16 d; f16 dmin. value = d *
// scale * q - dmin * min.
#include <array>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = kBlockBytes<DType::kQ2_K>, kCodesAt = 16, kScaleAt = 80;

void unpack(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block + kScaleAt);
  to.m = load_as<uint16_t>(block + kScaleAt + 2);
  for (size_t part = 0; part < 16; ++part) {
    to.s[part] = u8_at(block, part) & 15;
    to.n[part] = u8_at(block, part) >> 4;
  }
  unpack_twos(block + kCodesAt, to.codes);
}

// 4-bit codes of the largest scale and min.
void plain_scales(const std::array<AsymmetricFit, 16>& fits, std::byte* to) {
  float scale_max = 0, min_max = 0;
  for (const AsymmetricFit& fit : fits) {
    if (fit.scale > scale_max) scale_max = fit.scale;
    if (fit.minus_min > min_max) min_max = fit.minus_min;
  }
  const float inverse_scale = scale_max > 0 ? 15.0f / scale_max : 0.0f;
  const float inverse_min = min_max > 0 ? 15.0f / min_max : 0.0f;
  for (size_t j = 0; j < 16; ++j) {
    // A scale below zero, which is rare, spills into the min: as in the reference.
    const auto scale = static_cast<unsigned>(nearest_int(inverse_scale * fits[j].scale));
    const auto min = static_cast<unsigned>(nearest_int(inverse_min * fits[j].minus_min));
    to[j] = static_cast<std::byte>(static_cast<uint8_t>(scale | min << 4));
  }
  store_f16(to + kScaleAt, scale_max / 15.0f);
  store_f16(to + kScaleAt + 2, min_max / 15.0f);
}

void weighted_scales(const std::array<AsymmetricFit, 16>& fits, const float* weights, std::byte* to) {
  std::array<float, 16> sums, scales, mins;
  std::array<uint8_t, 16> scale_codes, min_codes;
  sum_groups(weights, 16, sums);
  for (size_t j = 0; j < 16; ++j) scales[j] = fits[j].scale, mins[j] = fits[j].minus_min;
  store_f16(to + kScaleAt, search_positive(scales, sums.data(), 15, scale_codes.data()));
  store_f16(to + kScaleAt + 2, search_positive(mins, sums.data(), 15, min_codes.data()));
  for (size_t j = 0; j < 16; ++j) to[j] = static_cast<std::byte>(scale_codes[j] | min_codes[j] << 4);
}

void encode_weighted(const float* __restrict from, const float* __restrict importance, std::byte* __restrict to,
                     size_t count) {
  const AsymmetricSearch search = importance == nullptr
                                      ? AsymmetricSearch{3, -0.5f, 0.1f, 15, true}
                                      : AsymmetricSearch{3, kWeightedStart, kWeightedDelta, kWeightedSteps, false};
  std::array<float, kSuperBlock> weights;
  std::array<AsymmetricFit, 16> fits;
  std::array<uint8_t, kSuperBlock> codes;
  for (size_t done = 0; done < count; done += kSuperBlock, to += kBytes) {
    const float* x = from + done;
    if (importance != nullptr) {
      importance_weights(x, importance + done, kSuperBlock,
                         sum_of_squares(x, kSuperBlock) / static_cast<float>(kSuperBlock), weights.data());
    }
    searches().asymmetric(x, importance != nullptr ? weights.data() : nullptr, 16, 16, search, fits.data());
    if (importance == nullptr) {
      plain_scales(fits, to);
    } else {
      weighted_scales(fits, weights.data(), to);
    }
    for (size_t j = 0; j < 16; ++j) {
      const float d = f16_at(to + kScaleAt) * static_cast<float>(u8_at(to, j) & 15);
      const float min = f16_at(to + kScaleAt + 2) * static_cast<float>(u8_at(to, j) >> 4);
      if (d == 0) {
        fit_codes(x + 16 * j, 16, fits[j], 3, codes.data() + 16 * j);
      } else {
        searches().codes(x + 16 * j, 16, min, d, 0, 3, codes.data() + 16 * j);
      }
    }
    pack_twos(codes.data(), to + kCodesAt);
  }
}
void encode(const float* from, std::byte* to, size_t count) { encode_weighted(from, nullptr, to, count); }

}  // namespace

template <>
Codec codec<DType::kQ2_K>() {
  return codec_of<DType::kQ2_K, unpack>(encode, encode_weighted);
}

}  // namespace baton

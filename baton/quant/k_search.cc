// See k_search.h.
#include "baton/quant/k_search.h"

#include <array>

#include "baton/quant/codec.h"

namespace baton {
namespace {

constexpr float kGroupMin = 1e-15f;  // groups whose largest magnitude is below are stored as zeros
constexpr size_t kGroup = 32, kGroups = kSuperBlock / kGroup;
constexpr size_t kBatch = 2;  // super-blocks per search: 16 groups

// Scales and mins as 6-bit codes of the largest; d and dmin are written.
void plain_pairs(std::span<const AsymmetricFit> fits, std::byte* header, uint8_t* scales, uint8_t* mins) {
  float scale_max = 0, min_max = 0;
  for (const AsymmetricFit& fit : fits) {
    if (fit.scale > scale_max) scale_max = fit.scale;
    if (fit.minus_min > min_max) min_max = fit.minus_min;
  }
  const float inverse_scale = scale_max > 0 ? 63.0f / scale_max : 0.0f;
  const float inverse_min = min_max > 0 ? 63.0f / min_max : 0.0f;
  for (size_t j = 0; j < kGroups; ++j) {
    scales[j] = std::min<uint8_t>(63, static_cast<uint8_t>(nearest_int(inverse_scale * fits[j].scale)));
    mins[j] = std::min<uint8_t>(63, static_cast<uint8_t>(nearest_int(inverse_min * fits[j].minus_min)));
  }
  store_f16(header, scale_max / 63.0f);
  store_f16(header + 2, min_max / 63.0f);
}

void weighted_pairs(std::span<const AsymmetricFit> fits, const float* weights, std::byte* header, uint8_t* scales,
                    uint8_t* mins) {
  std::array<float, kGroups> sums, wanted_scales, wanted_mins;
  sum_groups(weights, kGroup, sums);
  for (size_t j = 0; j < kGroups; ++j) wanted_scales[j] = fits[j].scale, wanted_mins[j] = fits[j].minus_min;
  store_f16(header, search_positive(wanted_scales, sums.data(), 63, scales));
  store_f16(header + 2, search_positive(wanted_mins, sums.data(), 63, mins));
}

void pack_pairs(const uint8_t* scales, const uint8_t* mins, std::byte* packed) {
  std::fill_n(packed, 12, std::byte{0});
  for (size_t j = 0; j < kGroups; ++j) {
    if (j < 4) {
      packed[j] = static_cast<std::byte>(scales[j]);
      packed[j + 4] = static_cast<std::byte>(mins[j]);
    } else {
      packed[j + 4] = static_cast<std::byte>((scales[j] & 15) | (mins[j] & 15) << 4);
      packed[j - 4] |= static_cast<std::byte>((scales[j] >> 4) << 6);
      packed[j] |= static_cast<std::byte>((mins[j] >> 4) << 6);
    }
  }
}

}  // namespace

void unpack_pairs(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  to.m = load_as<uint16_t>(block + 2);
  const std::byte* packed = block + 4;
  for (size_t j = 0; j < 4; ++j) {
    to.s[j] = u8_at(packed, j) & 63;
    to.n[j] = u8_at(packed, j + 4) & 63;
    to.s[j + 4] = static_cast<uint8_t>((u8_at(packed, j + 8) & 15) | u8_at(packed, j) >> 6 << 4);
    to.n[j + 4] = static_cast<uint8_t>(u8_at(packed, j + 8) >> 4 | u8_at(packed, j + 4) >> 6 << 4);
  }
}

void unpack_twos(const std::byte* __restrict from, uint8_t* __restrict codes) {
  for (size_t run = 0; run < 8; ++run) {
    for (size_t l = 0; l < 32; ++l) codes[32 * run + l] = u8_at(from, 32 * (run / 4) + l) >> (2 * (run % 4)) & 3;
  }
}

void pack_twos(const uint8_t* codes, std::byte* to) {
  for (size_t half = 0; half < 2; ++half, codes += 128, to += 32) {
    for (size_t l = 0; l < 32; ++l) {
      to[l] = static_cast<std::byte>((codes[l] & 3) | (codes[l + 32] & 3) << 2 | (codes[l + 64] & 3) << 4 |
                                     (codes[l + 96] & 3) << 6);
    }
  }
}

int nearest_int(float value) {
  const float shifted = value + 12582912.0f;  // 1.5 * 2^23: the integer lands in the low mantissa bits
  return static_cast<int>(std::bit_cast<uint32_t>(shifted) & 0x007fffffu) - 0x00400000;
}

void fit_codes(const float* x, size_t n, const AsymmetricFit& fit, int code_max, uint8_t* codes) {
  for (size_t i = 0; i < n; ++i) {
    const int code = fit.inverse == 0 ? 0 : std::clamp(nearest_int(fit.inverse * (x[i] - fit.low)), 0, code_max);
    codes[i] = static_cast<uint8_t>(code);
  }
}

void fit_codes(const float* x, size_t n, const SymmetricFit& fit, int code_max, uint8_t* codes) {
  for (size_t i = 0; i < n; ++i) {
    const int code =
        fit.inverse == 0 ? 0 : std::clamp(nearest_int(fit.inverse * x[i]), -code_max, code_max - 1) + code_max;
    codes[i] = static_cast<uint8_t>(code);
  }
}

void importance_weights(const float* x, const float* importance, size_t count, float variance, float* weights) {
  for (size_t i = 0; i < count; ++i) weights[i] = importance[i] * std::sqrt(variance + x[i] * x[i]);
}

float sum_of_squares(const float* x, size_t count) {
  float sum = 0;
  for (size_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return sum;
}

void sum_groups(const float* weights, size_t n, std::span<float> sums) {
  for (size_t j = 0; j < sums.size(); ++j) {
    sums[j] = 0;
    for (size_t i = 0; i < n; ++i) sums[j] += weights[n * j + i];
  }
}

float search_positive(std::span<const float> x, const float* weights, int code_max, uint8_t* codes) {
  const size_t n = x.size();
  float largest = 0;
  for (const float value : x) {
    if (value > largest) largest = value;
  }
  if (largest < kGroupMin) {
    std::fill_n(codes, n, uint8_t{0});
    return 0;
  }
  const auto levels = static_cast<float>(code_max);
  const auto error_of = [&](float inverse) {
    const float scale = 1 / inverse;
    float error = 0;
    for (size_t i = 0; i < n; ++i) {
      const float difference = x[i] - scale * static_cast<float>(std::min(code_max, nearest_int(inverse * x[i])));
      error += weights[i] * difference * difference;
    }
    return error;
  };
  float inverse = levels / largest;
  float best = error_of(inverse);
  for (int step = -4; step <= 4; ++step) {
    if (step == 0) continue;
    const float candidate = (0.1f * static_cast<float>(step) + levels) / largest;
    const float error = error_of(candidate);
    if (error < best) best = error, inverse = candidate;
  }
  float sum_xl = 0, sum_l2 = 0;
  for (size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(std::min(code_max, nearest_int(inverse * x[i])));
    const auto l = static_cast<float>(codes[i]);
    sum_xl += weights[i] * x[i] * l;
    sum_l2 += weights[i] * l * l;
  }
  for (int sweep = 0; sweep < 5; ++sweep) {
    bool changed = false;
    for (size_t i = 0; i < n; ++i) {
      const auto old = static_cast<float>(codes[i]);
      float without_xl = sum_xl - weights[i] * x[i] * old, without_l2 = sum_l2 - weights[i] * old * old;
      if (!(without_xl > 0 && without_l2 > 0)) continue;
      const int now = std::min(code_max, nearest_int(x[i] * without_l2 / without_xl));
      if (now == static_cast<int>(codes[i])) continue;
      const auto l = static_cast<float>(now);
      without_xl += weights[i] * x[i] * l;
      without_l2 += weights[i] * l * l;
      if (without_xl * without_xl * sum_l2 > sum_xl * sum_xl * without_l2) {
        codes[i] = static_cast<uint8_t>(now);
        sum_xl = without_xl;
        sum_l2 = without_l2;
        changed = true;
      }
    }
    if (!changed) break;
  }
  return sum_l2 > 0 ? sum_xl / sum_l2 : 0.0f;
}

void encode_pairs(const PairFormat& format, const float* from, const float* importance, std::byte* to, size_t count) {
  const AsymmetricSearch search =
      importance == nullptr ? AsymmetricSearch{format.code_max, format.start, 0.1f, format.steps, false}
                            : AsymmetricSearch{format.code_max, kWeightedStart, kWeightedDelta, kWeightedSteps, false};
  std::array<float, kBatch * kSuperBlock> weights;
  std::array<AsymmetricFit, kBatch * kGroups> fits;
  std::array<uint8_t, kSuperBlock> codes;
  std::array<uint8_t, kGroups> scales, mins;
  for (size_t done = 0; done < count; done += kBatch * kSuperBlock) {
    const size_t blocks = std::min(kBatch, (count - done) / kSuperBlock);
    for (size_t block = 0; importance != nullptr && block < blocks; ++block) {
      const float* x = from + done + block * kSuperBlock;
      importance_weights(x, importance + done + block * kSuperBlock, kSuperBlock,
                         2 * sum_of_squares(x, kSuperBlock) / static_cast<float>(kSuperBlock),
                         weights.data() + block * kSuperBlock);
    }
    searches().asymmetric(from + done, importance != nullptr ? weights.data() : nullptr, kGroup, kGroups * blocks,
                          search, fits.data());
    for (size_t block = 0; block < blocks; ++block, to += format.block_bytes) {
      const float* x = from + done + block * kSuperBlock;
      const auto block_fits = std::span(fits).subspan(block * kGroups, kGroups);
      if (importance == nullptr) {
        plain_pairs(block_fits, to, scales.data(), mins.data());
      } else {
        weighted_pairs(block_fits, weights.data() + block * kSuperBlock, to, scales.data(), mins.data());
      }
      pack_pairs(scales.data(), mins.data(), to + 4);
      for (size_t j = 0; j < kGroups; ++j) {
        const float d = f16_at(to) * static_cast<float>(scales[j]);
        uint8_t* group = codes.data() + kGroup * j;
        if (d == 0) {
          fit_codes(x + kGroup * j, kGroup, block_fits[j], format.code_max, group);
        } else {
          searches().codes(x + kGroup * j, kGroup, f16_at(to + 2) * static_cast<float>(mins[j]), d, 0, format.code_max,
                           group);
        }
      }
      format.pack(codes.data(), to);
    }
  }
}

}  // namespace baton

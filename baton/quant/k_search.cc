// See k_search.h.
#include "baton/quant/k_search.h"

#include <array>

#include "baton/quant/codec.h"

namespace baton {
namespace {

constexpr float kGroupMin = 1e-15f;  // groups whose largest magnitude is below are stored as zeros

}  // namespace

int nearest_int(float value) {
  const float shifted = value + 12582912.0f;  // 1.5 * 2^23: the integer lands in the low mantissa bits
  return static_cast<int>(std::bit_cast<uint32_t>(shifted) & 0x007fffffu) - 0x00400000;
}

float search_symmetric(std::span<const float> x, int code_max, uint8_t* codes) {
  float amax = 0, extreme = 0;
  for (const float value : x) {
    if (std::fabs(value) > amax) amax = std::fabs(value), extreme = value;
  }
  if (amax < kGroupMin) {
    std::fill_n(codes, x.size(), uint8_t{0});
    return 0;
  }
  const auto code_of = [&](float inverse, float value) {
    return std::clamp(nearest_int(inverse * value), -code_max, code_max - 1);
  };
  const auto write = [&](float inverse) {
    for (size_t i = 0; i < x.size(); ++i) codes[i] = static_cast<uint8_t>(code_of(inverse, x[i]) + code_max);
  };
  float sum_xl = 0, sum_l2 = 0;
  const auto measure = [&](float inverse) {
    sum_xl = sum_l2 = 0;
    for (const float value : x) {
      const auto l = static_cast<float>(code_of(inverse, value));
      const float weight = value * value;
      sum_xl += weight * value * l;
      sum_l2 += weight * l * l;
    }
  };
  const float first = -static_cast<float>(code_max) / extreme;
  measure(first);
  write(first);
  float scale = sum_l2 != 0 ? sum_xl / sum_l2 : 0.0f;
  float best = scale * sum_xl;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    const float inverse = -(static_cast<float>(code_max) + 0.1f * static_cast<float>(step)) / extreme;
    measure(inverse);
    if (sum_l2 > 0 && sum_xl * sum_xl > best * sum_l2) {
      write(inverse);
      scale = sum_xl / sum_l2;
      best = scale * sum_xl;
    }
  }
  return scale;
}

float search_asymmetric(std::span<const float> x, int code_max, float start, int steps, uint8_t* codes,
                        float* minus_min) {
  const size_t n = x.size();
  float sum_x2 = 0;
  for (const float value : x) sum_x2 += value * value;
  const float rms = std::sqrt(sum_x2 / static_cast<float>(n));
  std::array<float, 32> weights{};
  float low = x[0], high = x[0], sum_w = 0, sum_x = 0;
  for (size_t i = 0; i < n; ++i) {
    weights[i] = rms + std::fabs(x[i]);
    if (x[i] < low) low = x[i];
    if (x[i] > high) high = x[i];
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (low > 0) low = 0;
  if (high == low) {
    std::fill_n(codes, n, uint8_t{0});
    *minus_min = -low;
    return 0;
  }
  const auto code_of = [&](float inverse, float value) {
    return std::clamp(nearest_int(inverse * (value - low)), 0, code_max);
  };
  const auto levels = static_cast<float>(code_max);
  float inverse = levels / (high - low);
  float scale = 1 / inverse;
  float best = 0;
  for (size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(code_of(inverse, x[i]));
    const float difference = scale * static_cast<float>(codes[i]) + low - x[i];
    best += weights[i] * (difference * difference);
  }
  std::array<uint8_t, 32> trial{};
  for (int step = 0; step <= steps; ++step) {
    inverse = (start + 0.1f * static_cast<float>(step) + levels) / (high - low);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (size_t i = 0; i < n; ++i) {
      trial[i] = static_cast<uint8_t>(code_of(inverse, x[i]));
      const auto l = static_cast<float>(trial[i]);
      sum_l += weights[i] * l;
      sum_l2 += weights[i] * l * l;
      sum_xl += weights[i] * l * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float this_low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (this_low > 0) {
      this_low = 0;
      this_scale = sum_xl / sum_l2;
    }
    float error = 0;
    for (size_t i = 0; i < n; ++i) {
      const float difference = this_scale * static_cast<float>(trial[i]) + this_low - x[i];
      error += weights[i] * (difference * difference);
    }
    if (error < best) {
      std::copy_n(trial.begin(), n, codes);
      best = error;
      scale = this_scale;
      low = this_low;  // later candidates quantise against it too
    }
  }
  *minus_min = -low;
  return scale;
}

void quantize_pairs(const float* x, int code_max, float start, int steps, std::byte* header, uint8_t* codes) {
  std::array<float, 8> scales{}, mins{};
  float scale_max = 0, min_max = 0;
  for (size_t j = 0; j < 8; ++j) {
    scales[j] = search_asymmetric({x + 32 * j, 32}, code_max, start, steps, codes + 32 * j, &mins[j]);
    if (scales[j] > scale_max) scale_max = scales[j];
    if (mins[j] > min_max) min_max = mins[j];
  }
  const float inverse_scale = scale_max > 0 ? 63.0f / scale_max : 0.0f;
  const float inverse_min = min_max > 0 ? 63.0f / min_max : 0.0f;
  std::byte* packed = header + 4;
  std::fill_n(packed, 12, std::byte{0});
  for (size_t j = 0; j < 8; ++j) {
    const auto scale = std::min<uint8_t>(63, static_cast<uint8_t>(nearest_int(inverse_scale * scales[j])));
    const auto min = std::min<uint8_t>(63, static_cast<uint8_t>(nearest_int(inverse_min * mins[j])));
    if (j < 4) {
      packed[j] = static_cast<std::byte>(scale);
      packed[j + 4] = static_cast<std::byte>(min);
    } else {
      packed[j + 4] = static_cast<std::byte>((scale & 15) | (min & 15) << 4);
      packed[j - 4] |= static_cast<std::byte>((scale >> 4) << 6);
      packed[j] |= static_cast<std::byte>((min >> 4) << 6);
    }
  }
  store_f16(header, scale_max / 63.0f);
  store_f16(header + 2, min_max / 63.0f);
  for (size_t j = 0; j < 8; ++j) {
    uint8_t scale = 0, min = 0;
    unpack_pair(packed, j, &scale, &min);
    const float d = f16_at(header) * static_cast<float>(scale);
    if (d == 0) continue;
    const float offset = f16_at(header + 2) * static_cast<float>(min);
    for (size_t i = 0; i < 32; ++i) {
      codes[32 * j + i] = static_cast<uint8_t>(std::clamp(nearest_int((x[32 * j + i] + offset) / d), 0, code_max));
    }
  }
}

}  // namespace baton

// The searches of searches.h, written once in the words of base/simd: searches_<set>.cc includes its header first.
#pragma once

#include "baton/quant/coding.h"
#include "baton/quant/searches.h"

#ifndef BATON_SIMD
#error "a header of baton/base/simd comes first: it says for which instruction set"
#endif

namespace baton {
namespace {

using simd::abs, simd::all, simd::any, simd::bits_of, simd::load, simd::max, simd::min, simd::select, simd::sqrt;
using simd::F, simd::I, simd::kLanes, simd::M, simd::store, simd::to_float, simd::transpose;

constexpr float kGroupLeast = 1e-15f;  // groups whose largest magnitude is below are stored as zeros

// Round half to even for |x| <= 2^22, some number otherwise, into [low, high].
BATON_INLINE F rounded(const F& x, int low, int high) {
  const I code = (bits_of(x + all(12582912.0f)) & all(0x007fffff)) - all(0x00400000);
  return to_float(min(max(code, all(low)), all(high)));
}

// kLanes groups of n values, value by value. Lanes beyond `count` repeat the last group.
struct Columns {
  F at[kGroupMax];

  void read(const float* groups, size_t n, size_t count) {
    float values[kGroupMax][kLanes];
    const auto stride = static_cast<int64_t>(n);
    if (count == kLanes) {
      for (size_t i = 0; i < n; i += kLanes) transpose(groups + i, stride, values[i], kLanes);
    } else {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const float* group = groups + n * (lane < count ? lane : count - 1);
        for (size_t i = 0; i < n; ++i) values[i][lane] = group[i];
      }
    }
    for (size_t i = 0; i < n; ++i) at[i] = load(values[i]);
  }
};

// f(first group, how many, vector of them) for kLanes groups at a time.
template <class Function>
BATON_INLINE void each_batch(size_t groups, Function&& f) {
  for (size_t group = 0; group < groups; group += kLanes) f(group, groups - group < kLanes ? groups - group : kLanes);
}

struct Extremes {
  F amax, extreme;  // the first value of the largest magnitude
};
Extremes extremes(const Columns& x, size_t n) {
  Extremes found{};
  for (size_t i = 0; i < n; ++i) {
    const F size = abs(x.at[i]);
    const M larger = found.amax < size;
    found.amax = select(larger, size, found.amax);
    found.extreme = select(larger, x.at[i], found.extreme);
  }
  return found;
}

// The weighted error of scale * code + low.
F error_of(const Columns& x, const Columns& weights, const Columns& codes, size_t n, const F& scale, const F& low,
           bool absolute) {
  F error{};
  if (absolute) {
    for (size_t i = 0; i < n; ++i) error = error + weights.at[i] * abs(scale * codes.at[i] + low - x.at[i]);
  } else {
    for (size_t i = 0; i < n; ++i) {
      const F difference = scale * codes.at[i] + low - x.at[i];
      error = error + weights.at[i] * (difference * difference);
    }
  }
  return error;
}

void asymmetric_columns(const Columns& x, const Columns& weights, size_t n, const AsymmetricSearch& search,
                        AsymmetricFit* fits, size_t count) {
  F low = x.at[0], high = x.at[0], sum_w = weights.at[0], sum_x = weights.at[0] * x.at[0];
  for (size_t i = 1; i < n; ++i) {
    low = select(x.at[i] < low, x.at[i], low);
    high = select(high < x.at[i], x.at[i], high);
    sum_w = sum_w + weights.at[i];
    sum_x = sum_x + weights.at[i] * x.at[i];
  }
  low = select(F{} < low, F{}, low);
  const M uneven = high != low;
  const F flat_low = low;

  const int top = search.code_max;
  const auto levels = static_cast<float>(top);
  Columns codes;
  F inverse = all(levels) / (high - low);
  for (size_t i = 0; i < n; ++i) codes.at[i] = rounded(inverse * (x.at[i] - low), 0, top);
  F scale = all(1.0f) / inverse, best_inverse = inverse, best_low = low;
  F best = error_of(x, weights, codes, n, scale, low, search.absolute);
  for (int step = 0; step <= search.steps; ++step) {
    inverse = all(search.start + search.delta * static_cast<float>(step) + levels) / (high - low);
    F sum_l{}, sum_l2{}, sum_xl{};
    for (size_t i = 0; i < n; ++i) {
      const F code = rounded(inverse * (x.at[i] - low), 0, top);
      codes.at[i] = code;
      const F weighted = weights.at[i] * code;
      sum_l = sum_l + weighted;
      sum_l2 = sum_l2 + weighted * code;
      sum_xl = sum_xl + weighted * x.at[i];
    }
    const F determinant = sum_w * sum_l2 - sum_l * sum_l;
    F this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    F this_low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    const M positive = F{} < this_low;
    this_low = select(positive, F{}, this_low);
    this_scale = select(positive, sum_xl / sum_l2, this_scale);
    const F error = error_of(x, weights, codes, n, this_scale, this_low, search.absolute);
    const M better = (F{} < determinant) & (error < best);
    best = select(better, error, best);
    scale = select(better, this_scale, scale);
    best_inverse = select(better, inverse, best_inverse);
    best_low = select(better, low, best_low);
    low = select(better, this_low, low);  // later candidates quantise against it too
  }
  float found[4][kLanes];
  store(found[0], select(uneven, scale, F{}));
  store(found[1], select(uneven, low, flat_low));
  store(found[2], select(uneven, best_inverse, F{}));
  store(found[3], best_low);
  for (size_t lane = 0; lane < count; ++lane) {
    fits[lane] = {found[0][lane], -found[1][lane], found[2][lane], found[3][lane]};
  }
}

void asymmetric(const float* x, const float* weights, size_t n, size_t groups, const AsymmetricSearch& search,
                AsymmetricFit* fits) {
  each_batch(groups, [&](size_t group, size_t count) {
    Columns values, given;
    values.read(x + group * n, n, count);
    if (weights != nullptr) {
      given.read(weights + group * n, n, count);
    } else if (search.absolute) {
      for (size_t i = 0; i < n; ++i) given.at[i] = abs(values.at[i]);
    } else {
      F squares{};
      for (size_t i = 0; i < n; ++i) squares = squares + values.at[i] * values.at[i];
      const F rms = sqrt(squares / all(static_cast<float>(n)));
      for (size_t i = 0; i < n; ++i) given.at[i] = rms + abs(values.at[i]);
    }
    asymmetric_columns(values, given, n, search, fits + group, count);
  });
}

// `weights` null: x^2.
void read_weights(const float* weights, const Columns& values, size_t n, size_t count, Columns& given) {
  if (weights != nullptr) return given.read(weights, n, count);
  for (size_t i = 0; i < n; ++i) given.at[i] = values.at[i] * values.at[i];
}

void symmetric(const float* x, const float* weights, size_t n, size_t groups, int code_max, SymmetricFit* fits) {
  const auto levels = static_cast<float>(code_max);
  each_batch(groups, [&](size_t group, size_t count) {
    Columns values, given, weighted;  // weighted: weight * value
    values.read(x + group * n, n, count);
    read_weights(weights == nullptr ? nullptr : weights + group * n, values, n, count, given);
    for (size_t i = 0; i < n; ++i) weighted.at[i] = given.at[i] * values.at[i];
    const Extremes found = extremes(values, n);
    F scale{}, best{}, best_inverse{};
    for (int step = -10; step <= 9; ++step) {
      // The plain scale first, which is taken without a comparison.
      const bool first = step == -10;
      if (step == 0) continue;
      const F inverse = all(-(levels + 0.1f * static_cast<float>(first ? 0 : step))) / found.extreme;
      F sum_xl{}, sum_l2{};
      for (size_t i = 0; i < n; ++i) {
        const F code = rounded(inverse * values.at[i], -code_max, code_max - 1);
        sum_xl = sum_xl + weighted.at[i] * code;
        sum_l2 = sum_l2 + given.at[i] * code * code;
      }
      if (first) {
        scale = select(sum_l2 != F{}, sum_xl / sum_l2, F{});
        best = scale * sum_xl;
        best_inverse = inverse;
        continue;
      }
      const M better = (F{} < sum_l2) & (best * sum_l2 < sum_xl * sum_xl);
      scale = select(better, sum_xl / sum_l2, scale);
      best = select(better, scale * sum_xl, best);
      best_inverse = select(better, inverse, best_inverse);
    }
    const M zero = found.amax < all(kGroupLeast);
    float scales[kLanes], inverses[kLanes];
    store(scales, select(zero, F{}, scale));
    store(inverses, select(zero, F{}, best_inverse));
    for (size_t lane = 0; lane < count; ++lane) fits[group + lane] = {scales[lane], inverses[lane]};
  });
}

void refined(const float* x, size_t groups, float* scales, uint8_t* codes) {
  constexpr size_t kValues = 16;
  constexpr int kMax = 4;
  each_batch(groups, [&](size_t group, size_t count) {
    Columns values, weights, weighted, code;
    values.read(x + group * kValues, kValues, count);
    const Extremes found = extremes(values, kValues);
    const F inverse = all(-static_cast<float>(kMax)) / found.extreme;
    F sum_xl{}, sum_l2{};
    for (size_t i = 0; i < kValues; ++i) {
      weights.at[i] = values.at[i] * values.at[i];
      weighted.at[i] = weights.at[i] * values.at[i];
      code.at[i] = rounded(inverse * values.at[i], -kMax, kMax - 1);
      sum_xl = sum_xl + weighted.at[i] * code.at[i];
      sum_l2 = sum_l2 + weights.at[i] * code.at[i] * code.at[i];
    }
    // A group that a sweep does not change stays as it is in all later ones.
    bool changed = true;
    for (int sweep = 0; sweep < 5 && changed; ++sweep) {
      changed = false;
      for (size_t i = 0; i < kValues; ++i) {
        const F old = code.at[i];
        F without_xl = sum_xl - weighted.at[i] * old;
        F without_l2 = sum_l2 - weights.at[i] * old * old;
        const F now = rounded(values.at[i] * without_l2 / without_xl, -kMax, kMax - 1);
        const M worth = (F{} < without_xl) & (now != old);
        without_xl = without_xl + weighted.at[i] * now;
        without_l2 = without_l2 + weights.at[i] * now * now;
        const M better = worth & (F{} < without_l2) & (sum_xl * sum_xl * without_l2 < without_xl * without_xl * sum_l2);
        code.at[i] = select(better, now, old);
        sum_xl = select(better, without_xl, sum_xl);
        sum_l2 = select(better, without_l2, sum_l2);
        changed |= any(better);
      }
    }
    const M zero = found.amax < all(kGroupLeast);
    float found_scales[kLanes];
    store(found_scales, select(zero, F{}, select(F{} < sum_l2, sum_xl / sum_l2, F{})));
    for (size_t lane = 0; lane < count; ++lane) scales[group + lane] = found_scales[lane];
    for (size_t i = 0; i < kValues; ++i) {
      float shifted[kLanes];
      store(shifted, select(zero, F{}, code.at[i] + all(static_cast<float>(kMax))));
      for (size_t lane = 0; lane < count; ++lane) {
        codes[(group + lane) * kValues + i] = static_cast<uint8_t>(static_cast<int>(shifted[lane]));
      }
    }
  });
}

// Thresholds between neighbours of the grid, and the steps from one to the next; ties go up.
constexpr float kGridFirst = -127;
constexpr float kGridStep[15] = {23, 21, 18, 16, 14, 13, 12, 11, 12, 12, 13, 15, 16, 20, 24};
constexpr float kGridBound[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                  7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};

BATON_INLINE F on_grid(const F& x) {
  F value = all(kGridFirst);
  for (int i = 0; i < 15; ++i) value = select(x < all(kGridBound[i]), value, value + all(kGridStep[i]));
  return value;
}

void iq4(const float* x, const float* weights, size_t groups, float* scales) {
  constexpr size_t kValues = 32;
  constexpr int kTries = 7;
  each_batch(groups, [&](size_t group, size_t count) {
    Columns values, given;
    values.read(x + group * kValues, kValues, count);
    read_weights(weights == nullptr ? nullptr : weights + group * kValues, values, kValues, count, given);
    const Extremes found = extremes(values, kValues);
    F scale{}, best{};
    for (int attempt = -kTries - 1; attempt <= kTries; ++attempt) {
      const bool first = attempt == -kTries - 1;
      const F inverse = first ? all(1.0f) / (found.extreme / all(-kGridFirst))
                              : all(static_cast<float>(attempt + static_cast<int>(kGridFirst))) / found.extreme;
      F sum_xq{}, sum_q2{};
      for (size_t i = 0; i < kValues; ++i) {
        const F value = on_grid(inverse * values.at[i]);
        const F weighted = given.at[i] * value;
        sum_xq = sum_xq + weighted * values.at[i];
        sum_q2 = sum_q2 + weighted * value;
      }
      if (first) {
        scale = select(F{} < sum_q2, sum_xq / sum_q2, F{});
        best = scale * sum_xq;
        continue;
      }
      const M better = (F{} < sum_q2) & (best * sum_q2 < sum_xq * sum_xq);
      scale = select(better, sum_xq / sum_q2, scale);
      best = select(better, scale * sum_xq, best);
    }
    float found_scales[kLanes];
    store(found_scales, select(found.amax < all(kGroupLeast), F{}, scale));
    for (size_t lane = 0; lane < count; ++lane) scales[group + lane] = found_scales[lane];
  });
}

void codes(const float* __restrict x, size_t count, float offset, float d, int low, int high, uint8_t* __restrict to) {
  for (size_t i = 0; i < count; ++i) {
    const float shifted = (x[i] + offset) / d + 12582912.0f;
    int32_t bits;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    int32_t code = (bits & 0x007fffff) - 0x00400000;
    code = code < low ? low : code;
    code = code > high ? high : code;
    to[i] = static_cast<uint8_t>(code - low);
  }
}

void iq4_codes(const float* __restrict x, size_t count, float inverse, uint8_t* __restrict to) {
  for (size_t i = 0; i < count; ++i) {
    const float value = inverse * x[i];
    int32_t code = 0;
    for (int step = 0; step < 15; ++step) code += !(value < kGridBound[step]);
    to[i] = static_cast<uint8_t>(code);
  }
}

constexpr size_t kBlock = 32;  // of the older formats

inline float absolute(float x) { return x < 0 ? -x : x; }
inline bool is_infinite(float x) { return absolute(x) > 3.402823466e+38f; }

void limits(const float* x, float* low, float* high) {
  float least = 3.402823466e+38f, most = -least;
  for (size_t i = 0; i < kBlock; ++i) {
    least = x[i] < least ? x[i] : least;
    most = x[i] > most ? x[i] : most;
  }
  *low = least;
  *high = most;
}

// The larger side of the two decides; only when they are as large the first value does.
float extreme(const float* x) {
  float low, high;
  limits(x, &low, &high);
  if (high > -low) return high;
  if (high < -low) return low;
  for (size_t i = 0; i < kBlock; ++i) {
    if (absolute(x[i]) == high && high != 0) return x[i];
  }
  return 0;
}

void truncated(const float* __restrict x, float low, float inverse, float bias, int code_max, uint8_t* __restrict to) {
  if (is_infinite(inverse)) {
    for (size_t i = 0; i < kBlock; ++i) to[i] = 0;
    return;
  }
  const auto top = static_cast<float>(code_max);
  for (size_t i = 0; i < kBlock; ++i) {
    float value = (x[i] - low) * inverse + bias;
    value = value > 0.0f ? value : 0.0f;  // NaN too
    value = value < top ? value : top;
    to[i] = static_cast<uint8_t>(static_cast<int32_t>(value));
  }
}

void rounded_away(const float* __restrict x, float inverse, int8_t* __restrict to) {
  if (is_infinite(inverse)) {
    for (size_t i = 0; i < kBlock; ++i) to[i] = 0;
    return;
  }
  for (size_t i = 0; i < kBlock; ++i) {
    float value = x[i] * inverse;
    value = value > -127.0f ? value : -127.0f;
    value = value < 127.0f ? value : 127.0f;
    // Just below a half: so the sum reaches the next integer from halves on, and not from the value below a half.
    const float toward = value < 0.0f ? -0.49999997f : 0.49999997f;
    to[i] = static_cast<int8_t>(static_cast<int32_t>(value + toward));
  }
}

void mxfp4_codes(const float* __restrict x, float d, uint8_t* __restrict to) {
  float best[kBlock];
  int32_t code[kBlock];
  for (size_t i = 0; i < kBlock; ++i) best[i] = absolute(0.0f * d - x[i]), code[i] = 0;
  for (int32_t next = 1; next < 16; ++next) {
    const float value = static_cast<float>(kTwiceE2M1[next]) * d;
    for (size_t i = 0; i < kBlock; ++i) {
      const float error = absolute(value - x[i]);
      code[i] = error < best[i] ? next : code[i];
      best[i] = error < best[i] ? error : best[i];
    }
  }
  for (size_t i = 0; i < kBlock; ++i) to[i] = static_cast<uint8_t>(code[i]);
}

constexpr Searches make_searches(const char* name) {
  return {name,      asymmetric, symmetric, refined,   iq4,          codes,
          iq4_codes, extreme,    limits,    truncated, rounded_away, mxfp4_codes};
}

}  // namespace
}  // namespace baton

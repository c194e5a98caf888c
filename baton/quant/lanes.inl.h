// Body of the searches; included by lanes_<set>.cc with BATON_LANES, the number of lanes, and BATON_LANES_NAME.
// Everything is in an unnamed namespace and uses no inline function of other headers: this code is compiled for one
// instruction set, and the linker must not take such a function from here for the rest of the program.
#include <stddef.h>
#include <stdint.h>

#include "baton/quant/coding.h"
#include "baton/quant/lanes.h"

namespace baton {
namespace {

constexpr size_t kLanes = BATON_LANES;
typedef float Floats __attribute__((vector_size(4 * BATON_LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * BATON_LANES)));

constexpr float kGroupLeast = 1e-15f;  // groups whose largest magnitude is below are stored as zeros

inline Floats all(float value) { return Floats{} + value; }
inline Ints all(int32_t value) { return Ints{} + value; }
inline Floats bits_as_floats(Ints bits) { return reinterpret_cast<Floats>(bits); }
inline Ints bits_as_ints(Floats values) { return reinterpret_cast<Ints>(values); }
inline Floats magnitude(Floats x) { return bits_as_floats(bits_as_ints(x) & 0x7fffffff); }
inline Floats square_root(Floats x) {
  Floats result{};
  for (size_t lane = 0; lane < kLanes; ++lane) result[lane] = __builtin_sqrtf(x[lane]);
  return result;
}
inline bool any(Ints mask) {
  int32_t found = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) found |= mask[lane];
  return found != 0;
}

// Round half to even for |x| <= 2^22, some number otherwise, into [low, high].
inline Floats rounded(Floats x, int low, int high) {
  Ints code = (bits_as_ints(x + 12582912.0f) & 0x007fffff) - 0x00400000;
  code = code < low ? all(low) : code;
  code = code > high ? all(high) : code;
  return __builtin_convertvector(code, Floats);
}

// kLanes groups of n values, value by value. Lanes beyond `count` repeat the last group.
struct Columns {
  Floats at[kGroupMax];

  void load(const float* groups, size_t n, size_t count) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float* group = groups + n * (lane < count ? lane : count - 1);
      for (size_t i = 0; i < n; ++i) reinterpret_cast<float*>(at + i)[lane] = group[i];
    }
  }
};

struct Extremes {
  Floats amax, extreme;  // the first value of the largest magnitude
};
inline Extremes extremes(const Columns& x, size_t n) {
  Extremes found{};
  for (size_t i = 0; i < n; ++i) {
    const Floats size = magnitude(x.at[i]);
    const Ints larger = size > found.amax;
    found.amax = larger ? size : found.amax;
    found.extreme = larger ? x.at[i] : found.extreme;
  }
  return found;
}

void asymmetric_columns(const Columns& x, const Columns& weights, size_t n, const AsymmetricSearch& search,
                        AsymmetricFit* fits, size_t count) {
  Floats low = x.at[0], high = x.at[0], sum_w = weights.at[0], sum_x = weights.at[0] * x.at[0];
  for (size_t i = 1; i < n; ++i) {
    low = x.at[i] < low ? x.at[i] : low;
    high = x.at[i] > high ? x.at[i] : high;
    sum_w += weights.at[i];
    sum_x += weights.at[i] * x.at[i];
  }
  low = low > 0.0f ? all(0.0f) : low;
  const Ints flat = high == low;
  const Floats flat_low = low;

  const int top = search.code_max;
  const auto levels = static_cast<float>(top);
  Floats inverse = levels / (high - low);
  Floats scale = 1.0f / inverse, best = all(0.0f), best_inverse = inverse, best_low = low;
  for (size_t i = 0; i < n; ++i) {
    const Floats difference = scale * rounded(inverse * (x.at[i] - low), 0, top) + low - x.at[i];
    best += weights.at[i] * (search.absolute ? magnitude(difference) : difference * difference);
  }
  Columns codes;
  for (int step = 0; step <= search.steps; ++step) {
    inverse = (search.start + search.delta * static_cast<float>(step) + levels) / (high - low);
    Floats sum_l = all(0.0f), sum_l2 = all(0.0f), sum_xl = all(0.0f);
    for (size_t i = 0; i < n; ++i) {
      const Floats code = rounded(inverse * (x.at[i] - low), 0, top);
      codes.at[i] = code;
      const Floats weighted = weights.at[i] * code;
      sum_l += weighted;
      sum_l2 += weighted * code;
      sum_xl += weighted * x.at[i];
    }
    const Floats determinant = sum_w * sum_l2 - sum_l * sum_l;
    Floats this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    Floats this_low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    const Ints positive = this_low > 0.0f;
    this_low = positive ? all(0.0f) : this_low;
    this_scale = positive ? sum_xl / sum_l2 : this_scale;
    Floats error = all(0.0f);
    if (search.absolute) {
      for (size_t i = 0; i < n; ++i) {
        error += weights.at[i] * magnitude(this_scale * codes.at[i] + this_low - x.at[i]);
      }
    } else {
      for (size_t i = 0; i < n; ++i) {
        const Floats difference = this_scale * codes.at[i] + this_low - x.at[i];
        error += weights.at[i] * (difference * difference);
      }
    }
    const Ints better = (determinant > 0.0f) & (error < best);
    best = better ? error : best;
    scale = better ? this_scale : scale;
    best_inverse = better ? inverse : best_inverse;
    best_low = better ? low : best_low;
    low = better ? this_low : low;  // later candidates quantise against it too
  }
  scale = flat ? all(0.0f) : scale;
  low = flat ? flat_low : low;
  best_inverse = flat ? all(0.0f) : best_inverse;
  for (size_t lane = 0; lane < count; ++lane) {
    fits[lane] = {scale[lane], -low[lane], best_inverse[lane], best_low[lane]};
  }
}

void asymmetric(const float* x, const float* weights, size_t n, size_t groups, const AsymmetricSearch& search,
                AsymmetricFit* fits) {
  Columns values, given;
  for (size_t group = 0; group < groups; group += kLanes) {
    const size_t count = groups - group < kLanes ? groups - group : kLanes;
    values.load(x + group * n, n, count);
    if (weights != nullptr) {
      given.load(weights + group * n, n, count);
    } else if (search.absolute) {
      for (size_t i = 0; i < n; ++i) given.at[i] = magnitude(values.at[i]);
    } else {
      Floats squares = all(0.0f);
      for (size_t i = 0; i < n; ++i) squares += values.at[i] * values.at[i];
      const Floats rms = square_root(squares / static_cast<float>(n));
      for (size_t i = 0; i < n; ++i) given.at[i] = rms + magnitude(values.at[i]);
    }
    asymmetric_columns(values, given, n, search, fits + group, count);
  }
}

void symmetric(const float* x, const float* weights, size_t n, size_t groups, int code_max, SymmetricFit* fits) {
  Columns values, given, weighted;  // weighted: weight * value
  const auto levels = static_cast<float>(code_max);
  for (size_t group = 0; group < groups; group += kLanes) {
    const size_t count = groups - group < kLanes ? groups - group : kLanes;
    values.load(x + group * n, n, count);
    if (weights != nullptr) given.load(weights + group * n, n, count);
    for (size_t i = 0; i < n; ++i) {
      if (weights == nullptr) given.at[i] = values.at[i] * values.at[i];
      weighted.at[i] = given.at[i] * values.at[i];
    }
    const Extremes found = extremes(values, n);
    const Ints zero = found.amax < kGroupLeast;
    Floats scale{}, best{}, best_inverse{};
    for (int step = -10; step <= 9; ++step) {
      // The plain scale first, which is taken without a comparison.
      const bool first = step == -10;
      if (step == 0) continue;
      const Floats inverse = -(levels + 0.1f * static_cast<float>(first ? 0 : step)) / found.extreme;
      Floats sum_xl = all(0.0f), sum_l2 = all(0.0f);
      for (size_t i = 0; i < n; ++i) {
        const Floats code = rounded(inverse * values.at[i], -code_max, code_max - 1);
        sum_xl += weighted.at[i] * code;
        sum_l2 += given.at[i] * code * code;
      }
      if (first) {
        scale = sum_l2 != 0.0f ? sum_xl / sum_l2 : all(0.0f);
        best = scale * sum_xl;
        best_inverse = inverse;
        continue;
      }
      const Ints better = (sum_l2 > 0.0f) & (sum_xl * sum_xl > best * sum_l2);
      scale = better ? sum_xl / sum_l2 : scale;
      best = better ? scale * sum_xl : best;
      best_inverse = better ? inverse : best_inverse;
    }
    scale = zero ? all(0.0f) : scale;
    best_inverse = zero ? all(0.0f) : best_inverse;
    for (size_t lane = 0; lane < count; ++lane) fits[group + lane] = {scale[lane], best_inverse[lane]};
  }
}

void refined(const float* x, size_t groups, float* scales, uint8_t* codes) {
  constexpr size_t kValues = 16;
  constexpr int kMax = 4;
  Columns values, weights, weighted, code;
  for (size_t group = 0; group < groups; group += kLanes) {
    const size_t count = groups - group < kLanes ? groups - group : kLanes;
    values.load(x + group * kValues, kValues, count);
    const Extremes found = extremes(values, kValues);
    const Floats inverse = -static_cast<float>(kMax) / found.extreme;
    Floats sum_xl = all(0.0f), sum_l2 = all(0.0f);
    for (size_t i = 0; i < kValues; ++i) {
      weights.at[i] = values.at[i] * values.at[i];
      weighted.at[i] = weights.at[i] * values.at[i];
      code.at[i] = rounded(inverse * values.at[i], -kMax, kMax - 1);
      sum_xl += weighted.at[i] * code.at[i];
      sum_l2 += weights.at[i] * code.at[i] * code.at[i];
    }
    // A group that a sweep does not change stays as it is in all later ones.
    for (int sweep = 0; sweep < 5; ++sweep) {
      Ints changed{};
      for (size_t i = 0; i < kValues; ++i) {
        const Floats old = code.at[i];
        Floats without_xl = sum_xl - weighted.at[i] * old;
        Floats without_l2 = sum_l2 - weights.at[i] * old * old;
        const Floats now = rounded(values.at[i] * without_l2 / without_xl, -kMax, kMax - 1);
        Ints better = (without_xl > 0.0f) & (now != old);
        without_xl += weighted.at[i] * now;
        without_l2 += weights.at[i] * now * now;
        better &= (without_l2 > 0.0f) & (without_xl * without_xl * sum_l2 > sum_xl * sum_xl * without_l2);
        code.at[i] = better ? now : old;
        sum_xl = better ? without_xl : sum_xl;
        sum_l2 = better ? without_l2 : sum_l2;
        changed |= better;
      }
      if (!any(changed)) break;
    }
    const Ints zero = found.amax < kGroupLeast;
    Floats scale = sum_l2 > 0.0f ? sum_xl / sum_l2 : all(0.0f);
    scale = zero ? all(0.0f) : scale;
    for (size_t lane = 0; lane < count; ++lane) scales[group + lane] = scale[lane];
    for (size_t lane = 0; lane < count; ++lane) {
      for (size_t i = 0; i < kValues; ++i) {
        const float shifted = zero[lane] != 0 ? 0.0f : reinterpret_cast<const float*>(code.at + i)[lane] + kMax;
        codes[(group + lane) * kValues + i] = static_cast<uint8_t>(static_cast<int>(shifted));
      }
    }
  }
}

// Thresholds between neighbours of the grid, and the steps from one to the next; ties go up.
constexpr float kGridFirst = -127;
constexpr float kGridStep[15] = {23, 21, 18, 16, 14, 13, 12, 11, 12, 12, 13, 15, 16, 20, 24};
constexpr float kGridBound[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                  7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};

inline Floats on_grid(Floats x) {
  Floats value = all(kGridFirst);
  for (int i = 0; i < 15; ++i) value = x < kGridBound[i] ? value : value + kGridStep[i];
  return value;
}

void iq4(const float* x, const float* weights, size_t groups, float* scales) {
  constexpr size_t kValues = 32;
  constexpr int kTries = 7;
  Columns values, given;
  for (size_t group = 0; group < groups; group += kLanes) {
    const size_t count = groups - group < kLanes ? groups - group : kLanes;
    values.load(x + group * kValues, kValues, count);
    if (weights != nullptr) {
      given.load(weights + group * kValues, kValues, count);
    } else {
      for (size_t i = 0; i < kValues; ++i) given.at[i] = values.at[i] * values.at[i];
    }
    const Extremes found = extremes(values, kValues);
    Floats scale{}, best{};
    for (int attempt = -kTries - 1; attempt <= kTries; ++attempt) {
      const bool first = attempt == -kTries - 1;
      const Floats inverse = first ? 1.0f / (-found.extreme / kGridFirst)
                                   : static_cast<float>(attempt + static_cast<int>(kGridFirst)) / found.extreme;
      Floats sum_xq = all(0.0f), sum_q2 = all(0.0f);
      for (size_t i = 0; i < kValues; ++i) {
        const Floats value = on_grid(inverse * values.at[i]);
        const Floats weighted = given.at[i] * value;
        sum_xq += weighted * values.at[i];
        sum_q2 += weighted * value;
      }
      if (first) {
        scale = sum_q2 > 0.0f ? sum_xq / sum_q2 : all(0.0f);
        best = scale * sum_xq;
        continue;
      }
      const Ints better = (sum_q2 > 0.0f) & (sum_xq * sum_xq > best * sum_q2);
      scale = better ? sum_xq / sum_q2 : scale;
      best = better ? scale * sum_xq : best;
    }
    scale = found.amax < kGroupLeast ? all(0.0f) : scale;
    for (size_t lane = 0; lane < count; ++lane) scales[group + lane] = scale[lane];
  }
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

}  // namespace

extern const Lanes BATON_LANES_TABLE;
const Lanes BATON_LANES_TABLE = {BATON_LANES_NAME, asymmetric, symmetric, refined,   iq4,          codes,
                                 iq4_codes,        extreme,    limits,    truncated, rounded_away, mxfp4_codes};

}  // namespace baton

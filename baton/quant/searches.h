// The quantizers' searches over many groups of values at once: each lane of a vector is one group, and a lane does its
// sums in the order of the values, in f32, without contraction. So every instruction set gives the bytes of ggml's
// scalar reference. Groups are contiguous: values, weights and codes are [groups][n].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace baton {

// Codes in [0, code_max], value ~ scale * code - minus_min.
struct AsymmetricSearch {
  int code_max;
  float start, delta;  // candidates: (start + delta * step + code_max) / range, step = 0 ... steps
  int steps;
  bool absolute;  // the weighted error is of magnitudes, not of squares
};
// How a candidate made codes: clamp(round(inverse * (x - low))); inverse is 0 when all codes are zero.
struct AsymmetricFit {
  float scale, minus_min;
  float inverse, low;
};
// Codes in [-code_max, code_max): clamp(round(inverse * x)); inverse is 0 for a group of zeros.
struct SymmetricFit {
  float scale;
  float inverse;
};

constexpr size_t kGroupMax = 32;  // n: 16 or 32

// One per instruction set.
struct Searches {
  std::string_view name;
  // `weights` null: root mean square of the group + |x|; with search.absolute: |x|.
  void (*asymmetric)(const float* x, const float* weights, size_t n, size_t groups, const AsymmetricSearch& search,
                     AsymmetricFit* fits);
  // `weights` null: x^2.
  void (*symmetric)(const float* x, const float* weights, size_t n, size_t groups, int code_max, SymmetricFit* fits);
  // Q3_K's: codes are changed one by one while that helps; groups of 16, codes in [0, 8), zero for a group of zeros.
  void (*refined)(const float* x, size_t groups, float* scales, uint8_t* codes);
  // IQ4's: groups of 32 on the non-linear grid. `weights` null: x^2.
  void (*iq4)(const float* x, const float* weights, size_t groups, float* scales);
  // codes = clamp(round((x + offset) / d), low, high) - low, of `count` values.
  void (*codes)(const float* x, size_t count, float offset, float d, int low, int high, uint8_t* codes);
  // codes = nearest of the grid to inverse * x.
  void (*iq4_codes)(const float* x, size_t count, float inverse, uint8_t* codes);
  // The older formats, blocks of 32 values.
  float (*extreme)(const float* x);                         // the first value of the largest magnitude
  void (*limits)(const float* x, float* low, float* high);  // smallest and largest
  // codes = min(trunc((x - low) * inverse + bias), code_max); zeros when inverse is infinite.
  void (*truncated)(const float* x, float low, float inverse, float bias, int code_max, uint8_t* codes);
  // codes = round half away(x * inverse), of magnitudes up to 127; zeros when inverse is infinite.
  void (*rounded_away)(const float* x, float inverse, int8_t* codes);
  // codes = nearest of the E2M1 grid times d / 2, the lower code of two that are as near.
  void (*mxfp4_codes)(const float* x, float d, uint8_t* codes);
};

// The fastest that this processor can run.
const Searches& searches();
// All that this processor can run, for tests.
std::span<const Searches* const> all_searches();

}  // namespace baton

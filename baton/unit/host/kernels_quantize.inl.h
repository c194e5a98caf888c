// Quantising activations to planes of int8.
#pragma once

#include "baton/unit/host/kernels_float.inl.h"

namespace baton::host {
namespace {

// A block keeps its low plane when its largest value is above this many times the row's root mean square: such an
// outlier leaves the other values of its block a few steps of one plane. docs/cpu.md has what other limits are worth.
// (A plane for the outliers alone, in steps that suit the rest of the block, was tried: at equal cost it is no better.)
constexpr float kOutlier = 3.0f;

int64_t quantize_blocks(const float* x, int64_t n, bool precise, ActivationBlock* blocks, LowPlane* lows) {
  const float outlier = (precise ? 0 : kOutlier) * __builtin_sqrtf(sum_of_squares(x, n) / static_cast<float>(n));
  int32_t low_count = 0;
  for (int64_t b = 0; b < n / kBlock; ++b, x += kBlock) {
    ActivationBlock& to = blocks[b];
    LowPlane& rest = lows[low_count];
    const F values[2] = {load(x), load(x + kLanes)};
    const float highest = highest_of(max(abs(values[0]), abs(values[1])));
    // Infinity and NaN times 0 are NaN.
    const bool finite = sum_of((values[0] + values[1]) * F{}) == 0.0f && highest <= 1e38f;
    const bool low = highest > outlier;
    const float steps = low ? 127.0f * 128 : 127.0f;
    const F inverse = all(finite && highest > 1e-30f ? steps / highest : 0.0f);
    to.scale = finite ? highest / 127.0f : __builtin_nanf("");
    int32_t high_sum[2], low_sum[2] = {0, 0};
    for (int half = 0; half < 2; ++half) {
      I q = to_int(values[half] * inverse);
      if (low) {
        const I upper = (q + all(64)) >> 7;
        const I remainder = q - (upper << 7);
        store_narrow(rest.low + kLanes * half, remainder);
        low_sum[half] = sum_of(remainder);
        rest.bias[half] = -128 * low_sum[half];
        q = upper;
      }
      store_narrow(to.high + kLanes * half, q);
      high_sum[half] = sum_of(q);
      to.high_bias[half] = -128 * high_sum[half];
      to.scaled_sum[half] =
          to.scale * (static_cast<float>(high_sum[half]) + static_cast<float>(low_sum[half]) * (1.0f / 128));
    }
    to.high_bias[2] = to.high_bias[0] + to.high_bias[1];
    to.scaled_sum[2] = to.scaled_sum[0] + to.scaled_sum[1];
    to.low = -1;
    if (low) {
      rest.bias[2] = rest.bias[0] + rest.bias[1];
      rest.scale = to.scale * (1.0f / 128);
      rest.at = static_cast<int32_t>(b);
      to.low = low_count++;
    }
  }
  return low_count;
}

}  // namespace
}  // namespace baton::host

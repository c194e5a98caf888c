// Rows of x as integers, for products with codes.
#pragma once

#include "baton/unit/cuda/kernels/device.cuh"

namespace baton::cuda {

// x as codes multiply it: for each group of 32 values two planes of 8-bit integers, x = step * (256 high + low), in
// chunks of 16 bytes by chunk and group (high, high, low, low), and the step with the sums of both halves in it.
struct IntegerRow {
  uint4* chunks;  // [4][groups]
  float4* facts;  // [groups]: step, sum of the first half, of the second
};
__device__ __forceinline__ uint32_t integer_row_bytes(int groups) { return static_cast<uint32_t>(groups) * 80; }
__device__ __forceinline__ IntegerRow integer_row(unsigned char* at, int groups) {
  return {reinterpret_cast<uint4*>(at), reinterpret_cast<float4*>(at + groups * 64)};
}

// A warp rounds a group, a lane each value.
__device__ __forceinline__ void round_group(const float* x, const IntegerRow& to, int group, int groups) {
  const float value = x[lane()];
  const bool bad = __any_sync(kAll, !isfinite(value));
  const float largest = warp_max(fabsf(value));
  const float step = largest / 32512.0f;
  const int whole = step > 0 ? __float2int_rn(value / step) : 0;
  const int high = (whole + 128) >> 8, low = whole - 256 * high;
  int8_t* const bytes = reinterpret_cast<int8_t*>(to.chunks);
  const int chunk = static_cast<int>(lane()) >> 4, byte = static_cast<int>(lane()) & 15;
  bytes[(chunk * groups + group) * 16 + byte] = static_cast<int8_t>(high);
  bytes[((2 + chunk) * groups + group) * 16 + byte] = static_cast<int8_t>(low);
  float sum = static_cast<float>(whole);
#pragma unroll
  for (int i = 8; i > 0; i >>= 1) sum += __shfl_xor_sync(kAll, sum, i);
  const float other = __shfl_sync(kAll, sum, 16);
  if (lane() == 0) to.facts[group] = {bad ? __int_as_float(0x7fffffff) : step, sum, other, 0.0f};
}

// The same by eight lanes that have four values each, from i on of the row; a warp calls it together.
__device__ __forceinline__ void round_fours(const float4& four, const IntegerRow& to, int i, int groups) {
  const float values[4] = {four.x, four.y, four.z, four.w};
  float largest = 0;
  bool bad = false;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    largest = fmaxf(largest, fabsf(values[k]));
    bad = bad || !isfinite(values[k]);
  }
#pragma unroll
  for (int o = 4; o > 0; o /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, o));
  const uint32_t eight = 0xffu << (lane() & 24u);
  bad = (__ballot_sync(kAll, bad) & eight) != 0;
  const float step = largest * (1.0f / 32512.0f), by = step > 0 ? quotient(1.0f, step) : 0.0f;
  uint32_t highs = 0, lows = 0;
  int sum = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int whole = bad ? 0 : max(-32512, min(32512, __float2int_rn(values[k] * by)));
    const int high = (whole + 128) >> 8;
    sum += whole;
    highs |= static_cast<uint32_t>(high & 255) << (8 * k);
    lows |= static_cast<uint32_t>((whole - 256 * high) & 255) << (8 * k);
  }
  const int group = i / kGroup, chunk = i / 16 % 2, word = i / 4 % 4;
  sum += __shfl_xor_sync(kAll, sum, 1);
  sum += __shfl_xor_sync(kAll, sum, 2);
  const int other = __shfl_xor_sync(kAll, sum, 4);
  if (group >= groups) return;
  uint32_t* const words = reinterpret_cast<uint32_t*>(to.chunks);
  words[(chunk * groups + group) * 4 + word] = highs;
  words[((2 + chunk) * groups + group) * 4 + word] = lows;
  if (lane() % 8 == 0)
    to.facts[group] = {bad ? __int_as_float(0x7fffffff) : step, static_cast<float>(sum), static_cast<float>(other), 0};
}

}  // namespace baton::cuda

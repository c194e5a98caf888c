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

}  // namespace baton::cuda

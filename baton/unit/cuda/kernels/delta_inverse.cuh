// The inverse of I + L, L [64][64] below its diagonal, by a block of 256 threads in shared memory.
#pragma once

#include "baton/unit/cuda/kernels/device.cuh"

namespace baton::cuda {

// f32 of a matrix [64][64]: fours of a row lie at multiples of 16 bytes.
inline constexpr int kSquarePitch = 68;
using Square = float[64][kSquarePitch];

__device__ __forceinline__ void add_four(float4& sum, float by, const float* from) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  sum.x = fmaf(by, four.x, sum.x), sum.y = fmaf(by, four.y, sum.y);
  sum.z = fmaf(by, four.z, sum.z), sum.w = fmaf(by, four.w, sum.w);
}

// x[0] is the column's value of row r, those behind it what later ones are so far.
__device__ __forceinline__ void invert_column(const Square& lower, Square& inverse, int first, int column) {
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll 1
  for (int r = 0; r < 16; ++r) {
    const float value = x[0];
    inverse[first + r][first + column] = value;
#pragma unroll
    for (int i = 1; i < 16; ++i) x[i - 1] = r + i < 16 ? fmaf(-lower[first + r + i][first + r], value, x[i]) : 0.0f;
  }
}

// The block below that at `left` and before that at left + kSize, whose inverses are there: kSize * kSize / 4
// threads, of which each has four of a row.
template <int kSize>
__device__ __forceinline__ void invert_below(Square& lower, Square& inverse, int left, int thread, bool is) {
  const int r = thread / (kSize / 4), c = thread % (kSize / 4) * 4, below = left + kSize;
  float4 sum = make_float4(0, 0, 0, 0);
  if (is) {
#pragma unroll 8
    for (int k = 0; k < kSize; ++k) add_four(sum, lower[below + r][left + k], &inverse[left + k][left + c]);
    *reinterpret_cast<float4*>(&lower[left + r][below + c]) = sum;
  }
  __syncthreads();
  if (is) {
    sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int k = 0; k < kSize; ++k) add_four(sum, inverse[below + r][below + k], &lower[left + k][below + c]);
    *reinterpret_cast<float4*>(&inverse[below + r][left + c]) = make_float4(-sum.x, -sum.y, -sum.z, -sum.w);
    *reinterpret_cast<float4*>(&inverse[left + r][below + c]) = make_float4(0, 0, 0, 0);
  }
  __syncthreads();
}

// Above the diagonal of L are zeros, and in their place products afterwards. Blocks of 16 on the diagonal column by
// column, then the two between each two of them, then the one of 32.
__device__ __forceinline__ void invert_lower(Square& lower, Square& inverse) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 64) invert_column(lower, inverse, thread / 16 * 16, thread % 16);
  __syncthreads();
  invert_below<16>(lower, inverse, thread / 64 * 32, thread % 64, thread < 128);
  invert_below<32>(lower, inverse, 0, thread, true);
}

}  // namespace baton::cuda

// Rows of x of a product in a block's shared memory.
#pragma once

#include "baton/unit/cuda/kernels/integer_rows.cuh"
#include "baton/unit/cuda/kernels/prologue.cuh"

namespace baton::cuda {

// Values of rows of x in a block's memory, as the matrices want them. All of an instruction want the same: codes, f32
// or 16-bit values, whose lanes read 8 values as two words of 4 that lie 128 apart.
struct Staged {
  unsigned char* xs;
  int pitch, stride, groups;
  bool halves, codes;

  __device__ Staged(const Matrix& matrix, unsigned char* at)
      : xs(at),
        pitch(matrix.pitch),
        stride((pitch + 255) / 256 * 256),
        groups(pitch / kGroup),
        halves(matrix.form == Form::kF16 || matrix.form == Form::kBF16),
        codes(matrix.form == Form::kCodes) {}

  __device__ __forceinline__ int place(int i) const {
    return halves ? i / 256 * 256 + i % 8 / 4 * 128 + i % 256 / 8 * 4 + i % 4 : i;
  }
  __device__ __forceinline__ float* floats(int r) const { return reinterpret_cast<float*>(xs) + r * stride; }
  __device__ __forceinline__ IntegerRow integers(int r) const {
    return integer_row(xs + r * integer_row_bytes(groups), groups);
  }
  // Values of a row, with zeros behind it.
  __device__ __forceinline__ int end() const { return codes ? pitch : stride; }
  // Four of them from i on, 128 by a warp; none from end() on.
  __device__ __forceinline__ void put(int r, int i, const float4& four) const {
    if (codes) return round_fours(four, integers(r), i, groups);
    if (i < stride) *reinterpret_cast<float4*>(floats(r) + place(i)) = four;
  }
};

// Rows of x, and what their products are multiplied with: `factors`.
template <int kRows>
__device__ __forceinline__ void stage_rows(const Instruction& in, int row, int rows, const Staged& to, float* factors,
                                           float* scratch) {
  for (int r = 0; r < kRows; ++r) {
    if (r > 0) __syncthreads();  // what there was is read
    if (r < rows) {
      if (prologue_fours(in, row + r, to.end(), scratch, factors + r,
                         [&](int i, const float4& four) { to.put(r, i, four); }))
        continue;
      float* const floats =
          to.codes ? reinterpret_cast<float*>(to.xs + kRows * integer_row_bytes(to.groups)) : to.floats(r);
      prologue_row(in, row + r, scratch, [&](int i, float value) { floats[to.place(i)] = value; });
      for (int i = in.x_width + static_cast<int>(threadIdx.x); i < to.stride; i += kThreads) floats[to.place(i)] = 0;
      if (threadIdx.x == 0) factors[r] = 1;
      if (!to.codes) continue;
      __syncthreads();
      for (int group = static_cast<int>(warp()); group < to.groups; group += kWarps)
        round_group(floats + group * kGroup, to.integers(r), group, to.groups);
      continue;
    }
    for (int i = 4 * static_cast<int>(threadIdx.x); i - 4 * static_cast<int>(lane()) < to.end(); i += 4 * kThreads)
      to.put(r, i, make_float4(0, 0, 0, 0));
  }
  __syncthreads();
}

}  // namespace baton::cuda

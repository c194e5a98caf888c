// Products of many rows on tensor cores: what is common to the kernels of tile_plain.cuh and tile_wide.cuh. One product
// of a row is summed over K in the same order whatever the rows beside it and the size of the tile.
#pragma once

#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/kernels/tile_ptx.cuh"
#include "baton/unit/cuda/tile_layout.h"

namespace baton::cuda {

__device__ __forceinline__ int32_t tile_rows(const Instruction& in, const Pass& pass) {
  return in.wanted_only ? pass.rows_out : pass.rows;
}

// Rows of bf16 of a matrix: its own, or what baton_unpack made of it in scratch memory.
__device__ __forceinline__ const unsigned char* tile_weights(const Instruction& in, int32_t matrix) {
  if (in.matrix[matrix].form == Form::kBF16) return at<const unsigned char>(in.matrix[matrix].values);
  return at<const unsigned char>(in.scratch + unpacked_offset(in, matrix));
}

__device__ __forceinline__ float tile_gate(const Instruction& in, float x) {
  if (in.epilogue == Epilogue::kSwiGlu) return silu(x);
  if (in.op.gelu == Gelu::kErf) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

// Two neighbours of a row, n even; what lies behind the matrix's rows is zero in bf16 and left alone in f32.
__device__ __forceinline__ void put_two(const Instruction& in, int32_t matrix, int64_t row, int32_t n, float a, float b) {
  const int32_t width = in.matrix[matrix].rows, pitch = pitch_of(width);
  if (in.outs[matrix] != 0 && n < width) {
    float* const to = at<float>(in.outs[matrix]) + row * pitch + n;
    if (n + 1 < width) {
      *reinterpret_cast<float2*>(to) = {a, b};
    } else {
      *to = a;
    }
  }
  if (in.to_bf16 && matrix == 0 && n < pitch) {
    const auto pair = __floats2bfloat162_rn(n < width ? a : 0.0f, n + 1 < width ? b : 0.0f);
    *reinterpret_cast<__nv_bfloat162*>(at<__nv_bfloat16>(in.out) + row * pitch + n) = pair;
  }
}

// Where a thread's values are: rows `row` and row + 8 of x, columns from `column` of the tile on, in groups of 8.
struct TilePart {
  int32_t rows;  // of the pass
  int32_t row;
  int32_t tile, width, share, column;
};

// sums += z. Reads are apart from writes: z may be what is written.
template <int kGroups>
__device__ __forceinline__ void add_rows(const Instruction& in, const TilePart& part, float* sums) {
  constexpr int kAtOnce = kGroups >= 32 ? 4 : kGroups >= 8 ? 8 : kGroups;
  const int32_t width = in.matrix[0].rows, pitch = pitch_of(width);
  const int32_t n0 = part.tile * part.width + part.column + value_column(lane(), 0);
#pragma unroll
  for (int g = 0; g < kGroups; g += kAtOnce) {
    float2 z[kAtOnce][2];
#pragma unroll
    for (int i = 0; i < 2 * kAtOnce; ++i) {
      const int32_t n = n0 + 8 * (g + i / 2), row = part.row + 8 * (i & 1);
      z[i / 2][i & 1] = {0.0f, 0.0f};
      if (n < width && row < part.rows)
        z[i / 2][i & 1] = *reinterpret_cast<const float2*>(at<float>(in.z) + int64_t{row} * pitch + n);
    }
#pragma unroll
    for (int i = 0; i < 2 * kAtOnce; ++i) {
      sums[4 * (g + i / 2) + 2 * (i & 1)] += z[i / 2][i & 1].x;
      sums[4 * (g + i / 2) + 2 * (i & 1) + 1] += z[i / 2][i & 1].y;
    }
  }
}

// The epilogue of a thread's kGroups * 4 values, laid out as value_row and value_column say.
template <int kGroups>
__device__ __forceinline__ void finish_rows(const Instruction& in, const TilePart& part, float* sums) {
  if (in.epilogue == Epilogue::kAdd) add_rows<kGroups>(in, part, sums);
  const bool paired = is_paired(in);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (paired && g >= kGroups / 2) break;
    TileColumn column = tile_column(in, part.tile, part.width, part.share, part.column + 8 * g);
    if (column.matrix < 0) break;
    column.n += value_column(lane(), 0);
    if (paired) {
#pragma unroll
      for (int v = 0; v < 4; ++v) sums[4 * g + v] = tile_gate(in, sums[4 * g + v]) * sums[4 * (g + kGroups / 2) + v];
    }
    if (part.row < part.rows) put_two(in, column.matrix, part.row, column.n, sums[4 * g], sums[4 * g + 1]);
    if (part.row + 8 < part.rows) put_two(in, column.matrix, part.row + 8, column.n, sums[4 * g + 2], sums[4 * g + 3]);
  }
}

}  // namespace baton::cuda

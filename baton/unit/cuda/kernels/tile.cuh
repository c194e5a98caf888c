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

// Two neighbours of a row, the first at an even place; `left` places are there from it on.
__device__ __forceinline__ void store_two(float* to, int32_t left, float a, float b) {
  if (left >= 2) *reinterpret_cast<float2*>(to) = {a, b};
  if (left == 1) *to = a;
}
// In bf16, where zeros are behind what is there.
__device__ __forceinline__ void store_two(__nv_bfloat16* to, int32_t left, float a, float b) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(left >= 1 ? a : 0.0f, left >= 2 ? b : 0.0f);
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
  static_assert(kGroups % kAtOnce == 0);
  const int32_t width = in.matrix[0].rows, pitch = pitch_of(width);
  const int32_t n = part.tile * part.width + part.column + static_cast<int32_t>(value_column(lane(), 0));
  const float* const z = at<const float>(in.z) + int64_t{part.row} * pitch + n;
#pragma unroll
  for (int g = 0; g < kGroups; g += kAtOnce) {
    float2 more[2 * kAtOnce];
#pragma unroll
    for (int i = 0; i < 2 * kAtOnce; ++i) {
      more[i] = {0.0f, 0.0f};
      const int column = 8 * (g + i / 2), down = 8 * (i & 1);
      if (n + column < width && part.row + down < part.rows)  // behind a row of z there are zeros
        more[i] = *reinterpret_cast<const float2*>(z + down * pitch + column);
    }
#pragma unroll
    for (int i = 0; i < 2 * kAtOnce; ++i) {
      const int at = 4 * (g + i / 2) + 2 * (i & 1);
      sums[at] += more[i].x, sums[at + 1] += more[i].y;
    }
  }
}

// sums = act(first half) * second half
template <int kGroups>
__device__ __forceinline__ void gate_rows(const Instruction& in, float* sums) {
  constexpr int kHalf = 2 * kGroups;
  if (in.epilogue == Epilogue::kSwiGlu) {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) sums[i] = __fdividef(sums[i], 1.0f + __expf(-sums[i])) * sums[i + kHalf];
  } else if (in.op.gelu == Gelu::kErf) {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) sums[i] = 0.5f * sums[i] * (1.0f + erff(sums[i] * 0.70710678f)) * sums[i + kHalf];
  } else {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float x = sums[i];
      sums[i] = 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x))) * sums[i + kHalf];
    }
  }
}

template <int kGroups, class T>
__device__ __forceinline__ void store_rows(T* to, int32_t pitch, int32_t left, int32_t rows_left, const float* sums) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (rows_left > 0) store_two(to + 8 * g, left - 8 * g, sums[4 * g], sums[4 * g + 1]);
    if (rows_left > 8) store_two(to + 8 * pitch + 8 * g, left - 8 * g, sums[4 * g + 2], sums[4 * g + 3]);
  }
}

// kGroups neighbours that are of one matrix: 64 columns begin at a multiple of 64. kBf16Too: to `out`, as well.
template <int kGroups, bool kBf16Too = true>
__device__ __forceinline__ void store_groups(const Instruction& in, const TilePart& part, int32_t first,
                                             const float* sums) {
  const TileColumn column = tile_column(in, part.tile, part.width, part.share, part.column + 8 * first);
  if (column.matrix < 0) return;
  const int32_t width = in.matrix[column.matrix].rows, pitch = pitch_of(width);
  const int32_t n = column.n + static_cast<int32_t>(value_column(lane(), 0)), rows_left = part.rows - part.row;
  const int64_t to = int64_t{part.row} * pitch + n;
  const Address out = in.outs[column.matrix];
  if (out != 0) store_rows<kGroups>(at<float>(out) + to, pitch, width - n, rows_left, sums);
  if (kBf16Too && in.to_bf16 && column.matrix == 0)
    store_rows<kGroups>(at<__nv_bfloat16>(in.out) + to, pitch, width - n, rows_left, sums);
}

// The epilogue of a thread's kGroups * 4 values, laid out as value_row and value_column say.
template <int kGroups>
__device__ __forceinline__ void finish_rows(const Instruction& in, const TilePart& part, float* sums) {
  if (is_paired(in)) {
    constexpr int kHalf = kGroups / 2, kEach = kHalf % 8 == 0 ? 8 : kHalf % 4 == 0 ? 4 : kHalf;
    gate_rows<kGroups>(in, sums);
#pragma unroll
    for (int g = 0; g < kHalf; g += kEach) store_groups<kEach>(in, part, g, sums + 4 * g);
    return;
  }
  constexpr int kEach = kGroups < 8 ? kGroups : 8;
  if (in.epilogue == Epilogue::kAdd) add_rows<kGroups>(in, part, sums);
#pragma unroll
  for (int g = 0; g < kGroups; g += kEach) store_groups<kEach>(in, part, g, sums + 4 * g);
}

}  // namespace baton::cuda

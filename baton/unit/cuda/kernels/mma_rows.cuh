// Rows of x as products on tensor cores take them: each value as the sum of two bf16, which is right to 16 bits.
//
// Columns come in spans of 128, a span in quarters, of which a lane of mma has 8 columns: of bf16 matrices quarter j,
// lane 4n + t has columns 32j + 8t..., else 32t + 8j..., so that there a lane has a group of 32 to itself. So many
// spans are in shared memory at a time, [span][quarter][tile of 8 rows][high, low][32 lanes] of 8 values; every other
// quarter's lanes are exchanged in fours, for the banks' sake.
//
// What becomes of a value must not depend on how many rows there are, and so not on which of these functions' copies it
// goes through: products that are added to something are made by name (fmaf, __fmul_rn).
#pragma once

#include "baton/unit/cuda/kernels/prologue.cuh"
#include "baton/unit/cuda/kernels/tensor.cuh"
#include "baton/unit/cuda/mma_layout.h"

namespace baton::cuda {

inline constexpr int kMmaTiles = kPlaneTiles;  // tiles of rows at a time, at most
inline constexpr int kSpanBytes = 4 * 1024;    // of a tile
inline constexpr int kSquareParts = 16;

// Before the planes.
struct RowFacts {
  float squares[8 * kMmaTiles][kSquareParts];  // of kRms: of every 16th span
  float factors[8 * kMmaTiles];                // what a row's products are multiplied with
  float2 norms[8 * kMmaTiles][kGroupsMax];     // mean and factor of each group, where they are needed before
};
static_assert(sizeof(RowFacts) % 128 == 0);

__device__ __forceinline__ int lane_slot(int lane, int quarter) { return lane ^ ((quarter & 1) << 2); }

// Four values at a time, of which each is read once.
__device__ __forceinline__ bool by_rows(const Instruction& in) {
  return in.prologue == Prologue::kGate ? in.op.width <= 1 : !norms_before(in);
}

// Up to 8 * kTiles rows of a product, from `row` on; `stage` spans at a time, a power of two, at most 16.
template <int kTiles, bool kGroups>
struct MmaRows {
  const Instruction& in;
  int row, rows, spans, stage;
  RowFacts& facts;
  unsigned char* planes;
  int from = 0;  // rows before are not put

  // A lane's 8 columns of a row of the first tile; the second tile's are 64 places behind, low parts 32.
  __device__ __forceinline__ const uint4* quarter(int span, int quarter) const {
    return reinterpret_cast<const uint4*>(planes) + ((span & (stage - 1)) * 4 + quarter) * kTiles * 64 +
           lane_slot(static_cast<int>(lane()), quarter);
  }

  // Followed by a meeting of the block.
  __device__ void begin() const {
    for (int i = from * kSquareParts + static_cast<int>(threadIdx.x); i < rows * kSquareParts; i += kThreads)
      facts.squares[i / kSquareParts][i % kSquareParts] = 0;
    if (!norms_before(in)) return;
    const int groups = in.x_width / in.op.width;
    for (int i = from * groups + static_cast<int>(warp()); i < rows * groups; i += kThreads / 32) {
      const int r = i / groups, group = i % groups;
      const float* const x = row_of(in.x, in.x_width, row + r) + group * in.op.width;
      const float2 norm = norm_of(x, in.op.width, in.op.eps, in.prologue == Prologue::kLayer, static_cast<int>(lane()),
                                  32, [](float part) { return warp_sum(part); });
      if (lane() == 0) facts.norms[r][group] = norm;
    }
  }

  // Once, behind the last span and a meeting; followed by a meeting.
  __device__ void finish() const {
    const int r = from + static_cast<int>(threadIdx.x);
    if (r >= rows) return;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kSquareParts; ++i) sum += facts.squares[r][i];
    facts.factors[r] = scales_products(in) ? rsqrtf(sum / static_cast<float>(in.x_width) + in.op.eps) : 1.0f;
  }

  // Spans from `first` on, a multiple of `stage`. A warp has one of them, and some rows.
  __device__ void put(int first) const {
    const int own = static_cast<int>(warp()) & (stage - 1), span = first + own, step = kThreads / 32 / stage;
    if (span >= spans) return;
    const int column = span * kMmaSpan + static_cast<int>(lane()) * 4;
    const bool common = by_rows(in);
    const float4 scale = common ? scale_of(column) : make_float4(0, 0, 0, 0);
#pragma unroll 1
    for (int r = from + static_cast<int>(warp()) / stage; r < rows; r += (common ? kAtOnce : 1) * step) {
      if (common) {
        put_rows(r, step, own, column, scale, &facts.squares[0][span % kSquareParts]);
      } else {
        put_four(own, r, seldom(r, column));
      }
    }
  }

 private:
  static constexpr int kAtOnce = 4;  // rows of a warp whose values are on their way

  __device__ float4 scale_of(int column) const {
    float to[4] = {0, 0, 0, 0};
    const bool whole = scales_products(in);
    if (whole || norms_spans(in)) {
      const int count = whole ? in.x_width : kMmaSpan;
      const float* const from = at<const float>(in.vectors[0]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i = whole ? column + k : (column + k) % kMmaSpan;
        if (i < count) to[k] = from[i];
      }
    }
    return make_float4(to[0], to[1], to[2], to[3]);
  }

  // Rows r, r + step, ... of those that there are.
  __device__ __forceinline__ void put_rows(int r, int step, int own, int column, const float4& scale,
                                           float* squares) const {
    const bool summed = in.prologue == Prologue::kRms || in.prologue == Prologue::kGated;
    const bool gated = in.prologue == Prologue::kGated || in.prologue == Prologue::kGate;
    float4 x[kAtOnce], gate[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      x[k] = gate[k] = make_float4(0, 0, 0, 0);
      if (column >= pitch_of(in.x_width) || r + k * step >= rows) continue;
      const int64_t at_row = row + r + k * step;
      x[k] = *reinterpret_cast<const float4*>(row_of(in.x, in.x_width, at_row) + column);
      if (gated) gate[k] = *reinterpret_cast<const float4*>(row_of(in.y, in.y_width, at_row) + column);
    }
    float sums[kAtOnce] = {};
    if (summed) {
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        sums[k] = fmaf(x[k].x, x[k].x, fmaf(x[k].y, x[k].y, fmaf(x[k].z, x[k].z, x[k].w * x[k].w)));
#pragma unroll
      for (int i = 16; i > 0; i >>= 1) {
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) sums[k] += __shfl_xor_sync(kAll, sums[k], i);
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (r + k * step >= rows) break;
      float4 v = x[k];
      if (summed) v = times(v, scale);
      if (gated) {
        const float by =
            in.prologue == Prologue::kGated ? rsqrtf(sums[k] / static_cast<float>(kMmaSpan) + in.op.eps) : 1.0f;
        v = times(v, make_float4(gate_of(gate[k].x, by), gate_of(gate[k].y, by), gate_of(gate[k].z, by),
                                 gate_of(gate[k].w, by)));
      } else if (summed && lane() == 0) {
        squares[(r + k * step) * kSquareParts] += sums[k];
      }
      put_four(own, r + k * step, v);
    }
  }
  static __device__ __forceinline__ float4 times(const float4& a, const float4& b) {
    return make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z), __fmul_rn(a.w, b.w));
  }
  __device__ __forceinline__ float gate_of(float gate, float by) const {
    return in.prologue == Prologue::kGated ? by * silu(gate) : sigmoid(gate);
  }

  // Of the prologues that are seldom.
  __device__ __forceinline__ float4 seldom(int r, int column) const {
    float to[4] = {0, 0, 0, 0};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i = column + k;
      if (i < in.x_width) to[k] = one(r, i);
    }
    return make_float4(to[0], to[1], to[2], to[3]);
  }
  __device__ __forceinline__ float one(int r, int i) const {
    const int group = max(in.op.width, 1);
    const float x = row_of(in.x, in.x_width, row + r)[i];
    const float* const y = row_of(in.y, in.y_width, row + r);
    if (in.prologue == Prologue::kGate) return __fmul_rn(x, sigmoid(y[i / group]));
    const float2 norm = facts.norms[r][i / group];
    const float value = __fmul_rn(x - norm.x, norm.y), scale = at<const float>(in.vectors[0])[i % group];
    if (in.prologue == Prologue::kLayer) return fmaf(value, scale, at<const float>(in.vectors[1])[i % group]);
    return __fmul_rn(__fmul_rn(value, scale), in.prologue == Prologue::kGated ? silu(y[i]) : 1.0f);
  }

  // The lane's columns are 4 * lane and three behind it, of span `own` of those that are here.
  __device__ __forceinline__ void put_four(int own, int r, const float4& four) const {
    const Split first = split_pair(four.x, four.y), second = split_pair(four.z, four.w);
    const int of = static_cast<int>(lane()), outer = of >> 3, inner = of >> 1 & 3;
    const int quarter = kGroups ? inner : outer, slot = lane_slot((r & 7) * 4 + (kGroups ? outer : inner), quarter);
    unsigned char* const to = planes + (((own * 4 + quarter) * kTiles + (r >> 3)) * 2 * 32 + slot) * 16 + (of & 1) * 8;
    *reinterpret_cast<uint2*>(to) = make_uint2(first.high, second.high);
    *reinterpret_cast<uint2*>(to + 512) = make_uint2(first.low, second.low);
  }
};

}  // namespace baton::cuda

// Rows of x as products on tensor cores take them: each value as the sum of two bf16, which is right to 16 bits.
//
// Columns come in spans of 128, a span in quarters, of which a lane of mma has 8 columns: of bf16 matrices quarter j,
// lane 4n + t has columns 32j + 8t..., else 32t + 8j..., so that there a lane has a group of 32 to itself. They lie
// [span][quarter][tile of 8 rows][high, low][32 lanes] of 8 values, in memory all tiles that there may be
// (mma_layout.h), in a block's shared memory those that it multiplies, some spans at a time; every other quarter's
// lanes are exchanged in fours, for the banks' sake.
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
inline constexpr int kLowBehind = 512;         // the low part of a value, behind the high one

__device__ __forceinline__ int lane_slot(int lane, int quarter) { return lane ^ ((quarter & 1) << 2); }

// Where the high parts of a column's values lie in memory. Eight columns, of which the first is a multiple of 8, follow
// each other. groups: of lanes that have one each.
class PlaneColumn {
 public:
  PlaneColumn() = default;
  __device__ __forceinline__ PlaneColumn(int column, bool groups) {
    const int span = column / kMmaSpan, outer = column >> 5 & 3, inner = column >> 3 & 3;
    const int quarter = groups ? inner : outer;
    byte_ = (span * 4 + quarter) * kPlaneTiles * 1024 + (groups ? outer : inner) * 16 + (column & 7) * 2;
    odd_ = quarter & 1;
  }
  // Of row r: lane_slot exchanges every other row with the one beside it.
  __device__ __forceinline__ int byte(int r) const { return byte_ + (r >> 3) * 1024 + ((r ^ odd_) & 7) * 64; }

 private:
  int byte_ = 0, odd_ = 0;
};

// What a row's products are multiplied with, of its squares.
__device__ __forceinline__ float factor_of(const Instruction& in, float squares) {
  return scales_products(in) ? rsqrtf(quotient(squares, static_cast<float>(in.x_width)) + in.op.eps) : 1.0f;
}

// Up to 8 * kTiles rows of a product, from `row` on, in shared memory: `stage` spans at a time, a power of two.
template <int kTiles, bool kGroups>
struct MmaRows {
  const Instruction& in;
  int row, rows, spans, stage;
  float* factors;  // what a row's products are multiplied with
  unsigned char* planes;

  // A lane's 8 columns of a row of the first tile; the second tile's are 64 places behind, low parts 32.
  __device__ __forceinline__ const uint4* quarter(int span, int quarter) const {
    return reinterpret_cast<const uint4*>(planes) + ((span & (stage - 1)) * 4 + quarter) * kTiles * 64 +
           lane_slot(static_cast<int>(lane()), quarter);
  }
  __device__ __forceinline__ int rows_of_tiles() const { return (rows + 7) & ~7; }

  // A warp has every 16th. Followed by a meeting.
  __device__ __forceinline__ void find_factors() const {
    constexpr int kEach = kTiles < 2 ? 1 : kTiles / 2;
    const int count = scales_products(in) ? kSquaresOfSpan / 4 * spans : 0;
    const float4* const squares = at<const float4>(in.scratch + squares_behind(spans)) + row * count;
    float sums[kEach] = {};
#pragma unroll 1
    for (int i = static_cast<int>(lane()); i < count; i += 32) {
      float4 fours[kEach];
#pragma unroll
      for (int k = 0; k < kEach; ++k)
        fours[k] = squares[min(static_cast<int>(warp()) + k * (kThreads / 32), rows - 1) * count + i];
#pragma unroll
      for (int k = 0; k < kEach; ++k) sums[k] += (fours[k].x + fours[k].y) + (fours[k].z + fours[k].w);
    }
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const float sum = warp_sum(sums[k]);
      const int r = static_cast<int>(warp()) + k * (kThreads / 32);
      if (r < rows && lane() == 0) factors[r] = factor_of(in, sum);
    }
  }

  // Spans from `first` on, as many as are here at a time, and factors with the first. Followed by a meeting.
  __device__ __forceinline__ void bring(int first, bool factors_too) const {
    constexpr int kChunks = kTiles * 64;  // of 16 bytes, of a quarter
    const int count = min(stage, spans - first) * 4 * kChunks, tile = row / 8;
    const unsigned char* const from = at<const unsigned char>(in.scratch) + int64_t{first} * kPlaneSpanBytes;
    const auto chunk_at = [&](int i) {
      const int quarter = i / kChunks, chunk = i % kChunks;
      return from + (quarter * kPlaneTiles + min(tile + chunk / 64, kPlaneTiles - 1)) * 1024 + chunk % 64 * 16;
    };
    if constexpr (kTiles <= 2) {
      // Not by copies, behind which all weights that are on their way would have to come, too.
      constexpr int kAtOnce = 4;
      uint4* const to = reinterpret_cast<uint4*>(planes);
#pragma unroll 1
      for (int before = 0; before < count; before += kAtOnce * kThreads) {
        const int i = before + static_cast<int>(threadIdx.x);
        uint4 chunks[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
          chunks[k] = *reinterpret_cast<const uint4*>(chunk_at(min(i + k * kThreads, count - 1)));
        if (factors_too && before == 0) find_factors();
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          if (i + k * kThreads < count) to[i + k * kThreads] = chunks[k];
        }
      }
      return;
    }
    const uint32_t to = shared_address(planes);
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) copy_ahead(to + i * 16, chunk_at(i));
    copies_end_group();
    if (factors_too) find_factors();
    copies_wait<0>();
  }
};

// A span of a row of x, which a warp makes.
struct SpanOfRow {
  const Instruction& in;
  int row, span, spans;

  __device__ __forceinline__ void put() const {
    const int column = span * kMmaSpan + static_cast<int>(lane()) * 4;
    const bool common = in.prologue == Prologue::kGate ? in.op.width <= 1 : !norms_before(in);
    put_four(column, common ? four_of_row(column) : norms_before(in) ? normed(column) : gated(column));
  }

 private:
  // Where each value is read once.
  __device__ __forceinline__ float4 four_of_row(int column) const {
    const bool there = column < pitch_of(in.x_width);
    const bool has_gates = in.prologue == Prologue::kGated || in.prologue == Prologue::kGate;
    const float4 x = four_of(row_of(in.x, in.x_width, row), column, there);
    const float4 gates = four_of(has_gates ? row_of(in.y, in.y_width, row) : nullptr, column, there && has_gates);
    if (in.prologue == Prologue::kNone) return x;
    const float squares = fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, x.w * x.w)));
    float4 v = x;
    if (in.prologue != Prologue::kGate) v = times(x, scale_of(column));
    if (in.prologue == Prologue::kRms) {
      const float of_eight = squares + __shfl_xor_sync(kAll, squares, 1);
      if ((lane() & 1) == 0)
        at<float>(in.scratch + squares_behind(spans))[(row * spans + span) * kSquaresOfSpan + lane() / 2] = of_eight;
      return v;
    }
    const float by =
        in.prologue == Prologue::kGated ? rsqrtf(warp_sum(squares) / static_cast<float>(kMmaSpan) + in.op.eps) : 1.0f;
    return times(v,
                 make_float4(gate_of(gates.x, by), gate_of(gates.y, by), gate_of(gates.z, by), gate_of(gates.w, by)));
  }
  __device__ __forceinline__ float4 scale_of(int column) const {
    float to[4] = {0, 0, 0, 0};
    const bool whole = scales_products(in);
    const float* const from = at<const float>(in.vectors[0]);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i = whole ? column + k : (column + k) % kMmaSpan;
      if (i < in.x_width) to[k] = from[i];
    }
    return make_float4(to[0], to[1], to[2], to[3]);
  }
  static __device__ __forceinline__ float4 times(const float4& a, const float4& b) {
    return make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z), __fmul_rn(a.w, b.w));
  }
  __device__ __forceinline__ float gate_of(float gate, float by) const {
    return in.prologue == Prologue::kGated ? by * silu(gate) : sigmoid(gate);
  }

  // A gate for several values.
  __device__ __forceinline__ float4 gated(int column) const {
    float to[4] = {0, 0, 0, 0};
    const float* const x = row_of(in.x, in.x_width, row);
    const float* const y = row_of(in.y, in.y_width, row);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i = column + k;
      if (i < in.x_width) to[k] = __fmul_rn(x[i], sigmoid(y[i / in.op.width]));
    }
    return make_float4(to[0], to[1], to[2], to[3]);
  }
  // Norms of groups: the warp makes those of all that the span has a part of.
  __device__ __forceinline__ float4 normed(int column) const {
    float to[4] = {0, 0, 0, 0};
    const int width = in.op.width, end = min((span + 1) * kMmaSpan, in.x_width);
    const float* const x = row_of(in.x, in.x_width, row);
    const float* const scales = at<const float>(in.vectors[0]);
#pragma unroll 1
    for (int first = span * kMmaSpan / width * width; first < end; first += width) {
      const float2 norm = norm_of(x + first, width, in.op.eps, in.prologue == Prologue::kLayer,
                                  static_cast<int>(lane()), 32, [](float part) { return warp_sum(part); });
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i = column + k, of = i - first;
        if (of < 0 || of >= width || i >= in.x_width) continue;
        const float value = __fmul_rn(x[i] - norm.x, norm.y);
        to[k] = in.prologue == Prologue::kLayer ? fmaf(value, scales[of], at<const float>(in.vectors[1])[of])
                                                : __fmul_rn(value, scales[of]);
        if (in.prologue == Prologue::kGated) to[k] = __fmul_rn(to[k], silu(row_of(in.y, in.y_width, row)[i]));
      }
    }
    return make_float4(to[0], to[1], to[2], to[3]);
  }

  __device__ __forceinline__ void put_four(int column, const float4& four) const {
    const Split first = split_pair(four.x, four.y), second = split_pair(four.z, four.w);
    unsigned char* const to =
        at<unsigned char>(in.scratch) + PlaneColumn(column, in.matrix[0].form != Form::kBF16).byte(row);
    *reinterpret_cast<uint2*>(to) = make_uint2(first.high, second.high);
    *reinterpret_cast<uint2*>(to + kLowBehind) = make_uint2(first.low, second.low);
  }
};

// Rows of x of the product behind it: all warps have spans of them.
__device__ __noinline__ void prepare_planes(const Instruction& in, int rows) {
  is_shared(&in);
  const int spans = mma_spans(in), blocks = static_cast<int>(gridDim.x);
#pragma unroll 1
  for (int i = static_cast<int>(warp()) * blocks + static_cast<int>(blockIdx.x); i < rows * spans;
       i += kThreads / 32 * blocks)
    SpanOfRow{in, i / spans, i % spans, spans}.put();
}

}  // namespace baton::cuda

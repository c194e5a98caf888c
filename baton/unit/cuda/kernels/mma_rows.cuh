// Rows of x as products on tensor cores take them: each value as the sum of two bf16, which is right to 16 bits.
//
// Columns come in spans of 128, a span in quarters, of which a lane of mma has 8 columns: of bf16 matrices quarter j,
// lane 4n + t has columns 32j + 8t..., else 32t + 8j..., so that there a lane has a group of 32 to itself. They lie
// [span][quarter][tile of 8 rows][high, low][32 lanes] of 8 values, in memory all tiles that there may be
// (mma_layout.h), in a block's shared memory those that it multiplies, some spans at a time, of which each comes by
// copies of its own and makes room when it has been multiplied; every other quarter's lanes are exchanged in fours, for
// the banks' sake.
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
// Before the rows in a block's shared memory: factors of rows.
inline constexpr uint32_t kMmaFrontBytes = kPlaneRows * sizeof(float);
static_assert(kMmaFrontBytes % 128 == 0);

// Spans have barriers, and counts of the warps that are done with them, by their numbers modulo so many: more than
// there are slices of a product, so that whoever waits at a barrier sees all its phases.
inline constexpr int kSpanBarriers = 32;
// A block's, made once and never anything else: memory that holds a barrier may not be used for values before the
// barrier is made invalid, and is not what was written there when a card has put the block aside meanwhile.
struct SpanBarriers {
  uint64_t full[kSpanBarriers];
  uint32_t warps_done[kSpanBarriers];
  uint32_t odd;  // a bit each: whether as many phases as have ended before this product are an odd number

  // By one thread; followed by a meeting.
  __device__ __forceinline__ void make() {
#pragma unroll 4
    for (int i = 0; i < kSpanBarriers; ++i) {
      make_barrier(shared_address(&full[i]), 32);
      warps_done[i] = 0;
    }
    odd = 0;
    barriers_made();
  }
};
__device__ __forceinline__ SpanBarriers& span_barriers() {
  __shared__ SpanBarriers barriers;
  return barriers;
}

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

// What a row's products are multiplied with, of its squares, where scales_products says so.
__device__ __forceinline__ float factor_of(const Instruction& in, float squares) {
  return rsqrtf(quotient(squares, static_cast<float>(in.x_width)) + in.op.eps);
}

// Up to 8 * kTiles rows of a product, from `row` on, in shared memory: `stage` spans at a time, a power of two.
template <int kTiles, bool kGroups>
struct MmaRows {
  const Instruction& in;
  int row, rows, spans, stage;
  float* factors;  // what a row's products are multiplied with
  unsigned char* planes;

  __device__ __forceinline__ static uint32_t barrier(int span) {
    return shared_address(&span_barriers().full[span & (kSpanBarriers - 1)]);
  }
  // By a warp, when nobody reads any more what is in its place.
  __device__ __forceinline__ void fill(int span) const {
    const int tile = row / 8, tiles = min(kTiles, kPlaneTiles - tile);
    const uint32_t bytes = static_cast<uint32_t>(tiles) * 1024, full = barrier(span);
    const uint32_t to = shared_address(planes) + static_cast<uint32_t>((span & (stage - 1)) * kTiles) * kSpanBytes;
    const unsigned char* const from =
        at<const unsigned char>(in.scratch) + int64_t{span} * kPlaneSpanBytes + int64_t{tile} * 1024;
    if (!kCopiesInBulk) return fill_by_lanes(to, from, bytes, full);
    const uint32_t quarter = lane();
    if (quarter == 0) arrive_with_bulk(full, 4 * bytes);
    __syncwarp();
    if (quarter >= 4) return;
    leave_to_copies();
    read_by_copies();
    copy_in_bulk(to + quarter * kTiles * 1024, from + quarter * kPlaneTiles * 1024, bytes, full);
  }
  // By copies of 16 bytes each.
  __device__ __forceinline__ void fill_by_lanes(uint32_t to, const unsigned char* from, uint32_t bytes,
                                                uint32_t full) const {
#pragma unroll 1
    for (uint32_t i = lane(); i < bytes / 4; i += 32) {
      const uint32_t quarter = i / (bytes / 16), chunk = i - quarter * (bytes / 16);
      copy_ahead(to + quarter * kTiles * 1024 + chunk * 16, from + quarter * kPlaneTiles * 1024 + chunk * 16);
    }
    arrive_behind_copies(full);
  }
  // The first of them.
  __device__ __forceinline__ void fill_first() const {
#pragma unroll 1
    for (int span = static_cast<int>(warp()); span < min(stage, spans); span += kThreads / 32) fill(span);
  }
  __device__ __forceinline__ void without_factors() const {
    if (static_cast<int>(threadIdx.x) < rows) factors[threadIdx.x] = 1.0f;
  }
  // Until it has come, the round being one in which all come anew; odd: SpanBarriers'.
  __device__ __forceinline__ void wait(int span, int round, uint32_t odd) const {
    const int number = span & (kSpanBarriers - 1), fills = (spans - number + kSpanBarriers - 1) / kSpanBarriers;
    wait_for(barrier(span), (static_cast<uint32_t>(round * fills + span / kSpanBarriers) + (odd >> number)) & 1);
  }
  // What is odd behind so many rounds.
  __device__ __forceinline__ uint32_t odd_behind(int rounds, uint32_t odd) const {
    const uint32_t all = (spans / kSpanBarriers & 1) != 0 ? ~0u : 0u, more = (1u << spans % kSpanBarriers) - 1;
    return (rounds & 1) != 0 ? odd ^ all ^ more : odd;
  }
  // By a warp that is done with it, one of so many: the last of them asks for the one that takes its place.
  __device__ __forceinline__ void leave(int span, int warps) const {
    const int next = span + stage;
    if (next >= spans) return;
    __syncwarp();
    uint32_t is_last = 0;
    if (lane() == 0) {
      uint32_t* const done = &span_barriers().warps_done[span & (kSpanBarriers - 1)];
      __threadfence_block();
      is_last = atomicAdd(done, 1u) + 1 == static_cast<uint32_t>(warps) ? 1 : 0;
      if (is_last != 0) *done = 0;
      __threadfence_block();
    }
    if (__shfl_sync(kAll, is_last, 0) != 0) fill(next);
  }

  // A lane's 8 columns of a row of the first tile; the second tile's are 64 places behind, low parts 32.
  __device__ __forceinline__ const uint4* quarter(int span, int quarter) const {
    return reinterpret_cast<const uint4*>(planes) + ((span & (stage - 1)) * 4 + quarter) * kTiles * 64 +
           lane_slot(static_cast<int>(lane()), quarter);
  }
  __device__ __forceinline__ int rows_of_tiles() const { return (rows + 7) & ~7; }

  // A warp has every 16th; followed by a meeting. between(): when the first squares have been asked for.
  template <class Between>
  __device__ __forceinline__ void find_factors(Between between) const {
    constexpr int kEach = kTiles < 2 ? 1 : kTiles / 2;
    const int count = scales_products(in) ? kSquaresOfSpan / 4 * spans : 0;
    const float4* const squares = at<const float4>(in.scratch + squares_behind(spans)) + row * count;
    float4 fours[kEach];
    const auto ask = [&](int i) {
#pragma unroll
      for (int k = 0; k < kEach; ++k)
        fours[k] = squares[min(static_cast<int>(warp()) + k * (kThreads / 32), rows - 1) * count + i];
    };
    float sums[kEach] = {};
    const auto add = [&] {
#pragma unroll
      for (int k = 0; k < kEach; ++k) sums[k] += (fours[k].x + fours[k].y) + (fours[k].z + fours[k].w);
    };
    const int first = static_cast<int>(lane());
    if (count > 0) ask(min(first, count - 1));
    between();
    if (count == 0) return without_factors();
    if (first < count) add();
#pragma unroll 1
    for (int i = first + 32; i < count; i += 32) {
      ask(i);
      add();
    }
    float own = 0;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const float sum = warp_sum(sums[k]);
      if (static_cast<int>(lane()) == k) own = sum;
    }
    const int r = static_cast<int>(warp() + lane() * (kThreads / 32));
    if (lane() < kEach && r < rows) factors[r] = factor_of(in, own);
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

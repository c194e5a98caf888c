// Do::kMultiply on tensor cores: any number of rows; matrices of one form (mma_layout.h).
//
// A unit of 16 rows of weights is A of mma, tiles of 8 rows of x are B. A block has a contiguous part of the units and
// all rows of x, 64 at a time; where there are fewer units than blocks, a part of the rows. `slices` warps, a span of
// columns each in turn, share a unit: their sums are added in order. What a row sums, in which order, is a matter of
// the instruction alone: neither of the rows beside it nor of the number of blocks.
#pragma once

#include "baton/unit/cuda/kernels/list.cuh"
#include "baton/unit/cuda/kernels/mma_ring.cuh"
#include "baton/unit/cuda/values.h"

namespace baton::cuda {

// The sums of a round: a warp has those of its team's unit over its slice. `added`: of the thread's first row.
template <int kTiles, class Rows>
__device__ __forceinline__ void finish_units(const Instruction& in, const MmaUnits& units, const Rows& x,
                                             float* partial, const MmaOutput& output, float added,
                                             const float (&sums)[kTiles][4]) {
  constexpr int kAll = 8 * kTiles, kAtOnce = kTiles < 4 ? 1 : 2;
  const int column = static_cast<int>(lane() & 3) * 2;
  float* const own = partial + (static_cast<int>(warp()) * kAll + column) * kSumStride + static_cast<int>(lane()) / 4;
  float before[kAtOnce] = {added};
#pragma unroll
  for (int k = 1; k < kAtOnce; ++k) before[k] = output.added(k, x.rows);
  __syncthreads();  // planes are read, and the sums before
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile * 8 >= x.rows) break;
#pragma unroll
    for (int i = 0; i < 4; ++i) own[(tile * 8 + i % 2) * kSumStride + i / 2 * 8] = sums[tile][i];
  }
  __syncthreads();
  const int slices = units.slices(), stride = units.teams() * kAll * kSumStride;
  const bool hands_on = in.next != 0, scaled = in.next_scales != 0;
  const float* from = partial + (output.team * kAll + output.first) * kSumStride + output.of;
  // What they are is asked once: a thread has up to 8 rows, which would ask for each.
  const auto put_down = [&](auto pairs, auto next) {
    constexpr bool kPairs = decltype(pairs)::value, kHandsOn = decltype(next)::value;
#pragma unroll 1
    for (int i = 0; output.first + i * output.step < x.rows_of_tiles(); i += kAtOnce) {
      if (i > 0) {
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) before[k] = output.added(i + k, x.rows);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int r = output.first + (i + k) * output.step;
        if (r >= x.rows_of_tiles()) break;
        float sum = 0, other = 0;
        const float* const part = from + (i + k) * output.step * kSumStride;
        if constexpr (kPairs) {
#pragma unroll 4
          for (int slice = 0; slice < slices; ++slice) other += part[slice * stride + 8];
        }
#pragma unroll 4
        for (int slice = 0; slice < slices; ++slice) sum += part[slice * stride];
        const float by = x.factors[r];
        output.template put<kPairs, kHandsOn>(i + k, x.rows, __fmul_rn(by, sum), __fmul_rn(by, other), before[k],
                                              scaled);
      }
    }
  };
  const auto by_next = [&](auto pairs) {
    if (hands_on) return put_down(pairs, std::true_type());
    put_down(pairs, std::false_type());
  };
  if (units.pairs) return by_next(std::true_type());
  by_next(std::false_type());
}

// Rows of x from `row` on, `count` of them, of which the block has a part of up to 8 * kTiles; returns the first behind
// them. `before`: blocks have arrived behind the instruction before it, and are waited for; null: nobody is.
template <class Kind, int kTiles>
__device__ __noinline__ int multiply_part(const Instruction& in, int row, int count, const Meeting* before) {
  // By a name, not by a pointer: the compiler then knows what memory it is.
  extern __shared__ __align__(128) unsigned char mma_shared[];
  is_shared(&in);
  const MmaUnits units(in, count);
  const MmaPart part = part_of(in, units, row, count);
  MmaFeed<Kind> feed(in, units, part);
  const uint32_t room = feed.room.before() - kMmaFrontBytes;
  int stage = kTiles == 1 ? 2 * kMmaWarps : kMmaWarps;
  while (stage > 1 && (static_cast<uint32_t>(stage * kTiles) * kSpanBytes > room || stage / 2 >= units.spans))
    stage /= 2;
  using Rows = MmaRows<kTiles, Kind::kGroups>;
  const Rows x = {
      in, part.row, part.rows, units.spans, stage, reinterpret_cast<float*>(mma_shared), mma_shared + kMmaFrontBytes};
  const int teams = units.teams(), slice = units.slice();
  // Where there is room, rows of x stay for all rounds; else sums take their place.
  const uint32_t planes = static_cast<uint32_t>(stage * kTiles) * kSpanBytes;
  const bool stays = units.spans <= stage && planes + kTiles * kSumBytes <= room;
  float* const partial = reinterpret_cast<float*>(x.planes + (stays ? planes : 0));
  uint32_t taken = 0;
  wait_for_blocks(before);
  const uint32_t odd = span_barriers().odd;
  int round = 0;
  for (int base = part.begin; base < part.end; base += teams) {
    const bool works = base + units.team() < part.end;
    // Of many rows of x and codes registers are few meanwhile.
    constexpr bool kEarly = kTiles <= 2;
    const MmaOutput early = kEarly ? MmaOutput(in, units, base, part.end, part.row) : MmaOutput();
    const float added = kEarly ? early.added(0, part.rows) : 0.0f;
    const MmaLines lines = units.lines(in, works ? base + units.team() : base);
    float sums[kTiles][4] = {};
    int span = slice;
    const auto take = [&] {
#pragma unroll 1
      for (int step = 0; step < Kind::kSteps; ++step) {
        feed.wait();
        Kind::template multiply<kTiles>(sums, lines, mma_shared + feed.place(taken++), x, span, step);
        feed.ask();
      }
    };
    if (base == part.begin || !stays) {
      if (base != part.begin) __syncthreads();  // sums are read
      x.fill_first();
      if (base == part.begin) x.find_factors([&] { feed.begin(); });
    }
    const int working = min(teams, part.end - base);
#pragma unroll 1
    for (; works && span < units.spans; span += units.slices()) {
      x.wait(span, stays ? 0 : round, odd);
      take();
      x.leave(span, working);
    }
    ++round;
    const MmaOutput output = kEarly ? early : MmaOutput(in, units, base, part.end, part.row);
    finish_units<kTiles>(in, units, x, partial, output, kEarly ? added : output.added(0, part.rows), sums);
  }
  copies_wait<0>();
  if (threadIdx.x == 0) span_barriers().odd = x.odd_behind(stays ? 1 : round, odd);
  return row + count;
}

// part_rows: of the block's part.
template <class Kind, class Half>
__device__ __forceinline__ int multiply_kind(const Instruction& in, int row, int count, int part_rows,
                                             const Meeting* before) {
  if (MmaUnits(in, count).halves) return multiply_part<Half, 1>(in, row, count, before);
  if (part_rows <= 8) return multiply_part<Kind, 1>(in, row, count, before);
  if (part_rows <= 16) return multiply_part<Kind, 2>(in, row, count, before);
  if (part_rows <= 32) return multiply_part<Kind, 4>(in, row, count, before);
  return multiply_part<Kind, kMmaTiles>(in, row, count, before);
}

// Rows of x that are multiplied at a time.
__device__ __forceinline__ int mma_rows_max(const MmaRoom& room) {
  int most = kMmaTiles;
  while (most > 1 && static_cast<uint32_t>(most) * kSumBytes > room.before() - kMmaFrontBytes) most /= 2;
  return 8 * most;
}

// Rows of x from `row` on, as many as are multiplied at a time: returns the first behind them. In all of the block's
// dynamic shared memory, which then holds nothing else. before: as in multiply_part.
__device__ __forceinline__ int multiply_mma(const Instruction& in, int row, int rows, const Meeting* before) {
  const int count = min(rows - row, mma_rows_max(MmaRoom()));
  const MmaUnits units(in, count);
  const MmaPart part = part_of(in, units, row, count);
  if (part.begin >= part.end) {
    wait_for_blocks(before);
    return row + count;
  }
  if (in.matrix[0].form == Form::kBF16) return multiply_kind<MmaPlain, MmaPlainHalf>(in, row, count, part.rows, before);
  return multiply_kind<MmaSplit<false>, MmaSplit<true>>(in, row, count, part.rows, before);
}

// What a block is the first to need of a product's weights, to the second level of cache.
__device__ __forceinline__ void fetch_units(const Instruction& in, int rows) {
  constexpr int kLines = 2;  // of a thread
  const int rows_at_once = min(rows, 8 * kMmaTiles);
  const MmaUnits units(in, rows_at_once);
  const MmaPart part = part_of(in, units, 0, rows_at_once);
  int left = kLines, before = 0;
  for (int i = 0; i < in.matrices && left > 0; ++i) {
    const Matrix& matrix = in.matrix[i];
    const int log2 = units.each_log2(), count = units.units_of(matrix);
    const int begin = max(part.begin - before, 0), end = min(part.end - before, count);
    if (!units.pairs) before += count;
    if (begin >= end) continue;
    const int64_t last = int64_t{min(end << log2, matrix.rows)} * matrix.row_bytes;
    int64_t byte = int64_t{begin << log2} * matrix.row_bytes + static_cast<int64_t>(threadIdx.x) * 128;
    for (; byte < last && left > 0; --left, byte += kThreads * 128)
      fetch_line(at<const unsigned char>(matrix.values) + byte);
  }
}

}  // namespace baton::cuda

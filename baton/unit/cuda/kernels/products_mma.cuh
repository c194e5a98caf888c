// Do::kMultiply on tensor cores: any number of rows; matrices of one form (mma_layout.h).
//
// A unit of 16 rows of weights is A of mma, tiles of 8 rows of x are B. A block has a contiguous part of the units and
// all rows of x, 64 at a time; where there are fewer units than blocks, a part of the rows. `slices` warps, a span of
// columns each in turn, share a unit: their sums are added in order. What a row sums, in which order, is a matter of
// the instruction alone: neither of the rows beside it nor of the number of blocks.
#pragma once

#include "baton/unit/cuda/kernels/mma_ring.cuh"
#include "baton/unit/cuda/values.h"

namespace baton::cuda {

inline constexpr int kMmaWarps = kThreads / 32;
inline constexpr int kSumStride = 20;  // of 16 rows of weights, for the banks' sake
inline constexpr uint32_t kSumBytes = kMmaWarps * 8 * kSumStride * sizeof(float);  // of a tile

// The sums of a round, of units from `base` on: a warp has those of unit base + team over its slice.
template <int kTiles, class Rows>
__device__ __forceinline__ void finish_units(const Instruction& in, const MmaUnits& units, const MmaPart& part,
                                             const Rows& x, float* partial, int base, const float (&sums)[kTiles][4],
                                             bool prepared) {
  constexpr int kAll = 8 * kTiles;
  const int teams = units.teams();
  const int column = static_cast<int>(lane() & 3) * 2;
  float* const own = partial + (static_cast<int>(warp()) * kAll + column) * kSumStride + static_cast<int>(lane()) / 4;
  __syncthreads();  // planes are read, and the sums before
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile * 8 >= x.rows) break;
#pragma unroll
    for (int i = 0; i < 4; ++i) own[(tile * 8 + i % 2) * kSumStride + i / 2 * 8] = sums[tile][i];
  }
  if (base == part.begin && !prepared) x.finish();
  __syncthreads();
  const int each_log2 = units.each_log2(), count = min(teams, part.end - base) * kAll << each_log2;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const int of = i & ((1 << each_log2) - 1), r = (i >> each_log2) % kAll, of_team = (i >> each_log2) / kAll;
    if (r >= x.rows) continue;
    float sum = 0, other = 0;
    for (int slice = 0; slice < units.slices(); ++slice) {
      const float* const from = partial + ((slice * teams + of_team) * kAll + r) * kSumStride + of;
      sum += from[0];
      if (units.pairs) other += from[8];
    }
    const float by = x.facts.factors[r];
    units.put(in, base + of_team, of, x.row + r, __fmul_rn(by, sum), __fmul_rn(by, other));
  }
}

// Of what a kPrepare made the spans from `first` on, as many as are in shared memory at a time. Waits for them.
template <int kTiles, bool kGroups>
__device__ __forceinline__ void bring_planes(const MmaRows<kTiles, kGroups>& x, int first) {
  constexpr int kChunks = kTiles * 64;  // of 16 bytes, of a quarter
  const int count = min(x.stage, x.spans - first) * 4 * kChunks, tile = x.row / 8;
  const unsigned char* const from = at<const unsigned char>(x.in.scratch) + int64_t{first} * kPlaneSpanBytes;
  const uint32_t to = shared_address(x.planes);
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const int quarter = i / kChunks, chunk = i % kChunks;
    copy_ahead(to + i * 16,
               from + (quarter * kPlaneTiles + min(tile + chunk / 64, kPlaneTiles - 1)) * 1024 + chunk % 64 * 16);
  }
  copies_end_group();
  copies_wait<0>();
}

// asked: the first weights of the first round are on their way already. prepared: rows of x are (bring_planes).
template <class Kind, int kTiles>
__device__ __noinline__ void multiply_part(const Instruction& in, const MmaPart& part, bool asked, bool prepared) {
  // By a name, not by a pointer: the compiler then knows what memory it is.
  extern __shared__ __align__(128) unsigned char mma_shared[];
  is_shared(&in);
  const MmaUnits units(in);
  MmaFeed<Kind> feed(in, units, part);
  const uint32_t room = feed.room.before - static_cast<uint32_t>(sizeof(RowFacts));
  if (asked) {
    feed.skip();
  } else {
    for (uint32_t i = 0; i < feed.room.depth; ++i) feed.ask();
  }
  int stage = kMmaWarps;
  while (stage > 1 && (static_cast<uint32_t>(stage * kTiles) * kSpanBytes > room || stage / 2 >= units.spans))
    stage /= 2;
  const MmaRows<kTiles, Kind::kGroups> x = {in,
                                            part.row,
                                            part.rows,
                                            units.spans,
                                            stage,
                                            *reinterpret_cast<RowFacts*>(mma_shared),
                                            mma_shared + sizeof(RowFacts)};
  const int teams = units.teams(), slice = units.slice();
  // Where there is room, rows of x stay for all rounds; else sums take their place.
  const uint32_t planes = static_cast<uint32_t>(stage * kTiles) * kSpanBytes;
  const bool stays = units.spans <= stage && planes + kTiles * kSumBytes <= room;
  float* const partial = reinterpret_cast<float*>(x.planes + (stays ? planes : 0));
  const float* const factors =
      at<const float>(in.scratch + static_cast<uint64_t>(units.spans) * kPlaneSpanBytes) + part.row;
  __syncthreads();
  if (!prepared) x.begin();
  if (prepared && static_cast<int>(threadIdx.x) < part.rows) x.facts.factors[threadIdx.x] = factors[threadIdx.x];
  uint32_t taken = 0;
  for (int base = part.begin; base < part.end; base += teams) {
    const bool works = base + units.team() < part.end;
    const MmaLines lines = units.lines(in, works ? base + units.team() : base);
    float sums[kTiles][4] = {};
    int span = slice;
    for (int first = 0; first < units.spans; first += stage) {
      if (base == part.begin || !stays) {
        __syncthreads();
        if (prepared) {
          bring_planes(x, first);
        } else {
          x.put(first);
        }
        __syncthreads();
      }
      const int end = min(units.spans, first + stage);
#pragma unroll 1
      for (; works && span < end; span += units.slices()) {
#pragma unroll
        for (int step = 0; step < Kind::kSteps; ++step) {
          if (feed.room.depth == 2) {
            copies_wait<1>();
          } else {
            copies_wait<0>();
          }
          Kind::template multiply<kTiles>(sums, lines, mma_shared + feed.place(taken++), x, span, step);
          feed.ask();
        }
      }
    }
    finish_units<kTiles>(in, units, part, x, partial, base, sums, prepared);
  }
  copies_wait<0>();
}

template <class Kind>
__device__ __forceinline__ void multiply_kind(const Instruction& in, const MmaPart& part, bool asked, bool prepared) {
  if (part.rows <= 8) return multiply_part<Kind, 1>(in, part, asked, prepared);
  if (part.rows <= 16) return multiply_part<Kind, 2>(in, part, asked, prepared);
  if (part.rows <= 32) return multiply_part<Kind, 4>(in, part, asked, prepared);
  multiply_part<Kind, kMmaTiles>(in, part, asked, prepared);
}

// Rows of x as multiply_part takes them, of a kPrepare before the product; what put and begin of a block would make.
template <bool kGroups>
__device__ __forceinline__ void prepare_planes_of(const Instruction& in, int rows, uint32_t block, uint32_t blocks,
                                                  unsigned char* shared) {
  RowFacts& facts = *reinterpret_cast<RowFacts*>(shared);
  const int spans = mma_spans(in);
  unsigned char* const planes = at<unsigned char>(in.scratch);
  float* const factors = at<float>(in.scratch + static_cast<uint64_t>(spans) * kPlaneSpanBytes);
  for (int r = static_cast<int>(block); r < rows; r += static_cast<int>(blocks)) {
    MmaRows<kPlaneTiles, kGroups> x = {in, 0, r + 1, spans, kMmaWarps, facts, planes, r};
    __syncthreads();
    x.begin();
    __syncthreads();
    for (int first = 0; first < spans; first += kMmaWarps, x.planes += kMmaWarps * kPlaneSpanBytes) x.put(first);
    __syncthreads();
    x.finish();
    if (threadIdx.x == 0) factors[r] = facts.factors[r];
  }
}
__device__ __noinline__ void prepare_planes(const Instruction& in, int rows, uint32_t block, uint32_t blocks,
                                            unsigned char* shared) {
  is_shared(&in);
  if (in.matrix[0].form == Form::kBF16) {
    prepare_planes_of<false>(in, rows, block, blocks, shared);
  } else {
    prepare_planes_of<true>(in, rows, block, blocks, shared);
  }
}

// Rows of x that are multiplied at a time.
__device__ __forceinline__ int mma_rows_max(const MmaRoom& room) {
  int most = kMmaTiles;
  while (most > 1 && static_cast<uint32_t>(most) * kSumBytes > room.before - sizeof(RowFacts)) most /= 2;
  return 8 * most;
}

// In all of the block's dynamic shared memory, which then holds nothing else. asked: ask_mma was called before.
__device__ __forceinline__ void multiply_mma(const Instruction& in, int rows, bool asked) {
  const int most = mma_rows_max(MmaRoom());
  const bool prepared = in.scratch != 0;
  for (int row = 0; row < rows; row += most) {
    const MmaPart part = part_of(in, row, min(rows - row, most));
    if (part.begin >= part.end) continue;
    if (in.matrix[0].form == Form::kBF16) {
      multiply_kind<MmaPlain>(in, part, asked && row == 0, prepared);
    } else {
      multiply_kind<MmaSplit>(in, part, asked && row == 0, prepared);
    }
  }
}

template <class Kind>
__device__ __forceinline__ void ask_kind(const Instruction& in, const MmaUnits& units, const MmaPart& part) {
  MmaFeed<Kind> feed(in, units, part);
  for (uint32_t i = 0; i < feed.room.depth; ++i) feed.ask();
}
// The first weights that the warp will multiply, as groups of copies, at most two; what lies before the ring is not
// touched.
__device__ __noinline__ void ask_mma(const Instruction& in, int rows) {
  is_shared(&in);
  const MmaUnits units(in);
  const MmaPart part = part_of(in, 0, min(rows, mma_rows_max(MmaRoom())));
  if (part.begin >= part.end) return;
  if (in.matrix[0].form == Form::kBF16) {
    ask_kind<MmaPlain>(in, units, part);
  } else {
    ask_kind<MmaSplit>(in, units, part);
  }
}

// What a block is the first to need of a product's weights, to the second level of cache.
__device__ __forceinline__ void fetch_units(const Instruction& in, int rows) {
  constexpr int kLines = 2;  // of a thread
  const MmaUnits units(in);
  const MmaPart part = part_of(in, 0, min(rows, 8 * kMmaTiles));
  int left = kLines, before = 0;
  for (int i = 0; i < in.matrices && left > 0; ++i) {
    const Matrix& matrix = in.matrix[i];
    const int log2 = units.each_log2(), count = (matrix.rows + (1 << log2) - 1) >> log2;
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

// Products of many rows with wgmma, for cards of 9.0. The first two groups of four warps multiply, those behind them
// fill a ring of kStages steps of kTileDepth in shared memory; each stage has a barrier that says it is full and one
// that says it is free. A tile of 128 rows is cut between the two groups by rows, one of 64 rows by columns.
//
// Products in segments (in_segments): kSegments makes one after the other and adds them; kCluster has a block of a
// cluster of four make each, and each block add a quarter of the rows, in the same order.
#pragma once

#include "baton/unit/cuda/kernels/tile.cuh"
#include "baton/unit/cuda/kernels/tile_codes.cuh"
#include "baton/unit/cuda/kernels/wgmma.cuh"

namespace baton::cuda {

enum class Cut { kWhole, kSegments, kCluster };

template <int kRowsOf, int kWidthOf, int kStagesOf, bool kCodedOf = false, Cut kCutOf = Cut::kWhole>
struct WideShape {
  static constexpr int kRows = kRowsOf, kWidth = kWidthOf, kStages = kStagesOf;
  static constexpr bool kCoded = kCodedOf;
  static constexpr Cut kCut = kCutOf;
  static constexpr int kFillers = kCoded ? 3 : 1;  // groups of four warps, each of which fills its share of the steps
  static constexpr int kThreadsAll = 256 + 128 * kFillers;
  // Registers go from threads that fill to those that multiply.
  static constexpr bool kMoves = !kCoded && (kWidth >= 192 || kCut == Cut::kSegments);
  static constexpr int kShare = kRows == 128 ? kWidth : kWidth / 2;                     // columns of a group
  static constexpr int kRun = kShare % 128 == 0 ? 64 : kShare / 2 % 32 == 0 ? 32 : 16;  // columns of the same matrix
  static constexpr uint32_t kRowBytes = kRows * 2 * kTileDepth;
  static constexpr uint32_t kStageBytes = kRowBytes + kWidth * 2 * kTileDepth;
  static constexpr uint32_t kBarriersAt = kStages * kStageBytes;
  static constexpr uint32_t kBytes = kBarriersAt + 16 * kStages + 1024;
  static constexpr int kSumPitch = kWidth + 8;  // f32 of a row of a segment's sums, in the stages' place
  static_assert(kRows == 128 || kRows == 64);
  static_assert(kCut != Cut::kCluster || kRows * kSumPitch * 4 <= kBarriersAt);
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Where a thread is in the ring.
template <int kStages>
struct Ring {
  uint32_t base, barriers, stage_bytes;
  uint32_t slot = 0, phase = 0;
  __device__ __forceinline__ uint32_t stage() const { return base + slot * stage_bytes; }
  __device__ __forceinline__ uint32_t full() const { return barriers + 16 * slot; }
  __device__ __forceinline__ uint32_t free(uint32_t of) const { return barriers + 16 * of + 8; }
  __device__ __forceinline__ void advance(int steps = 1) {
    for (slot += steps; slot >= kStages; slot -= kStages) phase ^= 1;
  }
};

// Copies of a thread of a group that fills: piece taker % 8 of every 16th row.
template <class Shape>
struct WideCopies {
  static constexpr int kRows16 = Shape::kRun / 16;
  const unsigned char* x;
  uint32_t x_is = 0, w_is = 0;  // bit i: row 16 i is there, otherwise zeros
  const unsigned char* w[Shape::kWidth / Shape::kRun];
  uint32_t taker, to;
  int64_t stride;  // of 16 rows

  __device__ __forceinline__ void begin(const Instruction& in, int32_t rows, int32_t row_tile, int32_t column_tile) {
    const int32_t pitch = in.matrix[0].pitch, first = taker >> 3, piece = taker & 7;
    const int32_t row = row_tile * Shape::kRows + first;
    to = tile_offset(first, piece);
    x = at<const unsigned char>(in.x) + (int64_t{row} * pitch + 8 * piece) * 2;
    stride = int64_t{pitch} * 32;
    x_is = w_is = 0;
#pragma unroll
    for (int i = 0; i < Shape::kRows / 16; ++i) x_is |= static_cast<uint32_t>(row + 16 * i < rows) << i;
    if constexpr (!Shape::kCoded) {
#pragma unroll
      for (int r = 0; r < Shape::kWidth / Shape::kRun; ++r) {
        const TileColumn c = tile_column(in, column_tile, Shape::kWidth, Shape::kShare, r * Shape::kRun);
        const int32_t matrix = c.matrix < 0 ? 0 : c.matrix, n = c.n + first;
        const int32_t left = c.matrix < 0 ? 0 : in.matrix[matrix].rows - n;
        w[r] = tile_weights(in, matrix) + (int64_t{n} * pitch + 8 * piece) * 2;
#pragma unroll
        for (int i = 0; i < kRows16; ++i) w_is |= static_cast<uint32_t>(16 * i < left) << (r * kRows16 + i);
      }
    }
  }

  __device__ __forceinline__ void copy(uint32_t stage, int32_t step) const {
    const int64_t along = int64_t{step} * 2 * kTileDepth;
#pragma unroll
    for (int i = 0; i < Shape::kRows / 16; ++i)
      copy_async(stage + to + 2048 * i, x + along + stride * i, (x_is >> i & 1) << 4);
    if constexpr (!Shape::kCoded) {
#pragma unroll
      for (int i = 0; i < Shape::kWidth / 16; ++i) {
        const unsigned char* const from = w[i / kRows16] + along + stride * (i % kRows16);
        copy_async(stage + Shape::kRowBytes + to + 2048 * i, from, (w_is >> i & 1) << 4);
      }
    }
  }
};

// A tile's steps, by a group that fills.
template <class Shape>
__device__ __forceinline__ void fill_tile(const Instruction& in, WideCopies<Shape>& copies, TileSteps steps,
                                          int32_t column_tile, uint32_t filler, Ring<Shape::kStages>& ring) {
  constexpr int kFillers = Shape::kFillers;
  TileCodes<Shape::kWidth, 128> codes;
  const int32_t first = steps.first + static_cast<int32_t>(filler);
  if constexpr (Shape::kCoded) {
    codes.begin(in, column_tile, Shape::kShare, copies.taker);
    if (first < steps.last) codes.fetch(in, first);
  }
  Ring<Shape::kStages> mine = ring;
  mine.advance(filler);
  for (int32_t step = first; step < steps.last; step += kFillers) {
    barrier_wait(mine.free(mine.slot), mine.phase ^ 1);
    copies.copy(mine.stage(), step);
    barrier_arrive_copied(mine.full());
    if constexpr (Shape::kCoded) {
      codes.put(in, mine.stage() + Shape::kRowBytes);
      fence_shared();
      barrier_arrive(mine.full());
      if (step + kFillers < steps.last) codes.fetch(in, step + kFillers);
    }
    mine.advance(kFillers);
  }
  ring.advance(steps.last - steps.first);
}

// Sums over steps, by a group that multiplies.
template <class Shape>
__device__ __forceinline__ void multiply_steps(TileSteps steps, uint32_t group, Ring<Shape::kStages>& ring,
                                               float (&sums)[Shape::kShare / 2]) {
  constexpr bool kBelow = Shape::kRows == 128;
  const uint32_t rows_at = kBelow ? group * 64 * 2 * kTileDepth : 0;
  const uint32_t columns_at = Shape::kRowBytes + (kBelow ? 0 : group * Shape::kShare * 2 * kTileDepth);
  uint32_t before = 0;
  for (int32_t step = steps.first; step < steps.last; ++step) {
    barrier_wait(ring.full(), ring.phase);
    fence_shared();
    const uint64_t rows = tile_descriptor(ring.stage() + rows_at);
    const uint64_t columns = tile_descriptor(ring.stage() + columns_at);
    wgmma_touch(sums);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileDepth / 16; ++k)
      wgmma<Shape::kShare>(sums, rows + 2 * k, columns + 2 * k, step > steps.first || k > 0);
    wgmma_commit();
    wgmma_touch(sums);
    wgmma_wait<1>();  // the step before this one is done
    if (step > steps.first && lane() == 0) barrier_arrive(ring.free(before));
    before = ring.slot;
    ring.advance();
  }
  wgmma_wait<0>();
  wgmma_touch(sums);
  if (lane() == 0) barrier_arrive(ring.free(before));
}

// Behind the sums of a segment in each block of a cluster: their sum and the epilogue, of a quarter of the rows.
template <class Shape>
__device__ __forceinline__ void finish_segments(const Instruction& in, int32_t rows, int32_t row_tile,
                                                int32_t column_tile, uint32_t base) {
  constexpr int kEach = Shape::kRows / kTileSegments, kFours = Shape::kWidth / 4;
  const uint32_t rank = cluster_rank();
  for (int i = threadIdx.x; i < kEach * kFours; i += Shape::kThreadsAll) {
    const int within = static_cast<int>(rank) * kEach + i / kFours, c = i % kFours * 4;
    const int32_t row = row_tile * Shape::kRows + within;
    const TileColumn column = tile_column(in, column_tile, Shape::kWidth, Shape::kShare, c);
    if (row >= rows || column.matrix < 0) continue;
    const uint32_t from = base + (within * Shape::kSumPitch + c) * 4;
    float4 part[kTileSegments];
#pragma unroll
    for (int s = 0; s < kTileSegments; ++s) part[s] = load_cluster(from, s);
    float4 sum = part[0];
#pragma unroll
    for (int s = 1; s < kTileSegments; ++s)
      sum.x += part[s].x, sum.y += part[s].y, sum.z += part[s].z, sum.w += part[s].w;
    const int32_t width = in.matrix[column.matrix].rows;
    if (in.epilogue == Epilogue::kAdd && column.n < width) {  // rows of z end in zeros
      const float4 z = *reinterpret_cast<const float4*>(row_of(in.z, width, row) + column.n);
      sum.x += z.x, sum.y += z.y, sum.z += z.z, sum.w += z.w;
    }
    const int32_t pitch = pitch_of(width), left = width - column.n;
    const int64_t to = int64_t{row} * pitch + column.n;
    if (in.outs[column.matrix] != 0) {
      float* const out = at<float>(in.outs[column.matrix]) + to;
      store_two(out, left, sum.x, sum.y), store_two(out + 2, left - 2, sum.z, sum.w);
    }
    if (in.to_bf16 && column.matrix == 0) {
      auto* const out = at<__nv_bfloat16>(in.out) + to;
      store_two(out, left, sum.x, sum.y), store_two(out + 2, left - 2, sum.z, sum.w);
    }
  }
}

template <class Shape>
__device__ __forceinline__ void keep_sums(uint32_t group, uint32_t base, const float (&sums)[Shape::kShare / 2]) {
  constexpr bool kBelow = Shape::kRows == 128;
  meet<1, 256>();  // both groups are done with the stages
  const uint32_t row = (kBelow ? group * 64 : 0) + (warp() & 3) * 16 + value_row(lane(), 0);
  const uint32_t column = (kBelow ? 0 : group * Shape::kShare) + value_column(lane(), 0);
#pragma unroll
  for (int g = 0; g < Shape::kShare / 8; ++g) {
#pragma unroll
    for (int v = 0; v < 4; v += 2) {
      const uint32_t to = base + ((row + 4 * v) * Shape::kSumPitch + column + 8 * g) * 4;
      store_shared(to, sums[4 * g + v], sums[4 * g + v + 1]);
    }
  }
}

// A tile, by a group that multiplies.
template <class Shape>
__device__ __forceinline__ void multiply_tile(const Instruction& in, int32_t rows, int32_t row_tile,
                                              int32_t column_tile, uint32_t rank, uint32_t group,
                                              Ring<Shape::kStages>& ring) {
  constexpr bool kBelow = Shape::kRows == 128;
  const int32_t pitch = in.matrix[0].pitch;
  float sums[Shape::kShare / 2];
  if constexpr (Shape::kCut == Cut::kCluster) {
    multiply_steps<Shape>(segment_steps(pitch, static_cast<int32_t>(rank), kTileSegments), group, ring, sums);
    keep_sums<Shape>(group, ring.base, sums);
    return;
  }
  if constexpr (Shape::kCut == Cut::kWhole) multiply_steps<Shape>(segment_steps(pitch, 0, 1), group, ring, sums);
  if constexpr (Shape::kCut == Cut::kSegments) {
    multiply_steps<Shape>(segment_steps(pitch, 0, kTileSegments), group, ring, sums);
    for (int s = 1; s < kTileSegments; ++s) {
      float more[Shape::kShare / 2];
      multiply_steps<Shape>(segment_steps(pitch, s, kTileSegments), group, ring, more);
#pragma unroll
      for (int i = 0; i < Shape::kShare / 2; ++i) sums[i] += more[i];
    }
  }
  const int32_t row = row_tile * Shape::kRows + (kBelow ? group * 64 : 0) + (warp() & 3) * 16 + value_row(lane(), 0);
  const int32_t column = kBelow ? 0 : static_cast<int32_t>(group) * Shape::kShare;
  finish_rows<Shape::kShare / 8>(in, {rows, row, column_tile, Shape::kWidth, Shape::kShare, column}, sums);
}

template <int kStages>
__device__ __forceinline__ void begin_ring(Ring<kStages>& ring, uint32_t filled_by) {
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kStages; ++i) {
      barrier_init(ring.barriers + 16 * i, filled_by);
      barrier_init(ring.free(i), 8);  // a thread of each warp that multiplies
    }
    barriers_ready();
  }
  __syncthreads();
}

template <class Shape>
__device__ __forceinline__ void tile_wide(const Instruction& in, const Pass& pass, unsigned char* shared) {
  const int32_t rows = tile_rows(in, pass);
  const TileGrid grid = tile_grid(in, rows, Shape::kRows, Shape::kWidth);
  Ring<Shape::kStages> ring;
  ring.base = (shared_address(shared) + 1023) & ~1023u;
  ring.barriers = ring.base + Shape::kBarriersAt, ring.stage_bytes = Shape::kStageBytes;
  begin_ring(ring, Shape::kCoded ? 256 : 128);
  const uint32_t group = threadIdx.x / 128;
  const auto tiles = static_cast<uint32_t>(grid.tiles());
  WideCopies<Shape> copies;
  copies.taker = threadIdx.x & 127;
  if constexpr (Shape::kCut == Cut::kCluster) {
    const uint32_t rank = cluster_rank();
    const TileSteps steps = segment_steps(in.matrix[0].pitch, static_cast<int32_t>(rank), kTileSegments);
    for (uint32_t tile = blockIdx.x / kTileSegments; tile < tiles; tile += gridDim.x / kTileSegments) {
      const int32_t row_tile = grid.row_tile(tile), column_tile = grid.column_tile(tile);
      if (group >= 2) {
        copies.begin(in, rows, row_tile, column_tile);
        fill_tile<Shape>(in, copies, steps, column_tile, group - 2, ring);
      } else {
        multiply_tile<Shape>(in, rows, row_tile, column_tile, rank, group, ring);
      }
      __syncwarp();
      cluster_sync();
      finish_segments<Shape>(in, rows, row_tile, column_tile, ring.base);
      __syncwarp();
      cluster_sync();  // before the next tile takes the sums' place
    }
  } else if (group >= 2) {
    if constexpr (Shape::kMoves) give_registers<72>();
    for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      copies.begin(in, rows, grid.row_tile(tile), grid.column_tile(tile));
      fill_tile<Shape>(in, copies, segment_steps(in.matrix[0].pitch, 0, 1), grid.column_tile(tile), group - 2, ring);
    }
    copies_end();
  } else {
    if constexpr (Shape::kMoves) take_registers<216>();
    for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
      multiply_tile<Shape>(in, rows, grid.row_tile(tile), grid.column_tile(tile), 0, group, ring);
  }
}

#endif

}  // namespace baton::cuda

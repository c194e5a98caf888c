// Products of many rows with wgmma, for cards of 9.0. The first two groups of four warps multiply, those behind them
// fill a ring of stages (tile_fill.cuh). A tile of 128 rows is cut between the two groups by rows, one of 64 rows by
// columns. Two tiles under each other (kBeside) have the same columns, of which each block brings one half for both.
// Products in segments (tile_segments): kSegments makes one after the other and adds them; kCluster has a block of a
// cluster make each, and each block add its share of the rows, in the same order.
#pragma once

#include "baton/unit/cuda/kernels/tile_fill.cuh"
#include "baton/unit/cuda/kernels/tile_patches.cuh"
#include "baton/unit/cuda/kernels/wgmma.cuh"

namespace baton::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A stage may be filled anew: by all blocks that bring a part of it.
template <class Shape>
__device__ __forceinline__ void free_stage(const Ring<Shape::kStages>& ring, uint32_t of) {
  if constexpr (Shape::kBeside == 1) {
    if (lane() == 0) barrier_arrive(ring.free(of));
  } else {
    if (lane() < Shape::kBeside) barrier_arrive_at(ring.free(of), lane());
  }
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
    if constexpr (Shape::kCoded) fence_shared();
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
    if (step > steps.first) free_stage<Shape>(ring, before);
    before = ring.slot;
    ring.advance();
  }
  wgmma_wait<0>();
  wgmma_touch(sums);
  free_stage<Shape>(ring, before);
}

// Behind the sums of a segment in each block of a cluster: their sum and the epilogue, of its share of the rows.
template <class Shape>
__device__ __forceinline__ void finish_segments(const Instruction& in, int32_t rows, int32_t row_tile,
                                                int32_t column_tile, uint32_t base) {
  constexpr int kEach = Shape::kRows / Shape::kBlocks, kFours = Shape::kWidth / 4;
  const uint32_t rank = cluster_rank();
  for (int i = threadIdx.x; i < kEach * kFours; i += Shape::kThreadsAll) {
    const int within = static_cast<int>(rank) * kEach + i / kFours, c = i % kFours * 4;
    const int32_t row = row_tile * Shape::kRows + within;
    const TileColumn column = tile_column(in, column_tile, Shape::kWidth, Shape::kShare, c);
    if (row >= rows || column.matrix < 0) continue;
    const uint32_t from = base + (within * Shape::kSumPitch + c) * 4;
    float4 part[Shape::kBlocks];
#pragma unroll
    for (int s = 0; s < Shape::kBlocks; ++s) part[s] = load_cluster(from, s);
    float4 sum = part[0];
#pragma unroll
    for (int s = 1; s < Shape::kBlocks; ++s)
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

// A tile's sums, by a group that multiplies; of a cluster's tile those of its segment.
template <class Shape>
__device__ __forceinline__ void sum_tile(const Instruction& in, uint32_t rank, uint32_t group,
                                         Ring<Shape::kStages>& ring, float (&sums)[Shape::kShare / 2]) {
  const int32_t pitch = in.matrix[0].pitch;
  if constexpr (Shape::kCut == Cut::kWhole) multiply_steps<Shape>(segment_steps(pitch, 0, 1), group, ring, sums);
  if constexpr (Shape::kCut == Cut::kCluster)
    multiply_steps<Shape>(segment_steps(pitch, static_cast<int32_t>(rank), Shape::kBlocks), group, ring, sums);
  if constexpr (Shape::kCut == Cut::kSegments) {
    multiply_steps<Shape>(segment_steps(pitch, 0, Shape::kSegments), group, ring, sums);
    for (int s = 1; s < Shape::kSegments; ++s) {
      float more[Shape::kShare / 2];
      multiply_steps<Shape>(segment_steps(pitch, s, Shape::kSegments), group, ring, more);
#pragma unroll
      for (int i = 0; i < Shape::kShare / 2; ++i) sums[i] += more[i];
    }
  }
}

// Where the thread's values of a tile are.
template <class Shape>
__device__ __forceinline__ TilePart part_of(int32_t rows, int32_t row_tile, int32_t column_tile, uint32_t group) {
  constexpr bool kBelow = Shape::kRows == 128;
  const int32_t row = row_tile * Shape::kRows + (kBelow ? group * 64 : 0) + (warp() & 3) * 16 + value_row(lane(), 0);
  const int32_t column = kBelow ? 0 : static_cast<int32_t>(group) * Shape::kShare;
  return {rows, row, column_tile, Shape::kWidth, Shape::kShare, column};
}

template <class Shape>
__device__ __forceinline__ Ring<Shape::kStages> begin_ring(unsigned char* shared) {
  Ring<Shape::kStages> ring;
  ring.base = (shared_address(shared) + 1023) & ~1023u;
  ring.barriers = ring.base + Shape::kBarriersAt, ring.stage_bytes = Shape::kStageBytes;
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < Shape::kStages; ++i) {
      barrier_init(ring.barriers + 16 * i, Shape::kCoded ? 256 : 1);
      barrier_init(ring.free(i), 8 * Shape::kBeside);  // a thread of each warp that multiplies
    }
    barriers_ready();
  }
  if constexpr (Shape::kBeside > 1) cluster_meet();  // others arrive at them, too
  __syncthreads();
  return ring;
}

// Products of codes: of rows so few that nobody shares a tile's columns.
template <class Shape>
__device__ __forceinline__ void tile_codes(const Instruction& in, int32_t rows, unsigned char* shared) {
  constexpr bool kCluster = Shape::kCut == Cut::kCluster;
  constexpr uint32_t kBlocks = Shape::kBlocks;
  Ring<Shape::kStages> ring = begin_ring<Shape>(shared);
  const TileGrid grid = tile_grid(in, rows, Shape::kRows, Shape::kWidth);
  const uint32_t group = threadIdx.x / 128, rank = kCluster ? cluster_rank() : 0;
  const TileSteps steps = segment_steps(in.matrix[0].pitch, static_cast<int32_t>(rank), kBlocks);
  CodedCopies<Shape> copies;
  copies.taker = threadIdx.x & 127;
  for (int32_t tile = blockIdx.x / kBlocks; tile < grid.tiles(); tile += gridDim.x / kBlocks) {
    const int32_t row_tile = grid.row_tile(tile), column_tile = grid.column_tile(tile);
    if (group >= 2) {
      copies.begin(in, rows, row_tile);
      fill_codes<Shape>(in, copies, steps, column_tile, group - 2, ring);
    } else {
      float sums[Shape::kShare / 2];
      sum_tile<Shape>(in, rank, group, ring, sums);
      if constexpr (kCluster) {
        keep_sums<Shape>(group, ring.base, sums);
      } else {
        finish_rows<Shape::kShare / 8>(in, part_of<Shape>(rows, row_tile, column_tile, group), sums);
      }
    }
    if constexpr (kCluster) {
      __syncwarp();
      cluster_sync();
      finish_segments<Shape>(in, rows, row_tile, column_tile, ring.base);
      __syncwarp();
      cluster_sync();  // before the next tile takes the sums' place
    }
  }
  if (group >= 2) copies_end();
}

// One tile of a cluster that shares it.
template <class Shape>
__device__ __forceinline__ void tile_cluster(const TileWork& work, unsigned char* shared) {
  const Instruction& in = work.instruction;
  Ring<Shape::kStages> ring = begin_ring<Shape>(shared);
  const TileGrid grid = tile_grid(in, work.rows, Shape::kRows, Shape::kWidth);
  const uint32_t group = threadIdx.x / 128, rank = cluster_rank();
  const auto tile = static_cast<int32_t>(blockIdx.x / Shape::kBlocks);
  const int32_t row_tile = grid.row_tile(tile), column_tile = grid.column_tile(tile);
  if (group < 2) {
    wait_for_those_before();
    float sums[Shape::kShare / 2];
    sum_tile<Shape>(in, rank, group, ring, sums);
    keep_sums<Shape>(group, ring.base, sums);
  } else {
    if (threadIdx.x == 256) {
      const TileSteps steps = segment_steps(in.matrix[0].pitch, static_cast<int32_t>(rank), Shape::kBlocks);
      WideBoxes<Shape> boxes(work);
      boxes.begin(row_tile, column_tile, 0);
      const int32_t begun = fill_ahead(boxes, steps, ring);
      wait_for_those_before();
      fill_tile(boxes, steps, begun, ring);
    }
    __syncwarp();
    wait_for_those_before();
  }
  __syncwarp();
  cluster_sync();
  finish_segments<Shape>(in, work.rows, row_tile, column_tile, ring.base);
  __syncwarp();
  cluster_meet();  // nobody reads sums of a block that is gone
}

template <class Shape>
__device__ __forceinline__ void tile_wide(const TileWork& work, unsigned char* shared) {
  const Instruction& in = work.instruction;
  Ring<Shape::kStages> ring = begin_ring<Shape>(shared);
  const TileGrid grid = tile_grid(in, work.rows, Shape::kRows * static_cast<int32_t>(Shape::kBeside), Shape::kWidth);
  const uint32_t group = threadIdx.x / 128, rank = Shape::kBeside > 1 ? cluster_rank() : 0;
  const auto row_tile = [&](int32_t tile) {
    return grid.row_tile(tile) * static_cast<int32_t>(Shape::kBeside) + static_cast<int32_t>(rank);
  };
  const auto begin = static_cast<int32_t>(blockIdx.x / Shape::kBeside);
  const auto stride = static_cast<int32_t>(gridDim.x / Shape::kBeside);
  if (group >= 2) {
    if constexpr (Shape::kMoves) give_registers<40>();
    if (threadIdx.x == 256) {
      const TileSteps steps = segment_steps(in.matrix[0].pitch, 0, 1);
      WideBoxes<Shape> boxes(work);
      boxes.begin(row_tile(begin), grid.column_tile(begin), rank);
      int32_t begun = fill_ahead(boxes, steps, ring);
      wait_for_those_before();
      for (int32_t tile = begin; tile < grid.tiles(); tile += stride, begun = 0) {
        if (tile != begin) boxes.begin(row_tile(tile), grid.column_tile(tile), rank);
        fill_tile(boxes, steps, begun, ring);
      }
    }
  } else {
    if constexpr (Shape::kMoves) take_registers<232>();
    wait_for_those_before();
    Patches<Shape::kPatches> patches = {ring.base + Shape::kPatchesAt + warp() * (Shape::kPatches * kPatchBytes)};
    for (int32_t tile = begin; tile < grid.tiles(); tile += stride) {
      float sums[Shape::kShare / 2];
      sum_tile<Shape>(in, 0, group, ring, sums);
      const TilePart part = part_of<Shape>(work.rows, row_tile(tile), grid.column_tile(tile), group);
      if constexpr (Shape::kPatches > 0) {
        const auto above = static_cast<int32_t>(value_row(lane(), 0));
        finish_patches<Shape::kShare / 8>(work, part, part.row - above, patches, sums);
      } else {
        finish_rows<Shape::kShare / 8>(in, part, sums);
      }
    }
    if (Shape::kPatches > 0 && lane() == 0) boxes_done();
  }
  if constexpr (Shape::kBeside > 1) {
    __syncwarp();
    cluster_meet();  // nobody arrives at barriers of a block that is gone
  }
}

#endif

}  // namespace baton::cuda

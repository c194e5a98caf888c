// What fills the shared memory of products by wgmma (tile_wide.cuh): a ring of stages, each a step of kTileDepth of x
// and of the matrices, with a barrier that says it is full and one that says it is free. Boxes are brought by one
// thread (cp.async.bulk.tensor), codes decoded by three groups of warps.
#pragma once

#include "baton/unit/cuda/kernels/tile.cuh"
#include "baton/unit/cuda/kernels/tile_codes.cuh"

namespace baton::cuda {

enum class Cut { kWhole, kSegments, kCluster };

template <int kRowsOf, int kWidthOf, int kStagesOf, uint32_t kBesideOf = 1, Cut kCutOf = Cut::kWhole,
          bool kCodedOf = false, int kSegmentsOf = kTileSegments>
struct WideShape {
  static constexpr int kRows = kRowsOf, kWidth = kWidthOf, kStages = kStagesOf;
  static constexpr bool kCoded = kCodedOf;
  static constexpr Cut kCut = kCutOf;
  static constexpr int kSegments = kCutOf == Cut::kWhole ? 1 : kSegmentsOf;
  static constexpr int kBlocks = kCutOf == Cut::kCluster ? kSegments : 1;  // of a cluster that shares a tile
  // Blocks of a cluster that have the same columns of tiles under each other: each brings a part of them for all.
  static constexpr uint32_t kBeside = kBesideOf;
  static constexpr uint32_t kFillers =
      kCoded ? 3 : 1;  // groups of four warps, each of which fills its share of the steps
  static constexpr int kThreadsAll = 256 + 128 * kFillers;
  // Registers go from threads that fill to those that multiply.
  static constexpr bool kMoves = !kCoded && (kWidth >= 192 || kCut == Cut::kSegments);
  static constexpr int kShare = kRows == 128 ? kWidth : kWidth / 2;         // columns of a group
  static constexpr int kRun = tile_run(kRows, kWidth);                      // columns of a box
  static constexpr int kBoxes = kWidth / kRun / static_cast<int>(kBeside);  // that this block brings, in each step
  static constexpr uint32_t kRowBytes = kRows * 2 * kTileDepth;
  static constexpr uint32_t kStageBytes = kRowBytes + kWidth * 2 * kTileDepth;
  static constexpr int kPatches = kCoded || kCut == Cut::kCluster ? 0 : tile_patches(kRows, kWidth);
  static constexpr uint32_t kPatchesAt = kStages * kStageBytes;
  static constexpr uint32_t kBarriersAt = kPatchesAt + kPatches * kPatchWarps * kPatchBytes;
  static constexpr uint32_t kBytes = kBarriersAt + 16 * kStages + 1024;
  static constexpr int kSumPitch = kWidth + 8;  // f32 of a row of a segment's sums, in the stages' place
  static_assert(kRows == 128 || kRows == 64);
  static_assert(kWidth % (kRun * kBeside) == 0 && (kBeside == 1 || (!kCoded && kCut != Cut::kCluster)));
  static_assert(kCut != Cut::kCluster || kRows * kSumPitch * 4 <= kBarriersAt);
  static_assert(kBytes <= 227 * 1024);
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
  __device__ __forceinline__ void advance() {
    if (++slot == kStages) slot = 0, phase ^= 1;
  }
  __device__ __forceinline__ void advance(uint32_t steps) {
    for (slot += steps; slot >= kStages; slot -= kStages) phase ^= 1;
  }
};

// What one thread fills stages with: boxes of x and of the matrices.
template <class Shape>
struct WideBoxes {
  const TileWork& work;
  const TensorMap* map[Shape::kBoxes];
  int32_t n[Shape::kBoxes];  // the box's first row of its matrix
  int32_t row;
  uint32_t first;  // box of the tile

  __device__ __forceinline__ explicit WideBoxes(const TileWork& of) : work(of) {
    fetch_map(&of.x);
    for (int32_t i = 0; i < of.instruction.matrices; ++i) fetch_map(of.matrix + i);
  }
  __device__ __forceinline__ void begin(int32_t row_tile, int32_t column_tile, uint32_t rank) {
    row = row_tile * Shape::kRows, first = rank * Shape::kBoxes;
#pragma unroll
    for (int i = 0; i < Shape::kBoxes; ++i) {
      const int32_t c = (static_cast<int32_t>(first) + i) * Shape::kRun;
      const TileColumn column = tile_column(work.instruction, column_tile, Shape::kWidth, Shape::kShare, c);
      map[i] = work.matrix + max(column.matrix, 0);
      n[i] = column.matrix < 0 ? 1 << 30 : column.n;  // behind all: zeros
    }
  }
  __device__ __forceinline__ void columns(const Ring<Shape::kStages>& ring, int32_t step) const {
    barrier_expect(ring.full(), Shape::kStageBytes);
#pragma unroll
    for (int i = 0; i < Shape::kBoxes; ++i) {
      const uint32_t to = ring.stage() + Shape::kRowBytes + (first + i) * (Shape::kRun * 2 * kTileDepth);
      copy_box<Shape::kBeside>(to, map[i], step * kTileDepth, n[i], ring.full());
    }
  }
  __device__ __forceinline__ void rows(const Ring<Shape::kStages>& ring, int32_t step) const {
    copy_box<1>(ring.stage(), &work.x, step * kTileDepth, row, ring.full());
  }
};

// A tile's steps, by that thread. Of the first `begun` it has asked for the columns before.
template <class Shape>
__device__ __forceinline__ void fill_tile(const WideBoxes<Shape>& boxes, TileSteps steps, int32_t begun,
                                          Ring<Shape::kStages>& ring) {
  for (int32_t step = steps.first; step < steps.last; ++step) {
    if (step - steps.first >= begun) {
      barrier_wait(ring.free(ring.slot), ring.phase ^ 1);
      boxes.columns(ring, step);
    }
    boxes.rows(ring, step);
    ring.advance();
  }
}

// What can be asked for before x is there: columns of a block's first steps. How many steps.
template <class Shape>
__device__ __forceinline__ int32_t fill_ahead(const WideBoxes<Shape>& boxes, TileSteps steps,
                                              const Ring<Shape::kStages>& ring) {
  const Instruction& in = boxes.work.instruction;
  for (int32_t i = 0; i < in.matrices; ++i)
    if (in.matrix[i].form != Form::kBF16) return 0;  // made by the kernel before this one
  Ring<Shape::kStages> at = ring;
  const int32_t count = min(steps.last - steps.first, Shape::kStages);
  for (int32_t i = 0; i < count; ++i, at.advance()) boxes.columns(at, steps.first + i);
  return count;
}

// Codes: groups that fill copy x, piece taker % 8 of every 16th row, and decode.
template <class Shape>
struct CodedCopies {
  const unsigned char* x;
  uint32_t x_is = 0;  // bit i: row 16 i is there, otherwise zeros
  uint32_t taker, to;
  int64_t stride;  // of 16 rows

  __device__ __forceinline__ void begin(const Instruction& in, int32_t rows, int32_t row_tile) {
    const int32_t pitch = in.matrix[0].pitch, first = taker >> 3, piece = taker & 7;
    const int32_t row = row_tile * Shape::kRows + first;
    to = tile_offset(first, piece);
    x = at<const unsigned char>(in.x) + (int64_t{row} * pitch + 8 * piece) * 2;
    stride = int64_t{pitch} * 32;
    x_is = 0;
#pragma unroll
    for (int i = 0; i < Shape::kRows / 16; ++i) x_is |= static_cast<uint32_t>(row + 16 * i < rows) << i;
  }
  __device__ __forceinline__ void copy(uint32_t stage, int32_t step) const {
    const int64_t along = int64_t{step} * 2 * kTileDepth;
#pragma unroll
    for (int i = 0; i < Shape::kRows / 16; ++i)
      copy_async(stage + to + 2048 * i, x + along + stride * i, (x_is >> i & 1) << 4);
  }
};

// A tile's steps, by a group that fills.
template <class Shape>
__device__ __forceinline__ void fill_codes(const Instruction& in, const CodedCopies<Shape>& copies, TileSteps steps,
                                           int32_t column_tile, uint32_t filler, Ring<Shape::kStages>& ring) {
  constexpr uint32_t kFillers = Shape::kFillers;
  TileCodes<Shape::kWidth, 128> codes;
  const int32_t first = steps.first + static_cast<int32_t>(filler);
  codes.begin(in, column_tile, Shape::kShare, copies.taker);
  if (first < steps.last) codes.fetch(in, first);
  Ring<Shape::kStages> mine = ring;
  mine.advance(filler);
  for (int32_t step = first; step < steps.last; step += kFillers) {
    barrier_wait(mine.free(mine.slot), mine.phase ^ 1);
    copies.copy(mine.stage(), step);
    barrier_arrive_copied(mine.full());
    codes.put(in, mine.stage() + Shape::kRowBytes);
    fence_shared();
    barrier_arrive(mine.full());
    if (step + kFillers < steps.last) codes.fetch(in, step + kFillers);
    mine.advance(uint32_t{kFillers});
  }
  ring.advance(static_cast<uint32_t>(steps.last - steps.first));
}

#endif

}  // namespace baton::cuda

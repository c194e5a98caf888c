// Products of many rows with mma, for cards of 8.0 and up: 256 threads, eight warps, two of them above each other and
// four side by side; a ring of kStages steps of kTileDepth in shared memory.
#pragma once

#include "baton/unit/cuda/kernels/tile.cuh"
#include "baton/unit/cuda/kernels/tile_codes.cuh"

namespace baton::cuda {

template <int kRows, int kWidth, int kStages>
struct PlainShape {
  static constexpr uint32_t kRowBytes = kRows * 2 * kTileDepth;  // of a stage, the rows of x
  static constexpr uint32_t kStageBytes = kRowBytes + kWidth * 2 * kTileDepth;
  static constexpr uint32_t kBytes = kStages * kStageBytes;
  static constexpr int kWarpRows = kRows / 2, kShare = kWidth / 4;
  static constexpr int kRowTiles = kWarpRows / 16, kGroups = kShare / 8;
};

// Copies of a thread: piece threadIdx.x % 8 of every 32nd row, of x and of matrices in bf16.
template <int kRows, int kWidth>
struct PlainCopies {
  const unsigned char* x[kRows / 32];  // nullptr: zeros
  const unsigned char* w[kWidth / 32];

  __device__ __forceinline__ void begin(const Instruction& in, int32_t rows, int32_t row_tile, int32_t column_tile,
                                        bool coded) {
    const int32_t pitch = in.matrix[0].pitch, first = threadIdx.x >> 3, piece = threadIdx.x & 7;
#pragma unroll
    for (int i = 0; i < kRows / 32; ++i) {
      const int32_t row = row_tile * kRows + first + 32 * i;
      x[i] = row < rows ? at<const unsigned char>(in.x) + (int64_t{row} * pitch + 8 * piece) * 2 : nullptr;
    }
    if (coded) return;
#pragma unroll
    for (int i = 0; i < kWidth / 32; ++i) {
      const TileColumn c = tile_column(in, column_tile, kWidth, kWidth / 4, first + 32 * i);
      const bool is = c.matrix >= 0 && c.n < in.matrix[c.matrix < 0 ? 0 : c.matrix].rows;
      w[i] = is ? tile_weights(in, c.matrix) + (int64_t{c.n} * pitch + 8 * piece) * 2 : nullptr;
    }
  }

  __device__ __forceinline__ void copy(const Instruction& in, uint32_t stage, int32_t step, bool coded) const {
    const uint32_t to = stage + tile_offset(threadIdx.x >> 3, threadIdx.x & 7);
#pragma unroll
    for (int i = 0; i < kRows / 32; ++i) put(in, to + i * 4096, x[i], step);
    if (coded) return;
#pragma unroll
    for (int i = 0; i < kWidth / 32; ++i) put(in, to + kRows * 128 + i * 4096, w[i], step);
  }

  __device__ __forceinline__ static void put(const Instruction& in, uint32_t to, const unsigned char* row,
                                             int32_t step) {
    const auto* const from = row != nullptr ? row + step * 2 * kTileDepth : at<const unsigned char>(in.x);
    copy_async(to, from, row != nullptr ? 16 : 0);
  }
};

// A warp's part of a step.
template <class Shape>
__device__ __forceinline__ void multiply_step(uint32_t stage, uint32_t warp_row, uint32_t warp_column,
                                              float (&sums)[Shape::kRowTiles][Shape::kGroups * 4]) {
  const uint32_t rows = stage, columns = stage + Shape::kRowBytes;
#pragma unroll
  for (uint32_t k = 0; k < kTileDepth / 16; ++k) {
    uint32_t a[Shape::kRowTiles][4];
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
      const uint32_t row = warp_row + 16 * i + row_of_lane(lane());
      load_matrices(a[i], rows + tile_offset(row, 2 * k + piece_of_lane(lane())));
    }
#pragma unroll
    for (int g = 0; g < Shape::kGroups; g += 2) {
      uint32_t b[4];
      const uint32_t column = warp_column + 8 * g + column_of_lane(lane());
      load_matrices(b, columns + tile_offset(column, 2 * k + column_piece_of_lane(lane())));
#pragma unroll
      for (int i = 0; i < Shape::kRowTiles; ++i) {
        multiply_add(sums[i] + 4 * g, a[i], b[0], b[1]);
        multiply_add(sums[i] + 4 * g + 4, a[i], b[2], b[3]);
      }
    }
  }
}

template <int kRows, int kWidth, int kStages, bool kCoded>
__device__ __forceinline__ void tile_plain(const Instruction& in, const Pass& pass, unsigned char* shared) {
  using Shape = PlainShape<kRows, kWidth, kStages>;
  const int32_t rows = tile_rows(in, pass), steps = in.matrix[0].pitch / kTileDepth;
  const TileGrid grid = tile_grid(in, rows, kRows, kWidth);
  const uint32_t base = shared_address(shared);
  const uint32_t warp_row = warp() / 4 * Shape::kWarpRows, warp_column = warp() % 4 * Shape::kShare;
  const auto stage_of = [&](int32_t step) { return base + step % kStages * Shape::kStageBytes; };
  for (int32_t tile = blockIdx.x; tile < grid.tiles(); tile += gridDim.x) {
    const int32_t row_tile = grid.row_tile(tile), column_tile = grid.column_tile(tile);
    PlainCopies<kRows, kWidth> copies;
    copies.begin(in, rows, row_tile, column_tile, kCoded);
    TileCodes<kWidth, kPlainThreads> codes;
    if constexpr (kCoded) codes.begin(in, column_tile, Shape::kShare, threadIdx.x);
    float sums[Shape::kRowTiles][Shape::kGroups * 4] = {};
    for (int32_t ahead = 0; ahead < steps + kStages - 1; ++ahead) {
      const int32_t step = ahead - (kStages - 1);
      if (step >= 0) {
        copies_wait<kStages - 2>();
        __syncthreads();  // this step is here, and all are done with the one before it
      }
      if (ahead < steps) {
        copies.copy(in, stage_of(ahead), ahead, kCoded);
        if constexpr (kCoded) codes.fetch(in, ahead);
      }
      copies_commit();
      if (step >= 0) multiply_step<Shape>(stage_of(step), warp_row, warp_column, sums);
      if constexpr (kCoded) {
        if (ahead < steps) codes.put(in, stage_of(ahead) + Shape::kRowBytes);
      }
    }
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
      const int32_t row = row_tile * kRows + warp_row + 16 * i + value_row(lane(), 0);
      const TilePart part = {rows, row, column_tile, kWidth, Shape::kShare, static_cast<int32_t>(warp_column)};
      finish_rows<Shape::kGroups>(in, part, sums[i]);
    }
    __syncthreads();  // before the next tile's copies
  }
}

}  // namespace baton::cuda

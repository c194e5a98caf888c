// How products of many rows are cut into tiles, and where a tile's values lie: arithmetic that the kernels
// (kernels/tile*.cuh), the choice of a kernel (tile_geometry.h) and their tests share.
//
// A tile is some rows of x times some columns, which are rows of the matrices: the columns of the matrices lie side by
// side, each matrix's padded to a multiple of kPadding. Of two matrices whose products meet in one value (kSwiGlu,
// kGeGlu), a group of warps has as many columns of the one as of the other, so that a thread has both products.
//
// Of each row of a tile kTileDepth values of K are in shared memory at a time: rows of 128 bytes, whose pieces of 16
// bytes change places so that eight rows' equal pieces lie in different banks. That is what wgmma calls a swizzle of
// 128 bytes, if a tile begins at a multiple of 1024.
#pragma once

#include <cstdint>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

inline constexpr int32_t kTileDepth = 64;
inline constexpr int32_t kPlainThreads = 256;  // of the kernels of tile_plain.cuh
// A sum over K of a product with few columns is one of so many sums over parts of K, added in their order: be they made
// by one block or by as many. How many is a matter of the product's shape alone (tile_segments): the same row has the
// same bits among however many.
inline constexpr int32_t kTileSegments = 4, kTileHalves = 2;

// From a tile's begin, of a row's piece.
BATON_BOTH constexpr uint32_t tile_offset(uint32_t row, uint32_t piece) {
  return row * (2 * kTileDepth) + ((piece ^ (row & 7)) << 4);
}

// A matrix that wgmma reads: rows of K as above, groups of eight rows 1024 bytes apart; `shared` is where it begins.
BATON_BOTH constexpr uint64_t tile_descriptor(uint32_t shared) {
  return static_cast<uint64_t>((shared & 0x3ffff) >> 4) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

BATON_BOTH constexpr bool is_paired(const Instruction& in) {
  return in.epilogue == Epilogue::kSwiGlu || in.epilogue == Epilogue::kGeGlu;
}

// Of all matrices together.
BATON_BOTH constexpr int32_t tile_columns(const Instruction& in) {
  int32_t columns = 0;
  for (int32_t i = 0; i < in.matrices; ++i) columns += pitch_of(in.matrix[i].rows);
  return columns;
}

// kTileSegments, kTileHalves, or 1.
BATON_BOTH constexpr int32_t tile_segments(const Instruction& in) {
  const int32_t columns = tile_columns(in), pitch = in.matrix[0].pitch;
  if (is_paired(in)) return 1;
  if (columns <= 1024 && pitch >= 1024) return kTileSegments;
  return columns <= 2048 && pitch >= 4096 ? kTileHalves : 1;
}

// Where a matrix that is not in bf16 lies in scratch memory once baton_unpack has run; of all: how many bytes there
// are.
BATON_BOTH constexpr uint64_t unpacked_offset(const Instruction& in, int32_t matrix) {
  uint64_t bytes = 0;
  for (int32_t i = 0; i < matrix; ++i) {
    if (in.matrix[i].form != Form::kBF16)
      bytes += 2 * static_cast<uint64_t>(in.matrix[i].rows) * static_cast<uint64_t>(in.matrix[i].pitch);
  }
  return bytes;
}
BATON_BOTH constexpr uint64_t unpacked_bytes(const Instruction& in) { return unpacked_offset(in, in.matrices); }

// Steps of kTileDepth of a segment: [first, last).
struct TileSteps {
  int32_t first, last;
};
BATON_BOTH constexpr TileSteps segment_steps(int32_t pitch, int32_t segment, int32_t segments) {
  const int32_t steps = pitch / kTileDepth;
  return {steps * segment / segments, steps * (segment + 1) / segments};
}

// What a column of a tile is: row n of a matrix; n may lie behind its rows. matrix -1: behind all.
struct TileColumn {
  int32_t matrix, n;
};
// Column c of a tile of `width` columns that begins at width * tile; `share` are the columns of a group of warps.
BATON_BOTH constexpr TileColumn tile_column(const Instruction& in, int32_t tile, int32_t width, int32_t share,
                                            int32_t c) {
  if (is_paired(in)) {
    const int32_t half = share / 2, within = c % share;
    const int32_t n = tile * (width / 2) + c / share * half + within % half;
    return {n < pitch_of(in.matrix[0].rows) ? within / half : -1, n};
  }
  int32_t n = tile * width + c;
  for (int32_t i = 0; i < in.matrices; ++i) {
    const int32_t pitch = pitch_of(in.matrix[i].rows);
    if (n < pitch) return {i, n};
    n -= pitch;
  }
  return {-1, 0};
}

// Columns of a tile of two groups of warps that are of one matrix, and of one group: a tile of 128 rows is cut between
// the groups by rows, one of 64 by columns.
BATON_BOTH constexpr int32_t tile_run(int32_t rows, int32_t width) {
  const int32_t share = rows == 128 ? width : width / 2;
  return share % 128 == 0 ? 64 : share / 2 % 32 == 0 ? 32 : 16;
}

// bf16 that a tile has made goes to memory in patches of a warp, 16 rows of 64 bytes in shared memory, whose pieces of
// 16 change places so that a thread's pairs of eight rows lie in different banks: a swizzle of 64 bytes. (f32 is faster
// from threads: a patch of it has a bank for two rows.)
inline constexpr int32_t kPatchRows = 16, kPatchColumns = 32, kPatchWarps = 8;
inline constexpr uint32_t kPatchBytes = kPatchRows * 2 * kPatchColumns;
// Of each warp, in turns. 0: a row's columns of one matrix are fewer, and threads write what they have.
BATON_BOTH constexpr int32_t tile_patches(int32_t rows, int32_t width) {
  return tile_run(rows, width) < kPatchColumns ? 0 : 2;
}
// From a patch's begin, of a column of a row.
BATON_BOTH constexpr uint32_t patch_offset(uint32_t row, uint32_t column) {
  return row * 2 * kPatchColumns + ((column / 8 ^ (row / 2 & 3)) << 4) + column % 8 * 2;
}

// Where a thread's values of a product of 8 columns lie, of mma and wgmma alike: value v of 4 of lane l is row
// value_row of a warp's 16 rows, column value_column of the 8.
BATON_BOTH constexpr uint32_t value_row(uint32_t lane, uint32_t v) { return lane / 4 + 8 * (v / 2); }
BATON_BOTH constexpr uint32_t value_column(uint32_t lane, uint32_t v) { return 2 * (lane & 3) + (v & 1); }

// What a lane names to ldmatrix (four matrices of 8 rows of 16 bytes) for 16 rows of x and 16 values of K: the row of
// the 16, and the piece of the two. And for 16 columns, which come as two products of 8.
BATON_BOTH constexpr uint32_t row_of_lane(uint32_t lane) { return lane & 15; }
BATON_BOTH constexpr uint32_t piece_of_lane(uint32_t lane) { return lane >> 4; }
BATON_BOTH constexpr uint32_t column_of_lane(uint32_t lane) { return (lane & 7) + (lane >> 4 << 3); }
BATON_BOTH constexpr uint32_t column_piece_of_lane(uint32_t lane) { return lane >> 3 & 1; }

// Tiles one after the other: those of the same columns and all rows are neighbours, so that weights are read once.
struct TileGrid {
  int32_t row_tiles, column_tiles;
  BATON_BOTH constexpr int32_t tiles() const { return row_tiles * column_tiles; }
  BATON_BOTH constexpr int32_t row_tile(int32_t tile) const { return tile % row_tiles; }
  BATON_BOTH constexpr int32_t column_tile(int32_t tile) const { return tile / row_tiles; }
};
BATON_BOTH constexpr TileGrid tile_grid(const Instruction& in, int32_t rows, int32_t tile_rows, int32_t width) {
  return {(rows + tile_rows - 1) / tile_rows, (tile_columns(in) + width - 1) / width};
}

}  // namespace baton::cuda

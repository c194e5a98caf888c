// Tiles of 16-bit values in shared memory, as tensor cores take them. A tile's rows
// are cut into pieces of 8 values, which are exchanged within 8 of them by the row's number, so that 8 rows of one piece
// lie in different banks.
#pragma once

#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/kernels/ptx.cuh"

namespace baton::cuda {

// Byte of piece `piece` of a row; rows of `pieces` pieces, a multiple of 8.
template <int kPieces>
__device__ __forceinline__ uint32_t piece_at(int row, int piece) {
  return static_cast<uint32_t>(row * kPieces + ((piece & ~7) | ((piece ^ row) & 7))) * 16;
}

// Where load_matrices finds, in a tile of rows by columns with its first at `tile`:
//   A, 16 rows from `row` by 16 columns from piece `piece`: the fragment of A = tile
//   across: 16 rows from `row` by pieces `piece`, `piece` + 1, as B = tile turned, two times 8 rows: b[0], b[1] of the
//           first, b[2], b[3] of the second
//   and load_matrices_turned: `a_address` gives B = tile, columns of piece `piece`: b[0], b[1], of the next: b[2], b[3];
//   `across_address` gives A = tile turned: 16 columns from piece `piece` by 16 rows from `row`
template <int kPieces>
__device__ __forceinline__ uint32_t a_address(uint32_t tile, int row, int piece) {
  const int of = static_cast<int>(lane());
  return tile + piece_at<kPieces>(row + (of & 15), piece + (of >> 4));
}
template <int kPieces>
__device__ __forceinline__ uint32_t across_address(uint32_t tile, int row, int piece) {
  const int of = static_cast<int>(lane());
  return tile + piece_at<kPieces>(row + (of & 7) + (of >> 4) * 8, piece + ((of >> 3) & 1));
}

// Two values, the first in the low half.
template <bool kBf16>
__device__ __forceinline__ uint32_t narrow_pair(float low, float high) {
  if constexpr (kBf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

}  // namespace baton::cuda

// Tiles of 16-bit values in shared memory, as tensor cores take them. A tile's rows are cut into pieces of 8 values,
// which are exchanged within 8 of them, or within 4 or 2, by the row's number, so that 8 rows of one piece lie in
// different banks.
#pragma once

#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/kernels/ptx.cuh"

namespace baton::cuda {

// Byte of piece `piece` of a row; rows of so many pieces, 2, 4 or a multiple of 8.
template <int kPieces>
__device__ __forceinline__ uint32_t piece_at(int row, int piece) {
  if constexpr (kPieces == 2) return static_cast<uint32_t>(row * 2 + (piece ^ (row >> 2 & 1))) * 16;
  if constexpr (kPieces == 4) return static_cast<uint32_t>(row * 4 + (piece ^ (row >> 1 & 3))) * 16;
  return static_cast<uint32_t>(row * kPieces + ((piece & ~7) | ((piece ^ row) & 7))) * 16;
}

// What a lane names to load_matrices, of a tile that begins at `tile`, for 16 rows from `row` and two pieces from
// `piece`:
//   a_address       A = these rows. Turned: B = these rows, to[0], to[1] of the first piece, to[2], to[3] of the second
//   across_address  B = these rows turned, to[0], to[1] of the first 8, to[2], to[3] of the others. Turned: A likewise
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

// A value as the sum of two bf16, which is right to 16 bits.
struct Split {
  uint32_t high, low;  // of two values
};
__device__ __forceinline__ Split split_pair(float first, float second) {
  Split split;
  split.high = narrow_pair<true>(first, second);
  const float high_first = __uint_as_float(split.high << 16), high_second = __uint_as_float(split.high & 0xffff0000u);
  split.low = narrow_pair<true>(first - high_first, second - high_second);
  return split;
}
__device__ __forceinline__ void join_pair(const Split& split, float& first, float& second) {
  first = __uint_as_float(split.high << 16) + __uint_as_float(split.low << 16);
  second = __uint_as_float(split.high & 0xffff0000u) + __uint_as_float(split.low & 0xffff0000u);
}

// A piece of a tile of such sums, the high values and kHalf bytes behind them the low ones.
struct Eight {
  float v[8];
};
template <uint32_t kHalf>
__device__ __forceinline__ Eight eight_at(const unsigned char* tile, uint32_t at) {
  const uint4 high = *reinterpret_cast<const uint4*>(tile + at);
  const uint4 low = *reinterpret_cast<const uint4*>(tile + kHalf + at);
  Eight of;
  join_pair({high.x, low.x}, of.v[0], of.v[1]);
  join_pair({high.y, low.y}, of.v[2], of.v[3]);
  join_pair({high.z, low.z}, of.v[4], of.v[5]);
  join_pair({high.w, low.w}, of.v[6], of.v[7]);
  return of;
}
template <uint32_t kHalf>
__device__ __forceinline__ void put_eight(unsigned char* tile, uint32_t at, const Eight& of, float by) {
  Split split[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) split[i] = split_pair(of.v[2 * i] * by, of.v[2 * i + 1] * by);
  *reinterpret_cast<uint4*>(tile + at) = make_uint4(split[0].high, split[1].high, split[2].high, split[3].high);
  *reinterpret_cast<uint4*>(tile + kHalf + at) = make_uint4(split[0].low, split[1].low, split[2].low, split[3].low);
}

// Word i of lane l of four becomes word l of lane i.
__device__ __forceinline__ uint4 turn_fours(const uint32_t (&words)[4]) {
  const bool odd = (lane() & 1) != 0, upper = (lane() & 2) != 0;
  uint32_t pair[2][2];  // of the words of this lane's parity, those of the even lane and of the odd one
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t kept = odd ? words[2 * i + 1] : words[2 * i];
    const uint32_t got = __shfl_xor_sync(kAll, odd ? words[2 * i] : words[2 * i + 1], 1);
    pair[i][0] = odd ? got : kept, pair[i][1] = odd ? kept : got;
  }
  const uint32_t first = __shfl_xor_sync(kAll, upper ? pair[0][0] : pair[1][0], 2);
  const uint32_t second = __shfl_xor_sync(kAll, upper ? pair[0][1] : pair[1][1], 2);
  return upper ? make_uint4(first, second, pair[1][0], pair[1][1]) : make_uint4(pair[0][0], pair[0][1], first, second);
}

}  // namespace baton::cuda

// Matrices of other forms than bf16 as products on tensor cores want them: decoded into a tile in shared memory by the
// threads that fill it, or into scratch memory by a kernel of its own, for so many rows that decoding a tile for each
// of them costs more.
#pragma once

#include "baton/unit/cuda/codes.h"
#include "baton/unit/cuda/kernels/tile.cuh"

namespace baton::cuda {

// Calls with the bits of the matrix as a constant; 0: it has values.
template <class F>
__device__ __forceinline__ void with_bits(const Matrix& matrix, F&& call) {
  switch (matrix.form == Form::kCodes ? matrix.bits : 0) {
    case 0:
      return call(std::integral_constant<int, 0>());
    case 1:
      return call(std::integral_constant<int, 1>());
    case 2:
      return call(std::integral_constant<int, 2>());
    case 3:
      return call(std::integral_constant<int, 3>());
    case 4:
      return call(std::integral_constant<int, 4>());
    case 5:
      return call(std::integral_constant<int, 5>());
    case 6:
      return call(std::integral_constant<int, 6>());
    default:
      return call(std::integral_constant<int, 8>());
  }
}

// 32 values of a row as they lie in memory, with their scales.
struct Fetched {
  uint32_t words[16];  // f16 and bf16: all
  Scales scales;
};

template <int kBits>
__device__ __forceinline__ void fetch_group(const Matrix& matrix, int64_t row, int32_t group, Fetched& to) {
  if constexpr (kBits == 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      load_words<4, Reading::kCached>(row_at(matrix, row) + 64 * group + 16 * i, to.words + 4 * i);
  } else {
    const unsigned char* const from = row_at(matrix, row);
    const Raw<kBits> raw = raw_in_row<kBits>(matrix, from, group);
#pragma unroll
    for (int i = 0; i < kBits; ++i) to.words[i] = raw.words[i];
    to.scales = scales_in_row(matrix, from, group);
  }
}

// In bf16, 16 words.
template <int kBits>
__device__ __forceinline__ void decode_group(const Matrix& matrix, const Fetched& from, uint32_t* to) {
  if constexpr (kBits == 0) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const auto low = static_cast<uint16_t>(from.words[i]), high = static_cast<uint16_t>(from.words[i] >> 16);
      to[i] = matrix.form == Form::kBF16 ? from.words[i] : bf16_pair(float_of_f16(low), float_of_f16(high));
    }
  } else {
    Raw<kBits> raw;
#pragma unroll
    for (int i = 0; i < kBits; ++i) raw.words[i] = from.words[i];
    Group<kBits> group;
    bool looked_up = false;
    if constexpr (kBits <= 4) {
      if (matrix.has_table) group = look_up(raw, lookup_of(matrix)), looked_up = true;
    }
    if (!looked_up) group = take_apart(raw);
    float values[32];
    values_of_group(group, from.scales, matrix.has_table ? 0.0f : static_cast<float>(matrix.zero), values);
#pragma unroll
    for (int i = 0; i < 16; ++i) to[i] = bf16_pair(values[2 * i], values[2 * i + 1]);
  }
}

// A thread's part of the columns of a tile: kEach groups of 32, of half a step each. Threads beside each other have the
// two halves of a row.
template <int kWidth, int kTakers>
struct TileCodes {
  static constexpr int kEach = (2 * kWidth + kTakers - 1) / kTakers;
  int32_t matrix[kEach], row[kEach];  // matrix -1: zeros
  uint32_t thread;
  Fetched fetched[kEach];

  __device__ __forceinline__ uint32_t column(int i) const { return (thread + i * kTakers) / 2; }

  __device__ __forceinline__ void begin(const Instruction& in, int32_t tile, int32_t share, uint32_t taker) {
    thread = taker;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      matrix[i] = -1;
      if (column(i) >= kWidth) continue;
      const TileColumn c = tile_column(in, tile, kWidth, share, static_cast<int32_t>(column(i)));
      if (c.matrix >= 0 && c.n < in.matrix[c.matrix].rows) matrix[i] = c.matrix;
      row[i] = c.n;
    }
  }
  __device__ __forceinline__ void fetch(const Instruction& in, int32_t step) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (matrix[i] < 0) continue;
      const Matrix& from = in.matrix[matrix[i]];
      const auto group = static_cast<int32_t>(2 * step + (thread & 1));
      with_bits(from, [&](auto bits) { fetch_group<decltype(bits)::value>(from, row[i], group, fetched[i]); });
    }
  }
  // What was fetched into the tile at `to`.
  __device__ __forceinline__ void put(const Instruction& in, uint32_t to) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (column(i) >= kWidth) continue;
      uint32_t words[16] = {};
      if (matrix[i] >= 0) {
        const Matrix& from = in.matrix[matrix[i]];
        with_bits(from, [&](auto bits) { decode_group<decltype(bits)::value>(from, fetched[i], words); });
      }
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j)
        store_shared(to + tile_offset(column(i), 4 * (thread & 1) + j),
                     {words[4 * j], words[4 * j + 1], words[4 * j + 2], words[4 * j + 3]});
    }
  }
};

// All matrices of an instruction that are not in bf16, in bf16 into its scratch memory.
__device__ __forceinline__ void unpack(const Instruction& in) {
  for (int32_t m = 0; m < in.matrices; ++m) {
    const Matrix& matrix = in.matrix[m];
    if (matrix.form == Form::kBF16) continue;
    auto* const to = at<uint4>(in.scratch + unpacked_offset(in, m));
    const int32_t row_groups = matrix.pitch / kGroup;
    const int64_t groups = int64_t{matrix.rows} * row_groups;
    with_bits(matrix, [&](auto bits) {
      for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < groups;
           i += int64_t{gridDim.x} * blockDim.x) {
        Fetched fetched;
        uint32_t words[16];
        fetch_group<decltype(bits)::value>(matrix, i / row_groups, static_cast<int32_t>(i % row_groups), fetched);
        decode_group<decltype(bits)::value>(matrix, fetched, words);
#pragma unroll
        for (int j = 0; j < 4; ++j)
          to[4 * i + j] = {words[4 * j], words[4 * j + 1], words[4 * j + 2], words[4 * j + 3]};
      }
    });
  }
}

}  // namespace baton::cuda

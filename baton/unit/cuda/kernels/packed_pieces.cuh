// Pieces of codes that are packed in known ways (packings.h) times a row of x: sums have the bits of HeldIntegers', for
// few of the steps that it takes to ask a matrix how it is packed.
#pragma once

#include "baton/unit/cuda/kernels/pieces.cuh"
#include "baton/unit/cuda/packings.h"

namespace baton::cuda {

// Of a product whose matrices are packed in several of these ways, as those of most files are.
struct HeldMixed : HeldIntegers {
  static constexpr Packing kPacked = Packing::kMixed;
  using HeldIntegers::HeldIntegers;

  __device__ __forceinline__ float times(const Matrix& matrix, const IntegerGroup& x,
                                         const unsigned char* piece) const {
    if (matrix.packing == Packing::kQ4_K) return packed<Packing::kQ4_K>(x, piece);
    if (matrix.packing == Packing::kQ6_K) return packed<Packing::kQ6_K>(x, piece);
    if (matrix.packing == Packing::kQ8_0) return packed<Packing::kQ8_0>(x, piece);
    return packed<Packing::kQ5_K>(x, piece);
  }
  template <Packing kPacking>
  __device__ __forceinline__ float packed(const IntegerGroup& x, const unsigned char* piece) const {
    constexpr Matrix matrix = packed_as(kPacking);
    constexpr int kBits = matrix.bits;
    const int own = min(static_cast<int>(lane()), of_strip.groups - 1);
    const Raw<kBits> raw = load_raw<kBits>(piece, of_strip.groups, own);
    const Scales scales =
        scales_of(matrix, piece + planes_bytes(kBits, of_strip.groups), of_strip.of_strip, of_strip.first + own);
    const float sum =
        x.times<kBits, matrix.zero != 0, matrix.has_minimums>(take_apart(raw), scales, static_cast<float>(matrix.zero));
    return has() ? sum : 0.0f;
  }
};

// Of a product whose matrices are all packed so.
template <Packing kPacking>
struct HeldPacked : HeldMixed {
  static constexpr Packing kPacked = kPacking;
  using HeldMixed::HeldMixed;

  __device__ __forceinline__ float times(const IntegerGroup& x, const unsigned char* piece) const {
    return packed<kPacking>(x, piece);
  }
  template <int kCount>
  __device__ __forceinline__ void times_each(const IntegerGroup& x, const unsigned char* const (&pieces)[kSet],
                                             float (&sums)[kSet][1]) const {
#pragma unroll
    for (int s = 0; s < kCount; ++s) sums[s][0] = times(x, pieces[s]);
  }
};

}  // namespace baton::cuda

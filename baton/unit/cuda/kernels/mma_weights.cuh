// Weights as products on tensor cores take them (mma_rows.cuh says which columns a lane has): bf16 as they are, others
// as the sum of two bf16.
#pragma once

#include "baton/unit/cuda/codes.h"
#include "baton/unit/cuda/kernels/mma_rows.cuh"

namespace baton::cuda {

// Of 16 rows of weights a lane's two: where they begin.
struct MmaLines {
  const Matrix* matrix[2];
  const unsigned char* from[2];
  int row[2];
};
// What a lane has of a span of them before it is taken apart: words of memory, at most 16 of each row.
using MmaRaw = uint32_t[2][16];
// Quarters that are on their way while one is multiplied: more rows take longer.
__host__ __device__ constexpr int quarters_ahead(int tiles) { return tiles <= 2 ? 4 : 2; }

// sums += weights x, over a quarter: a lane's 8 columns of both rows.
template <int kTiles, bool kLow>
__device__ __forceinline__ void multiply_quarter(float (&sums)[kTiles][4], const uint32_t (&high)[2][4],
                                                 const uint32_t (&low)[2][4], const uint4* x) {
  uint32_t a[2][4], b[2][4];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = high[i % 2][2 * k + i / 2], b[k][i] = low[i % 2][2 * k + i / 2];
  }
  constexpr int kAtOnce = kTiles == 1 ? 1 : 2;
#pragma unroll
  for (int tile = 0; tile < kTiles; tile += kAtOnce) {
    uint4 x_high[kAtOnce], x_low[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) x_high[i] = x[(tile + i) * 64], x_low[i] = x[(tile + i) * 64 + 32];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) multiply_add<true>(sums[tile + i], a[0], x_high[i].x, x_high[i].y);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) multiply_add<true>(sums[tile + i], a[0], x_low[i].x, x_low[i].y);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) multiply_add<true>(sums[tile + i], a[1], x_high[i].z, x_high[i].w);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) multiply_add<true>(sums[tile + i], a[1], x_low[i].z, x_low[i].w);
    if constexpr (kLow) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) multiply_add<true>(sums[tile + i], b[0], x_high[i].x, x_high[i].y);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) multiply_add<true>(sums[tile + i], b[1], x_high[i].z, x_high[i].w);
    }
  }
}

// bf16. Quarter j is in place j % quarters_ahead of `raw`.
struct MmaPlain {
  static constexpr bool kGroups = false;
  static __device__ __forceinline__ void load_quarter(const MmaLines& lines, int span, int quarter, MmaRaw& raw,
                                                      int place) {
    const int column = span * kMmaSpan + static_cast<int>(lane() & 3) * 8;
    const bool inside = span * kMmaSpan + 32 * quarter < lines.matrix[0]->pitch;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) raw[i][4 * place + k] = 0;
      if (inside) load_words<4, Reading::kStreamed>(lines.from[i] + 2 * column + 64 * quarter, raw[i] + 4 * place);
    }
  }
  template <int kTiles>
  static __device__ __forceinline__ void load(const MmaLines& lines, int span, MmaRaw& raw) {
#pragma unroll
    for (int quarter = 0; quarter < quarters_ahead(kTiles); ++quarter) load_quarter(lines, span, quarter, raw, quarter);
  }
  template <int kTiles>
  static __device__ __forceinline__ void multiply(float (&sums)[kTiles][4], const MmaLines& lines, MmaRaw& raw,
                                                  const MmaRows<kTiles, kGroups>& x, int span, int next) {
    constexpr int kAhead = quarters_ahead(kTiles);
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      uint32_t words[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int k = 0; k < 4; ++k) words[i][k] = raw[i][4 * (quarter % kAhead) + k];
      }
      const int then = quarter + kAhead;
      if (then < 4 || next < x.spans) load_quarter(lines, then < 4 ? span : next, then % 4, raw, quarter % kAhead);
      multiply_quarter<kTiles, false>(sums, words, words, x.quarter(span, quarter));
    }
  }
};

// Calls with the bits of a matrix of codes.
template <class F>
__device__ __forceinline__ void with_code_bits(const Matrix& matrix, F&& call) {
  switch (matrix.bits) {
    case 8:
      return call(std::integral_constant<int, 8>());
    case 6:
      return call(std::integral_constant<int, 6>());
    case 5:
      return call(std::integral_constant<int, 5>());
    case 4:
      return call(std::integral_constant<int, 4>());
    case 3:
      return call(std::integral_constant<int, 3>());
    case 2:
      return call(std::integral_constant<int, 2>());
    default:
      return call(std::integral_constant<int, 1>());
  }
}

// Codes; with many rows there are no registers for what comes next. And f16 and f32, which are seldom: from memory when
// they are needed.
struct MmaSplit {
  static constexpr bool kGroups = true;
  template <int kTiles>
  static __device__ __forceinline__ void load(const MmaLines& lines, int span, MmaRaw& raw) {
    if (kTiles <= 2 && lines.matrix[0]->form == Form::kCodes) fetch(lines, span, raw);
  }
  static __device__ __forceinline__ void fetch(const MmaLines& lines, int span, MmaRaw& raw) {
    const Matrix& matrix = *lines.matrix[0];  // of the other's kind
    const int groups = matrix.pitch / kGroup, group = min(span * 4 + static_cast<int>(lane() & 3), groups - 1);
    with_code_bits(matrix, [&](auto of) {
      constexpr int kBits = decltype(of)::value;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Raw<kBits> words = load_raw<kBits, Reading::kStreamed>(lines.from[i], groups, group);
#pragma unroll
        for (int k = 0; k < kBits; ++k) raw[i][k] = words.words[k];
      }
    });
  }
  // The codes of both rows.
  static __device__ __forceinline__ void take(const MmaLines& lines, const MmaRaw& from, uint32_t (&q)[2][8]) {
    with_code_bits(*lines.matrix[0], [&](auto of) {
      constexpr int kBits = decltype(of)::value;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        Raw<kBits> raw;
#pragma unroll
        for (int k = 0; k < kBits; ++k) raw.words[k] = from[i][k];
        Group<kBits> group = take_apart(raw);
        if constexpr (kBits <= 4) {
          if (lines.matrix[i]->has_table) group = look_up(raw, lookup_of(*lines.matrix[i]));
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) q[i][k] = group.words[k];
      }
    });
  }
  // Four values, as two words of each part.
  static __device__ __forceinline__ void split_four(const float4& v, uint32_t* high, uint32_t* low) {
    const Split one = split_pair(v.x, v.y), two = split_pair(v.z, v.w);
    high[0] = one.high, low[0] = one.low, high[1] = two.high, low[1] = two.low;
  }
  template <int kTiles>
  static __device__ __forceinline__ void multiply(float (&sums)[kTiles][4], const MmaLines& lines, MmaRaw& raw,
                                                  const MmaRows<kTiles, kGroups>& x, int span, int next) {
    if (lines.matrix[0]->form != Form::kCodes) return multiply_values<kTiles>(sums, lines, x, span);
    uint32_t q[2][8];
    if constexpr (kTiles > 2) fetch(lines, span, raw);
    take(lines, raw, q);
    if (next < x.spans) load<kTiles>(lines, next, raw);
    Scales scales[2];
    float zero[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Matrix& matrix = *lines.matrix[i];
      const int group = span * 4 + static_cast<int>(lane() & 3);
      scales[i] = {{0, 0}, {0, 0}};  // behind the row
      if (group < matrix.pitch / kGroup) scales[i] = scales_of(matrix, lines.row[i], group);
      zero[i] = matrix.has_table ? 0.0f : static_cast<float>(matrix.zero);
    }
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      uint32_t high[2][4], low[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float d = scales[i].d[quarter / 2], m = scales[i].m[quarter / 2], z = zero[i];
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
          const uint32_t word = q[i][2 * quarter + k / 2];
          split_four(make_float4(fmaf(d, float_of_byte<0>(word, z), -m), fmaf(d, float_of_byte<1>(word, z), -m),
                                 fmaf(d, float_of_byte<2>(word, z), -m), fmaf(d, float_of_byte<3>(word, z), -m)),
                     high[i] + k, low[i] + k);
        }
      }
      multiply_quarter<kTiles, true>(sums, high, low, x.quarter(span, quarter));
    }
  }
  // Eight values of f16 or f32.
  static __device__ __forceinline__ void load_values(const unsigned char* from, bool halves, float (&to)[8]) {
    uint32_t words[8] = {};
    load_words<4, Reading::kCached>(from, words);
    if (!halves) load_words<4, Reading::kCached>(from + 16, words + 4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[k]));
      to[2 * k] = halves ? two.x : __uint_as_float(words[2 * k]);
      to[2 * k + 1] = halves ? two.y : __uint_as_float(words[2 * k + 1]);
    }
  }
  template <int kTiles>
  static __device__ __forceinline__ void multiply_values(float (&sums)[kTiles][4], const MmaLines& lines,
                                                         const MmaRows<kTiles, kGroups>& x, int span) {
    const int column = span * kMmaSpan + static_cast<int>(lane() & 3) * kGroup;
    const bool halves = lines.matrix[0]->form == Form::kF16;
#pragma unroll 1
    for (int quarter = 0; quarter < 4; ++quarter) {
      uint32_t high[2][4], low[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float v[8] = {};
        if (column < lines.matrix[0]->pitch)
          load_values(lines.from[i] + (column + 8 * quarter) * (halves ? 2 : 4), halves, v);
        split_four(make_float4(v[0], v[1], v[2], v[3]), high[i], low[i]);
        split_four(make_float4(v[4], v[5], v[6], v[7]), high[i] + 2, low[i] + 2);
      }
      multiply_quarter<kTiles, true>(sums, high, low, x.quarter(span, quarter));
    }
  }
};

}  // namespace baton::cuda

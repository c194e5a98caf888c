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
};
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

// 16 bytes that pass by, or zeros.
__device__ __forceinline__ void ask_place(uint32_t to, const unsigned char* from, bool inside, Policy policy) {
  if (inside) {
    copy_ahead(to, from, policy);
  } else {
    copy_ahead(to, from, false);
  }
}
inline constexpr uint32_t kPlaceStep = kThreads * 16;  // from a thread's place to its next

// bf16. A step is two quarters of a span, of both rows.
struct MmaPlain {
  static constexpr bool kGroups = false;
  static constexpr int kSteps = 2;
  static __device__ __forceinline__ void ask(const MmaLines& lines, int span, int step, uint32_t to) {
    const Policy passing = passes_by();
    const int column = span * kMmaSpan + static_cast<int>(lane() & 3) * 8;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int quarter = 2 * step + k;
      const bool inside = span * kMmaSpan + 32 * quarter < lines.matrix[0]->pitch;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        ask_place(to + (2 * k + i) * kPlaceStep, inside ? lines.from[i] + 2 * column + 64 * quarter : lines.from[i],
                  inside, passing);
    }
  }
  template <int kTiles>
  static __device__ __forceinline__ void multiply(float (&sums)[kTiles][4], const MmaLines&, const unsigned char* own,
                                                  const MmaRows<kTiles, kGroups>& x, int span, int step) {
#pragma unroll 1
    for (int k = 0; k < 2; ++k) {
      uint32_t words[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) load_words<4, Reading::kCached>(own + (2 * k + i) * kPlaceStep, words[i]);
      multiply_quarter<kTiles, false>(sums, words, words, x.quarter(span, 2 * step + k));
    }
  }
};

// The same where a unit has 8 rows (MmaUnits): a step is a span of a lane's one row.
struct MmaPlainHalf {
  static constexpr bool kGroups = false;
  static constexpr int kSteps = 1;
  static __device__ __forceinline__ void ask(const MmaLines& lines, int span, int, uint32_t to) {
    const Policy passing = passes_by();
    const int column = span * kMmaSpan + static_cast<int>(lane() & 3) * 8;
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      const bool inside = span * kMmaSpan + 32 * quarter < lines.matrix[0]->pitch;
      ask_place(to + quarter * kPlaceStep, inside ? lines.from[0] + 2 * column + 64 * quarter : lines.from[0], inside,
                passing);
    }
  }
  template <int kTiles>
  static __device__ __forceinline__ void multiply(float (&sums)[kTiles][4], const MmaLines&, const unsigned char* own,
                                                  const MmaRows<kTiles, kGroups>& x, int span, int) {
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      uint32_t words[2][4] = {};
      load_words<4, Reading::kCached>(own + quarter * kPlaceStep, words[0]);
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

// Codes, of which a step is a span of both rows, or of the one that a unit of 8 has. And f16 and f32, which are seldom:
// from memory when they are needed.
template <bool kHalf>
struct MmaSplit {
  static constexpr bool kGroups = true;
  static constexpr int kSteps = 1;
  static constexpr int kLines = kHalf ? 1 : 2;
  static __device__ __forceinline__ void ask(const MmaLines& lines, int span, int, uint32_t to) {
    const Matrix& matrix = *lines.matrix[0];  // of the other's bits and pitch; its scales may be of another kind
    if (matrix.form != Form::kCodes) return;
    const Policy passing = passes_by();
    const int bits = matrix.bits;
    const StripGroup of(matrix.pitch, min(span * 4 + static_cast<int>(lane() & 3), matrix.pitch / kGroup - 1));
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const unsigned char* plane = lines.from[i] + of.strip * lines.matrix[i]->strip_bytes;
      uint32_t at = to + 2 * i * kPlaceStep;
      if (bits >= 4) {
        copy_ahead(at, plane + 16 * of.group, passing);
        plane += 16 * of.groups, at += kPlaceStep;
      }
      if (bits == 8) {
        copy_ahead(at, plane + 16 * of.group, passing);
        continue;
      }
      if ((bits & 2) != 0) {
        copy_two_words_ahead(at, plane + 8 * of.group, passing);
        plane += 8 * of.groups, at += 8;
      }
      if ((bits & 1) != 0) copy_word_ahead(at, plane + 4 * of.group, passing);
    }
  }
  // What ask brought of a row; word w of a group lies in place w / 4.
  template <int kBits>
  static __device__ __forceinline__ Raw<kBits> raw_of(const unsigned char* own) {
    Raw<kBits> raw;
    constexpr bool kFour = kBits >= 4;
    if constexpr (kFour) load_words<4, Reading::kCached>(own, raw.words);
    if constexpr (kBits == 8) load_words<4, Reading::kCached>(own + kPlaceStep, raw.words + 4);
    if constexpr (kBits < 8) {
#pragma unroll
      for (int k = kFour ? 4 : 0; k < kBits; ++k)
        raw.words[k] = *reinterpret_cast<const uint32_t*>(own + k / 4 * kPlaceStep + k % 4 * 4);
    }
    return raw;
  }
  // The codes of the rows.
  static __device__ __forceinline__ void take(const MmaLines& lines, const unsigned char* own, uint32_t (&q)[2][8]) {
    with_code_bits(*lines.matrix[0], [&](auto of) {
      constexpr int kBits = decltype(of)::value;
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        const Raw<kBits> raw = raw_of<kBits>(own + 2 * i * kPlaceStep);
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
  static __device__ __forceinline__ void multiply(float (&sums)[kTiles][4], const MmaLines& lines,
                                                  const unsigned char* own, const MmaRows<kTiles, kGroups>& x, int span,
                                                  int) {
    if (lines.matrix[0]->form != Form::kCodes) return multiply_values<kTiles>(sums, lines, x, span);
    uint32_t q[2][8];
    take(lines, own, q);
    Scales scales[2];
    float zero[2];
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const Matrix& matrix = *lines.matrix[i];
      const int group = span * 4 + static_cast<int>(lane() & 3);
      scales[i] = {{0, 0}, {0, 0}};  // behind the row
      if (group < matrix.pitch / kGroup) scales[i] = scales_in_row(matrix, lines.from[i], group);
      zero[i] = matrix.has_table ? 0.0f : static_cast<float>(matrix.zero);
    }
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      uint32_t high[2][4] = {}, low[2][4] = {};
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
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
      uint32_t high[2][4] = {}, low[2][4] = {};
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
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

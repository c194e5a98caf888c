// Pieces of weights times rows of x: the arithmetic of products.cuh. What a row of a matrix sums with a row of x is the
// same whether one row of x is multiplied or several are.
#pragma once

#include "baton/unit/cuda/kernels/feed.cuh"
#include "baton/unit/cuda/kernels/staged_rows.cuh"

namespace baton::cuda {

// Of 16 bytes of a dense row as f32.
template <Form kForm>
struct Dense;
template <>
struct Dense<Form::kF32> {
  static constexpr int kValues = 4;
  static __device__ __forceinline__ void widen(const uint32_t (&from)[4], float (&to)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(from[i]);
  }
};
template <>
struct Dense<Form::kBF16> {
  static constexpr int kValues = 8;
  static __device__ __forceinline__ void widen(const uint32_t (&words)[4], float (&to)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = __uint_as_float(words[i] << 16);
      to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
};
template <>
struct Dense<Form::kF16> {
  static constexpr int kValues = 8;
  static __device__ __forceinline__ void widen(const uint32_t (&words)[4], float (&to)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
      to[2 * i] = two.x, to[2 * i + 1] = two.y;
    }
  }
};

// x of a span, as one warp multiplies it with one piece after the other. What a row sums is what multiply_set sums.
struct HeldValues {
  static constexpr bool kNeedsLine = false;
  static constexpr int kChunks = 4, kEach = 8;
  const float* from;
  int columns;

  __device__ __forceinline__ HeldValues(const Staged& staged, int first, int wide)
      : HeldValues(staged.pitch, staged.xs, first, wide) {}
  __device__ __forceinline__ HeldValues(int pitch, const unsigned char* xs, int first, int wide)
      : columns(min(wide, pitch - first)) {
    int own = first + static_cast<int>(lane()) * 4;
    made_here(own);
    from = reinterpret_cast<const float*>(xs) + own;
  }
  __device__ __forceinline__ bool has(int c) const { return (c * 32 + static_cast<int>(lane())) * kEach < columns; }
  template <Form kForm>
  __device__ __forceinline__ float times_form(const unsigned char* piece, float sum) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (!has(c)) break;
      uint32_t loaded[4];
      load_words<4, Reading::kCached>(piece + (c * 32 + lane()) * 16, loaded);
      const float4 low = *reinterpret_cast<const float4*>(from + c * 256);
      const float4 high = *reinterpret_cast<const float4*>(from + c * 256 + 128);
      const float x[kEach] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      float w[kEach];
      Dense<kForm>::widen(loaded, w);
#pragma unroll
      for (int i = 0; i < kEach; ++i) sum = fmaf(w[i], x[i], sum);
    }
    return sum;
  }
  __device__ __forceinline__ float times(const Matrix& matrix, int, const unsigned char* piece, float sum) const {
    if (matrix.form == Form::kBF16) return times_form<Form::kBF16>(piece, sum);
    return times_form<Form::kF16>(piece, sum);
  }
  // The same of the first kCount rows of a set, for one reading of x.
  template <Form kForm, int kCount>
  __device__ __forceinline__ void times_each(const unsigned char* const (&pieces)[kSet], float (&sums)[kSet][1]) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (!has(c)) break;
      const float4 low = *reinterpret_cast<const float4*>(from + c * 256);
      const float4 high = *reinterpret_cast<const float4*>(from + c * 256 + 128);
      const float x[kEach] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      uint32_t loaded[kCount][4];
#pragma unroll
      for (int s = 0; s < kCount; ++s) load_words<4, Reading::kCached>(pieces[s] + (c * 32 + lane()) * 16, loaded[s]);
#pragma unroll
      for (int s = 0; s < kCount; ++s) {
        float w[kEach];
        Dense<kForm>::widen(loaded[s], w);
#pragma unroll
        for (int i = 0; i < kEach; ++i) sums[s][0] = fmaf(w[i], x[i], sums[s][0]);
      }
    }
  }
};

// The same of f32, whose products are rare.
struct HeldFloats {
  static constexpr bool kNeedsLine = false;
  const float* from;
  int columns;

  __device__ __forceinline__ HeldFloats(const Staged& staged, int first, int wide)
      : from(staged.floats(0) + first), columns(min(wide, staged.pitch - first)) {}
  __device__ __forceinline__ float times(const Matrix&, int, const unsigned char* piece, float sum) const {
#pragma unroll 2
    for (int c = static_cast<int>(lane()) * 4; c < columns; c += 128) {
      const float4 w = *reinterpret_cast<const float4*>(piece + c * 4);
      const float4 x = *reinterpret_cast<const float4*>(from + c);
      sum = fmaf(w.w, x.w, fmaf(w.z, x.z, fmaf(w.y, x.y, fmaf(w.x, x.x, sum))));
    }
    return sum;
  }
};

// A warp's set, for several rows of x: its matrix rows, and where their pieces of a span lie.
struct PieceSet {
  const Matrix* matrix[kSet];
  const unsigned char* piece[kSet];
  int count;

  // Of those in `left`, those that are stored as the first of them.
  __device__ __forceinline__ uint32_t alike(uint32_t left) const {
    int kind = -1;
    uint32_t found = 0;
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
      if ((left >> s & 1) == 0) continue;
      const int own = stored_as(*matrix[s]);
      if (kind < 0) kind = own;
      if (own == kind) found |= 1u << s;
    }
    return found;
  }
};

// Sums of the set's matrix rows with kRows rows of x, over the columns of a span; of each lane a part. x: rows of
// `stride` values from the span's first column on, as stage_rows puts them.
template <Form kForm, int kRows>
__device__ __forceinline__ void multiply_dense(const PieceSet& set, uint32_t active, const float* xs, int stride,
                                               int columns, float (&sums)[kSet][kRows]) {
  constexpr int kValues = Dense<kForm>::kValues, kHalves = kValues / 4;
  const int own = static_cast<int>(lane());
#pragma unroll 1
  for (int c = 0; (c * 32 + own) * kValues < columns; ++c) {
    float x[kRows][kValues];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const float4 four = *reinterpret_cast<const float4*>(xs + r * stride + c * 32 * kValues + h * 128 + own * 4);
        x[r][4 * h] = four.x, x[r][4 * h + 1] = four.y, x[r][4 * h + 2] = four.z, x[r][4 * h + 3] = four.w;
      }
    }
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
      if ((active >> s & 1) == 0) continue;
      uint32_t loaded[4];
      load_words<4, Reading::kCached>(set.piece[s] + (c * 32 + own) * 16, loaded);
      float w[kValues];
      Dense<kForm>::widen(loaded, w);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < kValues; ++i) sums[s][r] = fmaf(w[i], x[r][i], sums[s][r]);
      }
    }
  }
}

// What a lane's group of a row of x is made of.
struct IntegerGroup {
  uint4 chunks[4];
  float4 facts;

  __device__ __forceinline__ IntegerGroup(const IntegerRow& row, int group, int groups) {
#pragma unroll
    for (int i = 0; i < 4; ++i) chunks[i] = row.chunks[i * groups + group];
    facts = row.facts[group];
  }
  // kZero, kMinimums: whether there is a zero, and minimums; without them sums have the same bits.
  template <int kBits, bool kZero = true, bool kMinimums = true>
  __device__ __forceinline__ float times(const Group<kBits>& q, const Scales& scales, float zero) const {
    const float sum[2] = {facts.y, facts.z};
    float value = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 high = chunks[half], low = chunks[2 + half];
      const uint32_t h[4] = {high.x, high.y, high.z, high.w}, l[4] = {low.x, low.y, low.z, low.w};
      int highs = 0, lows = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        highs = __dp4a(static_cast<int>(q.words[4 * half + i]), static_cast<int>(h[i]), highs);
        lows = __dp4a(static_cast<int>(q.words[4 * half + i]), static_cast<int>(l[i]), lows);
      }
      float product = static_cast<float>(256 * highs + lows);
      if constexpr (kZero) product -= zero * sum[half];
      value = fmaf(scales.d[half], product, value);
      if constexpr (kMinimums) value = fmaf(-scales.m[half], sum[half], value);
    }
    return facts.x * value;
  }
};

// A piece of codes: a lane has a group.
template <int kBits>
struct PieceOfCodes {
  Group<kBits> q;
  Scales scales;
  float zero;

  __device__ __forceinline__ PieceOfCodes(const Matrix& matrix, const PieceOfStrip& of, const unsigned char* piece) {
    const int own = static_cast<int>(lane());
    const Raw<kBits> raw = load_raw<kBits>(piece, of.groups, own);
    scales = scales_of(matrix, piece + planes_bytes(kBits, of.groups), of.of_strip, of.first + own);
    q = take_apart(raw);
    if constexpr (kBits <= 4) {
      if (matrix.has_table) q = look_up(raw, lookup_of(matrix));
    }
    zero = matrix.has_table ? 0.0f : static_cast<float>(matrix.zero);
  }
  __device__ __forceinline__ float times(const IntegerGroup& x) const { return x.times(q, scales, zero); }
};

struct HeldIntegers {
  static constexpr bool kNeedsLine = true;
  unsigned char* xs;
  int group, groups;  // of the row
  PieceOfStrip of_strip;

  __device__ __forceinline__ HeldIntegers(const Staged& staged, int first, int wide)
      : xs(staged.xs),
        group(first / kGroup + static_cast<int>(lane())),
        groups(staged.groups),
        of_strip(staged.pitch, first, wide) {}
  __device__ __forceinline__ bool has() const { return static_cast<int>(lane()) < of_strip.groups; }
  // The lane's group of x, for several pieces; of a lane that has none the row's last.
  __device__ __forceinline__ IntegerGroup read() const {
    return IntegerGroup(integer_row(xs, groups), min(group, groups - 1), groups);
  }
  __device__ __forceinline__ float times(const Matrix& matrix, const IntegerGroup& x,
                                         const unsigned char* piece) const {
    if (!has()) return 0;
    PieceOfStrip of = of_strip;
    made_here(of.groups);
    made_here(of.first);
    switch (matrix.bits) {
#define BATON_CASE(bits) \
  case bits:             \
    return PieceOfCodes<bits>(matrix, of, piece).times(x);
      BATON_CASE(8)
      BATON_CASE(6)
      BATON_CASE(5)
      BATON_CASE(4)
      BATON_CASE(3)
      BATON_CASE(2)
      BATON_CASE(1)
#undef BATON_CASE
    }
    return 0;
  }
  __device__ __forceinline__ float times(const Matrix& matrix, int, const unsigned char* piece, float sum) const {
    return sum + times(matrix, read(), piece);
  }
};

// As multiply_dense.
template <int kBits, int kRows>
__device__ __forceinline__ void multiply_codes(const PieceSet& set, uint32_t active, unsigned char* xs,
                                               const PieceOfStrip& of, int group, int groups,
                                               float (&sums)[kSet][kRows]) {
  if (static_cast<int>(lane()) >= of.groups) return;
#pragma unroll 1
  for (int s = 0; s < kSet; ++s) {
    if ((active >> s & 1) == 0) continue;
    const Matrix* matrix = set.matrix[0];
    const unsigned char* piece = set.piece[0];
#pragma unroll
    for (int k = 1; k < kSet; ++k) {
      if (k == s) matrix = set.matrix[k], piece = set.piece[k];
    }
    const PieceOfCodes<kBits> codes(*matrix, of, piece);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const IntegerGroup x(integer_row(xs + r * integer_row_bytes(groups), groups), group, groups);
      const float sum = codes.times(x);
#pragma unroll
      for (int k = 0; k < kSet; ++k) {
        if (k == s) sums[k][r] += sum;
      }
    }
  }
}

// The pieces of a span `wide` columns wide. `xs`: rows of x.
template <int kRows>
__device__ __forceinline__ void multiply_set(const PieceSet& set, int first_column, int wide, unsigned char* xs,
                                             float (&sums)[kSet][kRows]) {
  const int pitch = set.matrix[0]->pitch, stride = (pitch + 255) / 256 * 256, groups = pitch / kGroup;
  const int columns = min(wide, pitch - first_column);
  const int group = first_column / kGroup + static_cast<int>(lane());
  const PieceOfStrip of(pitch, first_column, wide);
  const float* const floats = reinterpret_cast<const float*>(xs) + first_column;
  for (uint32_t left = (1u << set.count) - 1; left != 0;) {
    const uint32_t active = set.alike(left);
    left &= ~active;
    const Matrix* first = set.matrix[0];
#pragma unroll
    for (int s = kSet - 1; s >= 0; --s) {
      if ((active >> s & 1) != 0) first = set.matrix[s];
    }
    switch (stored_as(*first)) {
      case static_cast<int>(Form::kF32):
        multiply_dense<Form::kF32, kRows>(set, active, floats, stride, columns, sums);
        break;
      case static_cast<int>(Form::kF16):
        multiply_dense<Form::kF16, kRows>(set, active, floats, stride, columns, sums);
        break;
      case static_cast<int>(Form::kBF16):
        multiply_dense<Form::kBF16, kRows>(set, active, floats, stride, columns, sums);
        break;
#define BATON_CASE(bits)                                                     \
  case 256 + (bits):                                                         \
    multiply_codes<(bits), kRows>(set, active, xs, of, group, groups, sums); \
    break;
        BATON_CASE(8)
        BATON_CASE(6)
        BATON_CASE(5)
        BATON_CASE(4)
        BATON_CASE(3)
        BATON_CASE(2)
        BATON_CASE(1)
#undef BATON_CASE
    }
  }
}

// Sums of all lanes, of the value that number() names; in one order, whichever that is.
template <int kRows>
struct Sums {
  static constexpr int kCount = kSet * kRows, kSpread = 32 / kCount;

  static __device__ __forceinline__ int number() { return static_cast<int>(lane()) / kSpread; }
  static __device__ __forceinline__ float of(float (&sums)[kSet][kRows]) {
    float values[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = sums[i / kRows][i % kRows];
#pragma unroll
    for (int n = kCount / 2, o = 16; n > 0; n /= 2, o /= 2) {
      const bool upper = (lane() & static_cast<uint32_t>(o)) != 0;
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float mine = upper ? values[i + n] : values[i], other = upper ? values[i] : values[i + n];
        values[i] = mine + __shfl_xor_sync(kAll, other, o);
      }
    }
#pragma unroll
    for (int o = kSpread / 2; o > 0; o /= 2) values[0] += __shfl_xor_sync(kAll, values[0], o);
    return values[0];
  }
};

}  // namespace baton::cuda

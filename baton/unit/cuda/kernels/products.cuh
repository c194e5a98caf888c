// Do::kMultiply: products of matrices with a few rows, in plain arithmetic: what a decode step is made of.
//
// A block takes a contiguous part of the output rows. Rows of x come through the prologue into its shared memory, as
// f32 or, for codes, as two planes of 8-bit integers with a scale for each group of 32 (15 bits in all: the products
// with codes are exact integers, and x loses less than bf16 would). Weights come by feed.cuh, which says whose they
// are. What a row sums, in which order, depends on the matrix alone: neither on the other rows of x nor on the number
// of blocks.
#pragma once

#include "baton/unit/cuda/kernels/feed.cuh"
#include "baton/unit/cuda/kernels/staged_rows.cuh"
#include "baton/unit/cuda/values.h"

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

// A warp's set: its matrix rows, and where their pieces of a span lie.
struct PieceSet {
  const Matrix* matrix[kSet];
  int row[kSet];
  const unsigned char* piece[kSet];
  int count;

  // Of those in `left`, those that are stored as the first of them.
  __device__ __forceinline__ uint32_t alike(uint32_t left) const {
    int kind = -1;
    uint32_t found = 0;
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
      if ((left >> s & 1) == 0) continue;
      const int own = static_cast<int>(matrix[s]->form) * 256 + matrix[s]->bits;
      if (kind < 0) kind = own;
      if (own == kind) found |= 1u << s;
    }
    return found;
  }
};

// kFull: all of a set are active. Sums of the set's matrix rows with kRows rows of x, over the columns of a span; of
// each lane a part. x: rows of `stride` values from the span's first column on, as stage_rows puts them.
template <Form kForm, int kRows, bool kFull>
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
      if (!kFull && (active >> s & 1) == 0) continue;
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
  template <int kBits>
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
      const float product = static_cast<float>(256 * highs + lows) - zero * sum[half];
      value = fmaf(scales.d[half], product, value);
      value = fmaf(-scales.m[half], sum[half], value);
    }
    return facts.x * value;
  }
};

// As multiply_dense: a lane has a group.
template <int kBits, int kRows>
__device__ __forceinline__ void multiply_codes(const PieceSet& set, uint32_t active, unsigned char* xs, int group,
                                               int groups, float (&sums)[kSet][kRows]) {
  if (group >= groups) return;
#pragma unroll 1
  for (int s = 0; s < kSet; ++s) {
    if ((active >> s & 1) == 0) continue;
    const Matrix* matrix = set.matrix[0];
    const unsigned char* piece = set.piece[0];
    int row = set.row[0];
#pragma unroll
    for (int k = 1; k < kSet; ++k) {
      if (k == s) matrix = set.matrix[k], piece = set.piece[k], row = set.row[k];
    }
    const Raw<kBits> raw = take_raw<kBits>(piece);
    const Scales scales = take_scales(*matrix, row, group, piece);
    Group<kBits> q = take_apart(raw);
    if constexpr (kBits <= 4) {
      if (matrix->has_table) q = look_up(raw, lookup_of(*matrix));
    }
    const float zero = matrix->has_table ? 0.0f : static_cast<float>(matrix->zero);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const IntegerGroup x(integer_row(xs + r * integer_row_bytes(groups), groups), group, groups);
      const float sum = x.times(q, scales, zero);
#pragma unroll
      for (int k = 0; k < kSet; ++k) {
        if (k == s) sums[k][r] += sum;
      }
    }
  }
}

// The pieces of a span `wide` columns wide. `xs`: rows of x.
template <int kRows>
__device__ __forceinline__ void multiply_span(const PieceSet& set, int first_column, int wide, unsigned char* xs,
                                              float (&sums)[kSet][kRows]) {
  const int pitch = set.matrix[0]->pitch, stride = (pitch + 255) / 256 * 256, groups = pitch / kGroup;
  const int columns = min(wide, pitch - first_column), own = static_cast<int>(lane());
  const int group = own * kGroup < columns ? first_column / kGroup + own : groups;
  const float* const floats = reinterpret_cast<const float*>(xs) + first_column;
  for (uint32_t left = (1u << set.count) - 1; left != 0;) {
    const uint32_t active = set.alike(left);
    left &= ~active;
    const Matrix* first = set.matrix[0];
#pragma unroll
    for (int s = kSet - 1; s >= 0; --s) {
      if ((active >> s & 1) != 0) first = set.matrix[s];
    }
    switch (first->form == Form::kCodes ? 256 + first->bits : static_cast<int>(first->form)) {
      case static_cast<int>(Form::kF32):
        multiply_dense<Form::kF32, kRows, false>(set, active, floats, stride, columns, sums);
        break;
      case static_cast<int>(Form::kF16):
        multiply_dense<Form::kF16, kRows, false>(set, active, floats, stride, columns, sums);
        break;
      case static_cast<int>(Form::kBF16):
        if (active == (1u << kSet) - 1) {
          multiply_dense<Form::kBF16, kRows, true>(set, active, floats, stride, columns, sums);
          break;
        }
        multiply_dense<Form::kBF16, kRows, false>(set, active, floats, stride, columns, sums);
        break;
#define BATON_CASE(bits)                                                 \
  case 256 + (bits):                                                     \
    multiply_codes<(bits), kRows>(set, active, xs, group, groups, sums); \
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

// Where a thread's output of a round goes, if it has one.
struct Target {
  float* out = nullptr;
  float before = 0;  // what is added

  __device__ __forceinline__ Target(const Instruction& in, const Share& share, int output, int64_t row, bool has) {
    if (!has) return;
    const Line line = share.pairs ? Line{0, output} : line_of_output(in, output);
    const int width = in.matrix[line.matrix].rows;
    out = row_of(in.outs[line.matrix], width, row) + line.row;
    if (in.epilogue == Epilogue::kAdd) before = row_of(in.z, width, row)[line.row];
  }
  __device__ __forceinline__ void store(const Instruction& in, float product, float other) const {
    if (out == nullptr) return;
    if (in.epilogue == Epilogue::kSwiGlu) product = silu(product) * other;
    if (in.epilogue == Epilogue::kGeGlu) product = gelu_of(product, in.op.gelu) * other;
    *out = product + before;
  }
};

// The pieces of the warp's set of a round, all spans of it.
template <int kRows>
__device__ __forceinline__ void multiply_round(const Instruction& in, int index, const Share& share, int round,
                                               Feed& feed, unsigned char* xs, float (&sums)[kSet][kRows]) {
  PieceSet set;
  set.count = share.lines(round);
#pragma unroll
  for (int s = 0; s < kSet; ++s) {
    const Line line = s < set.count ? line_of(in, share, round, s) : Line{0, 0};
    set.matrix[s] = &in.matrix[line.matrix];
    set.row[s] = line.row;
  }
  if (set.count == 0) return;
  Cursor& cursor = feed.cursor[warp()];
  const int wide = feed.plan.span;
  const auto count = static_cast<uint32_t>(set.count);
  for (int span = share.slice; span < share.spans; span += share.slices) {
    const uint32_t pending = cursor.asked - cursor.taken, slots = feed.plan.slots;
    copies_wait_but(pending - count);
    uint32_t slot = cursor.slot + slots - pending;
    slot = slot >= slots ? slot - slots : slot;
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
      set.piece[s] = slot_at(feed.plan, slot);
      slot = slot + 1 == slots ? 0 : slot + 1;
    }
    multiply_span<kRows>(set, span * wide, wide, xs, sums);
    __syncwarp();
    if (lane() == 0) cursor.taken += count;
    __syncwarp();
    if (cursor.product == index) fill(feed, index + 1);
  }
}

// Up to kRows rows of x from `row` on, of the instruction that is `index` in the list.
template <int kRows>
__device__ __forceinline__ void multiply_tile(const Instruction& in, int index, int row, int rows, uint32_t block,
                                              uint32_t blocks, unsigned char* shared, Feed& feed) {
  float* const partial = reinterpret_cast<float*>(shared);  // [2][teams][kSet][kRows][slices]
  float* const factors = partial + 2 * kWarps * kSet * kTile;
  float* const scratch = factors + kTile;
  const Staged staged(in.matrix[0], shared + kBeforeRows);
  stage_rows<kRows>(in, row, rows, staged, factors, scratch);
  const Share share(in, feed.plan, block, blocks);
  const int rounds = share.rounds(), thread = static_cast<int>(threadIdx.x);
  // The value of a round that a thread puts down: of its own warp's where that has whole sums.
  const bool whole = share.slices == 1;
  const int number = whole ? Sums<kRows>::number() : thread % Sums<kRows>::kCount;
  const int team = whole ? share.team : thread / Sums<kRows>::kCount, s = number / kRows, r = number % kRows;
  const bool own = (whole ? static_cast<int>(lane()) % Sums<kRows>::kSpread == 0 : team < share.teams) && r < rows &&
                   !(share.pairs && s % 2 == 1);
  for (int round = 0; round < rounds; ++round) {
    const int output = share.output(team, round, share.pairs ? s / 2 : s);
    const Target target(in, share, output, row + r, own && output < share.end);
    float sums[kSet][kRows] = {};
    multiply_round<kRows>(in, index, share, round, feed, staged.xs, sums);
    float sum = Sums<kRows>::of(sums), other = 0;
    if (whole) {
      other = __shfl_down_sync(kAll, sum, kRows * Sums<kRows>::kSpread);
    } else {
      float* const of = partial + round % 2 * kWarps * kSet * kTile;
      if (lane() % Sums<kRows>::kSpread == 0)
        of[(share.team * Sums<kRows>::kCount + Sums<kRows>::number()) * share.slices + share.slice] = sum;
      __syncthreads();
      if (own) {
        const float* const from = of + (team * Sums<kRows>::kCount + number) * share.slices;
        sum = other = 0;
        for (int i = 0; i < share.slices; ++i) sum += from[i];
        if (share.pairs) {
          for (int i = 0; i < share.slices; ++i) other += from[kRows * share.slices + i];
        }
      }
    }
    const float factor = factors[r];
    target.store(in, sum * factor, other * factor);
  }
}

// Apart, so that it takes no registers from what a single sequence needs.
__device__ __noinline__ void multiply_rows(const Instruction& in, int index, int row, int rows, uint32_t block,
                                           uint32_t blocks, unsigned char* shared, Feed& feed) {
  multiply_tile<kTile>(in, index, row, rows, block, blocks, shared, feed);
}

__device__ __forceinline__ void do_multiply(const Instruction& in, int index, uint32_t block, uint32_t blocks,
                                            unsigned char* shared, Feed& feed) {
  const int rows = rows_of(in, feed);
  const int step = tile_rows(in, rows, feed.plan.work_bytes);
  if (!feed.plan.ahead) fill(feed, index + 1);
  for (int row = 0; row < rows; row += step) {
    if (row > 0) __syncthreads();
    if (step == kTile) {
      multiply_rows(in, index, row, min(kTile, rows - row), block, blocks, shared, feed);
    } else {
      multiply_tile<1>(in, index, row, 1, block, blocks, shared, feed);
    }
  }
}

}  // namespace baton::cuda

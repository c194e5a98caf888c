// Do::kMultiply: products of matrices with a few rows, in plain arithmetic: what a decode step is made of.
//
// A block takes a contiguous part of the output rows. Rows of x come through the prologue into its shared memory, as
// f32 or, for codes, as two planes of 8-bit integers with a scale for each group of 32 (15 bits in all: the products
// with codes are exact integers, and x loses less than bf16 would). Weights come by feed.cuh, which says whose they
// are. What a row sums, in which order, depends on the matrix alone: neither on the other rows of x nor on the number
// of blocks.
#pragma once

#include "baton/unit/cuda/kernels/pieces.cuh"
#include "baton/unit/cuda/values.h"

namespace baton::cuda {

// Where a thread's output of a round goes, if it has one.
struct Target {
  float* out = nullptr;
  float before = 0;  // what is added

  __device__ __forceinline__ Target(const Instruction& in, bool pairs, int output, bool has, int64_t row = 0) {
    if (!has) return;
    const Line line = pairs ? Line{0, output} : line_of_output(in, output);
    const int width = in.matrix[line.matrix].rows;
    out = row_of(in.outs[line.matrix], width, row) + line.row;
    if (in.epilogue == Epilogue::kAdd) before = row_of(in.z, width, row)[line.row];
  }
  // Returns what there was, or nothing.
  __device__ __forceinline__ uint32_t store(const Instruction& in, float product, float other) const {
    if (out == nullptr) return 0;
    if (in.epilogue == Epilogue::kSwiGlu) product = silu(product) * other;
    if (in.epilogue == Epilogue::kGeGlu) product = gelu_of(product, in.op.gelu) * other;
    return exchange(out, product + before);
  }
};

// The bundles of a tile of rows of x, for whoever multiplies; `first` is the number of the tile's first.
struct Pieces {
  const FeedPlan& plan;
  const Slots slots;
  uint32_t first;

  __device__ __forceinline__ Pieces(const FeedPlan& of, uint32_t number) : plan(of), slots(of), first(number) {}
  __device__ __forceinline__ const unsigned char* place(const PieceAt& piece) const {
    return block_shared() + plan.work_bytes + slots.slot(first + piece.bundle) * plan.slot_bytes + piece.offset;
  }
};

// The pieces of a round, all spans of it, a set at a time.
template <int kRows>
__device__ __forceinline__ void multiply_round(const Instruction& in, const Share& share, int round,
                                               const Pieces& pieces, unsigned char* xs, float (&sums)[kSet][kRows]) {
  PieceSet set;
  set.count = share.lines(round);
  if (set.count == 0) return;
  const int wide = pieces.plan.span;
  for (int span = share.slice(); span < share.spans; span += share.slices()) {
#pragma unroll
    for (int s = 0; s < kSet; ++s) {
      const int i = s < set.count ? s : 0;
      const Line line = line_of(in, share, round, i);
      const PieceAt piece = share.piece(round, i, span);
      set.matrix[s] = &in.matrix[line.matrix];
      set.piece[s] = pieces.place(piece);
      if (s < set.count) pieces.slots.wait_full(pieces.first + piece.bundle);
    }
    multiply_set<kRows>(set, span * wide, wide, xs, sums);
    for (int i = 0; i < set.count; ++i) pieces.slots.release(pieces.first + share.piece(round, i, span).bundle);
  }
}

// Of one row of x, piece by piece: each makes room for another as soon as it has been multiplied. `only` is of the
// warp's only span, or of none.
template <class Held>
__device__ __forceinline__ void multiply_pieces(const Instruction& in, const Share& share, int round,
                                                const Pieces& pieces, const Staged& staged, const Held& only,
                                                float (&sums)[kSet][1]) {
  static_assert(kSet == 4);
  const int lines = share.lines(round), wide = pieces.plan.span;
  // Dense pieces of one form say nothing of their line.
  const bool plain = !Held::kNeedsLine && in.product.has(ProductShares::kOneForm);
  const auto span_of = [&](const Held& held, int span) {
#pragma unroll 1
    for (int s = 0; s < lines; ++s) {
      const Line line = plain ? Line{0, 0} : line_of(in, share, round, s);
      const PieceAt piece = share.piece(round, s, span);
      const uint32_t bundle = pieces.first + piece.bundle;
      const float before = s == 0 ? sums[0][0] : s == 1 ? sums[1][0] : s == 2 ? sums[2][0] : sums[3][0];
      pieces.slots.wait_full(bundle);
      const float sum = held.times(in.matrix[line.matrix], line.row, pieces.place(piece), before);
#pragma unroll
      for (int k = 0; k < kSet; ++k) {
        if (k == s) sums[k][0] = sum;
      }
      pieces.slots.release(bundle);
    }
  };
  if (share.spans <= share.slices()) {
    if (share.slice() < share.spans) span_of(only, share.slice());
    return;
  }
  for (int span = share.slice(); span < share.spans; span += share.slices())
    span_of(Held(staged, span * wide, wide), span);
}

// multiply(round, sums) for each round, and what becomes of the sums. Returns what has to be there before the outputs
// are: Meeting::arrive_when.
template <int kRows, class Multiply>
__device__ __forceinline__ uint32_t multiply_rounds(const Instruction& in, const Share& share, int row, int rows,
                                                    unsigned char* shared, const Factors& factors,
                                                    Multiply&& multiply) {
  float* const partial = reinterpret_cast<float*>(shared);  // [2][teams][kSet][kRows][slices]
  const int rounds = share.rounds, thread = static_cast<int>(threadIdx.x), slices = share.slices();
  // The value of a round that a thread puts down: of its own warp's where that has whole sums.
  const bool whole = slices == 1;
  const int number = whole ? Sums<kRows>::number() : thread % Sums<kRows>::kCount;
  const int team = whole ? share.team() : thread / Sums<kRows>::kCount, s = number / kRows, r = number % kRows;
  const bool own =
      (whole ? static_cast<int>(lane()) % Sums<kRows>::kSpread == 0 : team < kWarps >> share.slices_log2) && r < rows &&
      !(share.pairs && s % 2 == 1);
  const float factor = factors.of(r);
  uint32_t done = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const int output = share.output(team, round, share.pairs ? s / 2 : s);
    const Target target(in, share.pairs, output, own && output < share.end, row + r);
    float sums[kSet][kRows] = {};
    multiply(round, sums);
    float sum = Sums<kRows>::of(sums), other = 0;
    if (whole) {
      other = __shfl_down_sync(kAll, sum, kRows * Sums<kRows>::kSpread);
    } else {
      float* const of = partial + round % 2 * kWarps * kSet * kTile;
      if (lane() % Sums<kRows>::kSpread == 0)
        of[(((share.team() * Sums<kRows>::kCount) + Sums<kRows>::number()) << share.slices_log2) + share.slice()] = sum;
      meet();
      if (own) {
        const float* const from = of + ((team * Sums<kRows>::kCount + number) << share.slices_log2);
        sum = other = 0;
        for (int i = 0; i < slices; ++i) sum += from[i];
        if (share.pairs) {
          for (int i = 0; i < slices; ++i) other += from[(kRows << share.slices_log2) + i];
        }
      }
    }
    done |= target.store(in, sum * factor, other * factor);
  }
  return done;
}

template <class Held>
__device__ __forceinline__ uint32_t multiply_one(const Instruction& in, int row, const Share& share,
                                                 unsigned char* shared, const Pieces& pieces, const Staged& staged,
                                                 const Factors& factors) {
  const int first = share.slice() * pieces.plan.span;
  const Held held(staged, min(first, staged.pitch - kGroup), pieces.plan.span);
  return multiply_rounds<1>(in, share, row, 1, shared, factors, [&](int round, float(&sums)[kSet][1]) {
    multiply_pieces<Held>(in, share, round, pieces, staged, held, sums);
  });
}

// Several rows of x. Apart, so that it takes no registers from what a single sequence needs.
__device__ __noinline__ uint32_t multiply_rows(const Instruction& in, int row, int rows, const Share& share,
                                               unsigned char* shared, const FeedPlan& plan, uint32_t first) {
  is_shared(&in);
  const Staged staged(in.matrix[0], shared + kBeforeRows);
  const Factors factors(in, in.product.has(ProductShares::kFours), shared);
  const Pieces pieces(plan, first);
  stage_rows<kTile>(in, in.product.has(ProductShares::kFours), row, rows, staged, factors);
  return multiply_rounds<kTile>(in, share, row, rows, shared, factors, [&](int round, float(&sums)[kSet][kTile]) {
    multiply_round<kTile>(in, share, round, pieces, staged.xs, sums);
  });
}

// Rows of x of a tile, apart from who multiplies.
__device__ __noinline__ void stage_tile(const Instruction& in, int row, int rows, unsigned char* shared) {
  is_shared(&in);
  const bool fours = in.product.has(ProductShares::kFours);
  stage_rows<kTile>(in, fours, row, rows, Staged(in.matrix[0], shared + kBeforeRows), Factors(in, fours, shared));
}

// The same of 16-bit matrices of one form, with the same bits: what multiply_rows knows of each piece is known of all
// here, and nothing of it lies in local memory. `rows_of_x`: of the whole product; kRows of a tile, or fewer.
template <Form kForm, int kRows>
__device__ __noinline__ uint32_t multiply_values(const Instruction& in, int row, int rows, int rows_of_x,
                                                 unsigned char* shared, const FeedPlan& plan, uint32_t first) {
  static_assert(kSet == 4);
  constexpr int kWide = 1024, kEach = 8;  // columns of a piece, and of a lane at a time
  is_shared(&in);
  const Share share(in.product, rows_of_x);
  const Slots slots(plan);
  const uint32_t ring = plan.work_bytes;
  const Factors factors(in, in.product.has(ProductShares::kFours), shared);
  const int pitch = in.matrix[0].pitch, stride = (pitch + 255) & ~255;
  const float* const xs = reinterpret_cast<const float*>(shared + kBeforeRows) + lane() * 4;
  return multiply_rounds<kRows>(in, share, row, rows, shared, factors, [&](int round, float(&sums)[kSet][kRows]) {
    const int lines = share.lines(round);
    if (lines == 0) return;
#pragma unroll 1
    for (int span = share.slice(); span < share.spans; span += share.slices()) {
      const unsigned char* pieces[kSet];
#pragma unroll
      for (int s = 0; s < kSet; ++s) {
        const PieceAt piece = share.piece(round, s < lines ? s : 0, span);
        const uint32_t bundle = first + piece.bundle;
        pieces[s] = block_shared() + ring + slots.slot(bundle) * slots.slot_bytes + piece.offset + lane() * 16;
        if (s < lines) slots.wait_full(bundle);
      }
      const int columns = min(kWide, pitch - span * kWide);
#pragma unroll 1
      for (int c = 0; (c * 32 + static_cast<int>(lane())) * kEach < columns; ++c) {
        uint32_t loaded[kSet][4];
#pragma unroll
        for (int s = 0; s < kSet; ++s) load_words<4, Reading::kCached>(pieces[s] + c * 512, loaded[s]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float* const from = xs + r * stride + span * kWide + c * 256;
          const float4 low = *reinterpret_cast<const float4*>(from),
                       high = *reinterpret_cast<const float4*>(from + 128);
          const float x[kEach] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
          for (int s = 0; s < kSet; ++s) {
            float w[kEach];
            Dense<kForm>::widen(loaded[s], w);
#pragma unroll
            for (int i = 0; i < kEach; ++i) sums[s][r] = fmaf(w[i], x[i], sums[s][r]);
          }
        }
      }
#pragma unroll
      for (int s = 0; s < kSet; ++s) {
        if (s < lines) slots.release(first + share.piece(round, s, span).bundle);
      }
    }
  });
}

// Two rows of bf16, which most models have, are not padded to a tile.
__device__ __forceinline__ uint32_t multiply_values_of(const Instruction& in, int row, int rows, int rows_of_x,
                                                       unsigned char* shared, const FeedPlan& plan, uint32_t first) {
  if (in.matrix[0].form == Form::kF16)
    return multiply_values<Form::kF16, kTile>(in, row, rows, rows_of_x, shared, plan, first);
  if (rows > 2) return multiply_values<Form::kBF16, kTile>(in, row, rows, rows_of_x, shared, plan, first);
  return multiply_values<Form::kBF16, 2>(in, row, rows, rows_of_x, shared, plan, first);
}

// `first`: the number of its first bundle. Returns what multiply_rounds does.
__device__ __forceinline__ uint32_t do_multiply(const Instruction& in, const Share& share, unsigned char* shared,
                                                const FeedPlan& plan, uint32_t first) {
  is_shared(&in);
  begin_product(plan);
  const Staged staged(in.matrix[0], shared + kBeforeRows);
  const Factors factors(in, in.product.has(ProductShares::kFours), shared);
  uint32_t done = 0;
  for (int row = 0; row < share.rows; row += share.step, first += share.of_tile()) {
    if (row > 0) meet();
    if (share.step == kTile && staged.halves && in.product.has(ProductShares::kOneForm) && plan.span == 1024) {
      const int count = min(kTile, share.rows - row);
      stage_tile(in, row, count, shared);
      done |= multiply_values_of(in, row, count, share.rows, shared, plan, first);
      continue;
    }
    if (share.step == kTile) {
      done |= multiply_rows(in, row, min(kTile, share.rows - row), share, shared, plan, first);
      continue;
    }
    const Pieces pieces(plan, first);
    stage_rows<1>(in, in.product.has(ProductShares::kFours), row, 1, staged, factors);
    if (staged.halves) {
      done |= multiply_one<HeldValues>(in, row, share, shared, pieces, staged, factors);
    } else if (staged.codes) {
      done |= multiply_one<HeldIntegers>(in, row, share, shared, pieces, staged, factors);
    } else {
      done |= multiply_one<HeldFloats>(in, row, share, shared, pieces, staged, factors);
    }
  }
  return done;
}

}  // namespace baton::cuda

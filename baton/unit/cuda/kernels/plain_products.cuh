// Do::kMultiply as most steps have it: one row of x, matrices of 16-bit values or of codes.
#pragma once

#include <type_traits>

#include "baton/unit/cuda/kernels/products.cuh"
#include "baton/unit/cuda/kernels/words.cuh"

namespace baton::cuda {

// Where a plain instruction works, in which launch: of two places in turns (half_of), so that nobody has to wait for
// others of its block to leave the one before.
struct Bench {
  unsigned char* shared;
  const uint32_t& launch;
};

// A row of x of those that go by fours, and a meeting.
template <bool kCodes>
__device__ __forceinline__ void stage_plain(const Instruction& in, const Staged& staged, const Factors& factors,
                                            const Bench& bench) {
  const auto of = [&](Address row, bool worded, int i, bool there) {
    if (worded) return four_of_words(at<const uint64_t>(row) + i, there, bench.launch);
    return four_of(at<const float>(row), i, there);
  };
  prologue_fours_of(
      in, kCodes ? staged.pitch : staged.stride, factors.squares(0),
      [&](int i, bool there) { return of(in.x, (in.worded & kWordsX) != 0, i, there); },
      [&](int i, bool there) { return of(in.y, (in.worded & kWordsY) != 0, i, there); },
      [&](int i, const float4& four) {
        if constexpr (kCodes) {
          round_fours(four, staged.integers(0), i, staged.groups);
        } else {
          staged.put_halves(i, four);
        }
      });
  meet();
}

// Where a thread's output of a round goes, if it has one, and what is added there. Few registers: they are needed for
// what is multiplied meanwhile.
class PlainTarget {
 public:
  __device__ __forceinline__ PlainTarget(const Instruction& in, bool pairs, int output, bool has) {
    if (!has) return;
    line_ = pairs ? Line{0, output} : line_of_output(in, output);
  }
  // Asks for what is added.
  __device__ __forceinline__ void ask(const Instruction& in) {
    if (line_.matrix >= 0) look(in);
  }
  // Returns what there was, or nothing.
  __device__ __forceinline__ uint32_t store(const Instruction& in, float product, float other, uint32_t launch) {
    if (line_.matrix < 0) return 0;
    if (in.epilogue == Epilogue::kSwiGlu) product = silu(product) * other;
    if (in.epilogue == Epilogue::kGeGlu) product = gelu_of(product, in.op.gelu) * other;
    if (in.epilogue == Epilogue::kAdd) {
      while ((in.worded & kWordsZ) != 0 && !has_come(before_, launch)) {
        looked_in_vain();
        look(in);
      }
      product += value_of_word(before_);
    }
    const Address out = in.outs[line_.matrix];
    if ((in.worded & kWordsOut) == 0) return exchange(at<float>(out) + line_.row, product);
    store_word(at<uint64_t>(out) + line_.row, word_of_value(product, launch));
    return 0;
  }

 private:
  __device__ __forceinline__ void look(const Instruction& in) {
    if (in.epilogue != Epilogue::kAdd) return;
    if ((in.worded & kWordsZ) != 0) {
      before_ = look_at_word(at<const uint64_t>(in.z) + line_.row);
    } else {
      before_ = __float_as_uint(at<const float>(in.z)[line_.row]);
    }
  }

  Line line_ = {-1, 0};
  uint64_t before_ = 0;
};

// The first output of the block.
__device__ __forceinline__ int begin_of(const ProductShares& of) {
  const int block = static_cast<int>(blockIdx.x);
  return block * of.outputs + min(block, of.more);
}

// A warp's pieces of a product: those of its span, every so many outputs. What the product and the plan say is read
// from shared memory where it is needed, as registers are for what is multiplied.
struct PlainPieces {
  const FeedPlan& plan;
  const ProductShares& of;
  const uint32_t& first;  // the number of the product's first bundle
  int teams_log2, slice;

  __device__ __forceinline__ int both() const { return of.has(ProductShares::kPairs) ? 1 : 0; }
  // Of the i-th matrix row from `output` of the block on; a pair's follow each other.
  __device__ __forceinline__ int output(int from, int i) const { return from + ((i >> both()) << teams_log2); }
  __device__ __forceinline__ PieceAt at(int from, int i) const {
    return Bundling(of).at(output(from, i), slice, i & both());
  }
  __device__ __forceinline__ const unsigned char* place(const PieceAt& piece) const {
    return block_shared() + plan.work_bytes + Slots(plan).slot(first + piece.bundle) * plan.slot_bytes + piece.offset;
  }
  __device__ __forceinline__ void wait(const PieceAt& piece) const { Slots(plan).wait_full(first + piece.bundle); }
  __device__ __forceinline__ void release(const PieceAt& piece) const { Slots(plan).release(first + piece.bundle); }
};

// The next `count` matrix rows of a warp, at most a set, from `output` of the block on. `one_by_one`: more come behind
// them, and each makes room as soon as it has been multiplied.
template <class Held>
__device__ __forceinline__ void multiply_plain(const Instruction& in, const Held& held, const PlainPieces& pieces,
                                               int count, int output, bool one_by_one, float (&sums)[kSet][1]) {
  const int both = pieces.both();
  if constexpr (Held::kNeedsLine) {
    const auto x = held.read();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const int of_all = begin_of(pieces.of) + pieces.output(output, i);
      const Line line = both != 0 ? Line{i & 1, of_all} : line_of_output(in, of_all);
      const PieceAt piece = pieces.at(output, i);
      pieces.wait(piece);
      const float sum = held.times(in.matrix[line.matrix], x, pieces.place(piece));
#pragma unroll
      for (int k = 0; k < kSet; ++k) sums[k][0] = k == i ? sum : sums[k][0];
      pieces.release(piece);
    }
  } else {
    static_assert(kSet == 4);
    if (one_by_one) {
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const PieceAt piece = pieces.at(output, i);
        pieces.wait(piece);
        const unsigned char* const from = pieces.place(piece);
        const float sum = in.product.form == Form::kBF16 ? held.template times_form<Form::kBF16>(from, 0)
                                                         : held.template times_form<Form::kF16>(from, 0);
#pragma unroll
        for (int k = 0; k < kSet; ++k) sums[k][0] = k == i ? sum : sums[k][0];
        pieces.release(piece);
      }
      return;
    }
    const unsigned char* places[kSet];
#pragma unroll
    for (int i = 0; i < kSet; ++i) {
      const PieceAt piece = pieces.at(output, i);
      if (i < count) pieces.wait(piece);
      places[i] = pieces.place(piece);
    }
    const auto times = [&](auto form) {
      constexpr Form kForm = decltype(form)::value;
      switch (count) {
        case 1:
          return held.template times_each<kForm, 1>(places, sums);
        case 2:
          return held.template times_each<kForm, 2>(places, sums);
        case 3:
          return held.template times_each<kForm, 3>(places, sums);
        default:
          return held.template times_each<kForm, 4>(places, sums);
      }
    };
    if (in.product.form == Form::kBF16) {
      times(std::integral_constant<Form, Form::kBF16>());
    } else {
      times(std::integral_constant<Form, Form::kF16>());
    }
    __syncwarp();
    if (static_cast<int>(lane()) < count)
      arrive(Slots(pieces.plan).empty(pieces.first + pieces.at(output, static_cast<int>(lane())).bundle));
  }
}

// One row of x with matrices of 16-bit values of one form, or of codes; no more spans than warps: what most steps are
// made of. The sums are do_multiply's, in fewer steps; is_plain says of which. wait() is called before anything is
// read that is not words; `first` is the number of its first bundle. A row that does not go by fours is staged before
// (stage_other).
template <bool kCodes, class Wait>
__device__ __forceinline__ uint32_t do_plain_multiply(const Instruction& in, const Bench& bench, const FeedPlan& plan,
                                                      const uint32_t& first, const Wait& wait) {
  is_shared(&in);
  const ProductShares& of = in.product;
  const bool fours = of.has(ProductShares::kFours), pairs = of.has(ProductShares::kPairs);
  const Factors factors(in, fours, bench.shared);
  const Staged staged(in.matrix[0], bench.shared + kBeforeRows);
  const int both = pairs ? 1 : 0, teams_log2 = kWarpsLog2 - of.slices_log2;
  const int slice = static_cast<int>(warp()) & ((1 << of.slices_log2) - 1),
            team = static_cast<int>(warp() >> of.slices_log2);
  const int outputs = of.outputs + (static_cast<int>(blockIdx.x) < of.more ? 1 : 0);
  const int own_outputs = outputs > team ? (outputs - team + (1 << teams_log2) - 1) >> teams_log2 : 0;
  int lines = slice < of.spans ? own_outputs << both : 0;  // left to the warp
  const std::conditional_t<kCodes, HeldIntegers, HeldValues> held(staged, min(slice * plan.span, staged.pitch - kGroup),
                                                                  plan.span);
  const PlainPieces pieces = {plan, of, first, teams_log2, slice};
  const bool whole = of.slices_log2 == 0;
  const int thread = static_cast<int>(threadIdx.x), number = whole ? Sums<1>::number() : thread & (kSet - 1);
  const int of_team = whole ? team : thread >> 2;
  const bool puts = (whole ? (lane() & 7) == 0 : of_team < 1 << teams_log2) && (number & both) == 0;
  const bool many = lines > kSet;
  float* const partial = reinterpret_cast<float*>(bench.shared);
  static_assert(kSet == 4 && Sums<1>::kSpread == 8);
  int output = of_team + ((number >> both) << teams_log2), own = team;
  PlainTarget target(in, pairs, begin_of(of) + output, puts && output < outputs);
  wait();
  if (fours) stage_plain<kCodes>(in, staged, factors, bench);
  const float factor = factors.of(0);
  uint32_t done = 0;
#pragma unroll 1
  for (int round = 0;;) {
    target.ask(in);
    float sums[kSet][1] = {};
    if (lines > 0) multiply_plain(in, held, pieces, min(lines, kSet), own, many, sums);
    lines -= kSet;
    own += kSet >> both << teams_log2;
    float sum = Sums<1>::of(sums), other = 0;
    if (whole) {
      other = __shfl_down_sync(kAll, sum, Sums<1>::kSpread);
    } else {
      float* const put = partial + (round & 1) * kWarps * kSet * kTile;
      if ((lane() & 7) == 0) put[((team * kSet + Sums<1>::number()) << of.slices_log2) + slice] = sum;
      meet();
      if (puts) {
        const float* const from = put + (thread << of.slices_log2);
        sum = 0;
        for (int i = 0; i < 1 << of.slices_log2; ++i) sum += from[i];
        for (int i = 0; both != 0 && i < 1 << of.slices_log2; ++i) other += from[(1 << of.slices_log2) + i];
      }
    }
    done |= target.store(in, sum * factor, other * factor, bench.launch);
    ++round;
    if (round << (2 - both + teams_log2) >= outputs) break;
    output += 4 << (teams_log2 - both);
    target = PlainTarget(in, pairs, begin_of(of) + output, puts && output < outputs);
  }
  return done;
}

}  // namespace baton::cuda

// Weights on their way from memory to the warps that will multiply them, across the instructions of a list: while a
// block waits for others or does something else, what comes next arrives.
//
// A piece is a span of columns of a matrix row (feed_layout.h). A warp has a ring of them, and of each piece a lane
// asks for what it will read itself: nobody waits for anybody. Asking and multiplying go through pieces in one order:
// product by product, of it tiles of rows of x, rounds, spans, and the set's matrix rows.
#pragma once

#include "baton/unit/cuda/codes.h"
#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/kernels/ptx.cuh"

namespace baton::cuda {

inline constexpr int kSet = 4;               // matrix rows of a warp at a time, at most
inline constexpr int kInstructionsKept = 8;  // instructions that a block has before it
static_assert((kInstructionsKept & (kInstructionsKept - 1)) == 0);

// What the blocks of an instruction share out: output rows of all matrices one after the other, or pairs of a gate's
// and an up's; and of a block's part what a warp does. `slices` warps, a team, share an output: each has every
// slices-th span of it. Outputs of a team are every teams-th.
struct Share {
  bool pairs;
  int begin, end;  // outputs of the block
  int spans, slices, slice;
  int team, teams, each;  // outputs of a team in a round

  __device__ Share(const Instruction& in, const FeedPlan& plan, uint32_t block, uint32_t blocks)
      : pairs(in.epilogue == Epilogue::kSwiGlu || in.epilogue == Epilogue::kGeGlu) {
    int count = 0;
    for (int i = 0; i < (pairs ? 1 : in.matrices); ++i) count += in.matrix[i].rows;
    // They are few enough that the product fits.
    begin = static_cast<int>(static_cast<uint32_t>(count) * block / blocks);
    end = static_cast<int>(static_cast<uint32_t>(count) * (block + 1) / blocks);
    spans = (in.matrix[0].pitch + plan.span - 1) / plan.span;
    slices = 1;
    while (slices < spans && slices < kWarps) slices *= 2;
    teams = kWarps / slices;
    slice = static_cast<int>(warp()) & (slices - 1);
    team = static_cast<int>(warp()) / slices;
    each = static_cast<int>(pairs ? plan.set / 2 : plan.set);
  }
  __device__ int rounds() const { return (end - begin + teams * each - 1) / (teams * each); }
  __device__ int output(int of_team, int round, int i) const { return begin + (round * each + i) * teams + of_team; }
  // Outputs of the warp's team in a round.
  __device__ int outputs(int round) const {
    const int first = output(team, round, 0);
    return first >= end ? 0 : min(each, (end - first + teams - 1) / teams);
  }
  __device__ int lines(int round) const { return pairs ? 2 * outputs(round) : outputs(round); }
};

// A matrix of an instruction and a row of it.
struct Line {
  int matrix, row;
};
__device__ __forceinline__ Line line_of_output(const Instruction& in, int output) {
  Line line = {0, output};
  while (line.matrix + 1 < in.matrices && line.row >= in.matrix[line.matrix].rows)
    line.row -= in.matrix[line.matrix++].rows;
  return line;
}
__device__ __forceinline__ Line line_of(const Instruction& in, const Share& share, int round, int i) {
  if (share.pairs) return {i & 1, share.output(share.team, round, i >> 1)};
  return line_of_output(in, share.output(share.team, round, i));
}

inline constexpr int kFirstSpan = -1;  // whichever is the warp's

// Where a warp's asking stands. In shared memory, as it lasts across instructions.
struct Cursor {
  int product;  // the instruction
  int tile, rounds_done, span, line;
  uint32_t slot;          // the next to be filled
  uint32_t asked, taken;  // pieces
};

// Of a block; in its shared memory.
struct Feed {
  FeedPlan plan;
  const Instruction* window;  // of instruction i the entry i % kInstructionsKept; one alone: only the first
  int rows, rows_out;
  Cursor cursor[kWarps];

  // By all threads, and a meeting behind it.
  __device__ void begin(const FeedPlan& of, const Pass& pass, const Instruction* instructions) {
    if (threadIdx.x == 0) {
      plan = of;
      window = instructions;
      rows = pass.rows;
      rows_out = pass.rows_out;
    }
    if (threadIdx.x < kWarps) cursor[threadIdx.x] = {.product = 0, .span = kFirstSpan};
  }
};

__device__ __forceinline__ int rows_of(const Instruction& in, const Feed& feed) {
  return in.wanted_only ? feed.rows_out : feed.rows;
}
// Behind the work's bytes of the block's dynamic shared memory: [warps][slots][slot_bytes].
__device__ __forceinline__ unsigned char* slot_at(const FeedPlan& plan, uint32_t slot) {
  extern __shared__ __align__(128) unsigned char shared[];
  return shared + plan.work_bytes + (warp() * plan.slots + slot) * plan.slot_bytes;
}

// Index of a group's scale and of its part, in a matrix's arrays.
__device__ __forceinline__ int64_t scale_index(const Matrix& matrix, int64_t row, int group) {
  return row * (matrix.pitch >> matrix.block_log2) + (32 * group >> matrix.block_log2);
}
__device__ __forceinline__ int64_t part_index(const Matrix& matrix, int64_t row, int group) {
  return row * (matrix.pitch >> matrix.part_log2) + (32 * group >> matrix.part_log2);
}

// The words in which a lane finds the scales of its group: d, m or the second d, parts. Words are aligned, so that
// what is wanted may be their upper half.
__device__ __forceinline__ void ask_scales(const Matrix& matrix, int64_t row, int group, uint32_t to) {
  const int64_t index = scale_index(matrix, row, group);
  const bool wide = matrix.scale_form == Form::kF32;
  const auto word = [&](Address array, int64_t byte) { return at<const uint32_t>((array + byte) & ~Address{3}); };
  const int64_t byte = index * (wide ? 4 : 2);
  copy_word_ahead(to, word(matrix.scales, byte));
  if (matrix.minimums != 0) copy_word_ahead(to + 128, word(matrix.minimums, byte));
  if (wide && matrix.block_log2 == 4) copy_word_ahead(to + 128, word(matrix.scales, byte + 4));
  if (matrix.parts != 0)
    copy_word_ahead(to + 256, word(matrix.parts, part_index(matrix, row, group) * (matrix.minimums != 0 ? 2 : 1)));
}

// A lane's part of a piece of `columns` columns from the first on, as a group of copies. Where it lies: take_raw,
// take_scales, and products.cuh of dense ones.
__device__ __forceinline__ void ask(const Matrix& matrix, int64_t row, int first, int columns, uint32_t slot) {
  const unsigned char* const from = at<const unsigned char>(matrix.values) + row * matrix.row_bytes;
  const uint32_t own = lane();
  if (matrix.form != Form::kCodes) {
    const int values = matrix.form == Form::kF32 ? 4 : 8, chunks = columns / 32 / values;
#pragma unroll 4
    for (int c = 0; c < chunks; ++c) {
      const int column = first + (c * 32 + static_cast<int>(own)) * values;
      if (column >= matrix.pitch) break;
      copy_ahead(slot + (static_cast<uint32_t>(c) * 32 + own) * 16, from + int64_t{column} * (16 / values));
    }
    copies_end_group();
    return;
  }
  const int group = first / kGroup + static_cast<int>(own), groups = matrix.pitch / kGroup, bits = matrix.bits;
  if (group < groups && static_cast<int>(own) * kGroup < columns) {
    const unsigned char* plane = from;
    uint32_t to = slot;
    if (bits == 8) {
      copy_ahead(to + own * 16, plane + 32 * group);
      copy_ahead(to + 512 + own * 16, plane + 32 * group + 16);
    } else {
      if ((bits & 4) != 0) {
        copy_ahead(to + own * 16, plane + 16 * group);
        plane += 16 * groups, to += 512;
      }
      if ((bits & 2) != 0) {
        copy_two_words_ahead(to + own * 8, plane + 8 * group);
        plane += 8 * groups, to += 256;
      }
      if ((bits & 1) != 0) copy_word_ahead(to + own * 4, plane + 4 * group);
    }
    ask_scales(matrix, row, group, slot + static_cast<uint32_t>(bits) * 128 + own * 4);
  }
  copies_end_group();
}

template <int kBits>
__device__ __forceinline__ Raw<kBits> take_raw(const unsigned char* slot) {
  Raw<kBits> raw;
  const uint32_t own = lane();
  if constexpr (kBits == 8) {
    load_words<4, Reading::kCached>(slot + own * 16, raw.words);
    load_words<4, Reading::kCached>(slot + 512 + own * 16, raw.words + 4);
    return raw;
  }
  constexpr bool kFour = (kBits & 4) != 0, kTwo = (kBits & 2) != 0, kOne = (kBits & 1) != 0;
  constexpr int kTwosAt = kFour ? 4 : 0, kOnesAt = kTwosAt + (kTwo ? 2 : 0);
  if constexpr (kFour) load_words<4, Reading::kCached>(slot + own * 16, raw.words);
  if constexpr (kTwo) load_words<2, Reading::kCached>(slot + 128 * kTwosAt + own * 8, raw.words + kTwosAt);
  if constexpr (kOne) load_words<1, Reading::kCached>(slot + 128 * kOnesAt + own * 4, raw.words + kOnesAt);
  return raw;
}

// As scales_of, of what ask_scales brought.
__device__ __forceinline__ Scales take_scales(const Matrix& matrix, int64_t row, int group, const unsigned char* slot) {
  const auto* const words = reinterpret_cast<const uint32_t*>(slot + matrix.bits * 128) + lane();
  const int64_t index = scale_index(matrix, row, group);
  const bool halves = matrix.block_log2 == 4, minimums = matrix.minimums != 0;
  const auto one = [&](uint32_t word, int64_t of) {
    if (matrix.scale_form == Form::kF32) return __uint_as_float(word);
    const uint32_t bits = (of & 1) != 0 ? word >> 16 : word & 0xffffu;
    return matrix.scale_form == Form::kF16 ? float_of_f16(static_cast<uint16_t>(bits)) : float_of_bf16(bits);
  };
  Scales made;
  made.d[0] = made.d[1] = matrix.unit * one(words[0], index);
  if (halves) made.d[1] = matrix.unit * one(matrix.scale_form == Form::kF32 ? words[32] : words[0], index + 1);
  made.m[0] = made.m[1] = minimums ? matrix.unit * one(words[32], index) : 0.0f;
  if (matrix.parts == 0) return made;
  const int64_t byte = part_index(matrix, row, group) * (minimums ? 2 : 1);
  const uint32_t parts = words[64] >> (8 * (byte & 3));
  const bool two = matrix.part_log2 == 4;
  if (minimums) {
    made.d[0] *= float_of_unsigned_byte<0>(parts), made.m[0] *= float_of_unsigned_byte<1>(parts);
    made.d[1] *= two ? float_of_unsigned_byte<2>(parts) : float_of_unsigned_byte<0>(parts);
    made.m[1] *= two ? float_of_unsigned_byte<3>(parts) : float_of_unsigned_byte<1>(parts);
  } else {
    made.d[0] *= float_of_byte<0>(parts);
    made.d[1] *= two ? float_of_byte<1>(parts) : float_of_byte<0>(parts);
  }
  return made;
}

// Asks for pieces of a product from where `c` stands. False: the ring is full.
__device__ __forceinline__ bool ask_product(const Feed& feed, const Instruction& in, Cursor& c) {
  const FeedPlan& plan = feed.plan;
  const Share share(in, plan, blockIdx.x, gridDim.x);
  const uint32_t slots = plan.slots;
  const int rows = rows_of(in, feed), step = tile_rows(in, rows, plan.work_bytes), rounds = share.rounds();
  for (; c.tile < rows; c.tile += step, c.rounds_done = 0) {
    for (; c.rounds_done < rounds; ++c.rounds_done, c.span = kFirstSpan) {
      const int lines = share.lines(c.rounds_done);
      if (c.span == kFirstSpan) c.span = share.slice;
      for (; c.span < share.spans; c.span += share.slices, c.line = 0) {
        for (; c.line < lines; ++c.line) {
          if (c.asked - c.taken == slots) return false;
          const Line line = line_of(in, share, c.rounds_done, c.line);
          ask(in.matrix[line.matrix], line.row, c.span * plan.span, plan.span, shared_address(slot_at(plan, c.slot)));
          ++c.asked;
          c.slot = c.slot + 1 == slots ? 0 : c.slot + 1;
        }
      }
    }
  }
  return true;
}

// Asks for pieces of the instructions before `last`, as many as the warp's ring holds. A function of its own: its
// registers are nobody else's.
__device__ __noinline__ void fill(Feed& feed, int last) {
  Cursor c = feed.cursor[warp()];
  for (; c.product < last; ++c.product, c.tile = c.rounds_done = 0) {
    const Instruction& in = feed.window[c.product & (kInstructionsKept - 1)];
    if (in.what == Do::kMultiply && !ask_product(feed, in, c)) break;
  }
  __syncwarp();
  if (lane() == 0) feed.cursor[warp()] = c;
  __syncwarp();
}

}  // namespace baton::cuda

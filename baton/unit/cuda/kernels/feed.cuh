// Weights on their way from memory to the warps that will multiply them, across the instructions of a list: while a
// block waits for others or does something else, what comes next arrives.
//
// A piece is a span of columns of a matrix row (feed_layout.h). Behind the warps that work is one more, the feeder: it
// asks for the pieces of the block, in one order, into a ring of slots in shared memory. A slot has two barriers:
// `full` ends its phase when a piece has come, `empty` when the warp that multiplied it has read it. Piece number n of
// a block, counted from the launch on, lies in slot n % slots; whose it is, both sides know from the product: tiles of
// rows of x, outputs, spans, and of a pair the two rows.
#pragma once

#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels/feed_pieces.cuh"

namespace baton::cuda {

inline constexpr int kSet = 4;               // matrix rows of a warp at a time, at most
inline constexpr int kInstructionsKept = 8;  // instructions that a block has before it
static_assert((kInstructionsKept & (kInstructionsKept - 1)) == 0);
// Pieces that the feeder asks for at a time; of codes, which are small, 32.
inline constexpr uint32_t kBulk = 8;

// What a block has of a product, and a warp of it.
struct Share {
  int begin, end;  // outputs of the block
  int spans, rounds;
  int rows, step;  // of x, and how many at a time
  int slices_log2, each_log2;
  bool pairs;

  __device__ __forceinline__ Share(const ProductShares& of, int rows_of_x)
      : spans(of.spans),
        rows(rows_of_x),
        step(of.has(ProductShares::kTiles) && rows_of_x > 1 ? kTile : 1),
        slices_log2(of.slices_log2),
        each_log2(of.each_log2),
        pairs(of.has(ProductShares::kPairs)) {
    const int block = static_cast<int>(blockIdx.x);
    begin = block * of.outputs + min(block, of.more);
    end = begin + of.outputs + (block < of.more ? 1 : 0);
    const int together = each_log2 + teams_log2();
    rounds = (end - begin + (1 << together) - 1) >> together;
  }
  __device__ __forceinline__ int slices() const { return 1 << slices_log2; }
  __device__ __forceinline__ int teams_log2() const { return kWarpsLog2 - slices_log2; }
  __device__ __forceinline__ int slice() const { return static_cast<int>(warp()) & (slices() - 1); }
  __device__ __forceinline__ int team() const { return static_cast<int>(warp()) >> slices_log2; }
  __device__ __forceinline__ int output(int of_team, int round, int i) const {
    return begin + (((round << each_log2) + i) << teams_log2()) + of_team;
  }
  // Outputs of the warp's team in a round, and their matrix rows.
  __device__ __forceinline__ int outputs(int round) const {
    const int first = output(team(), round, 0);
    return first >= end ? 0 : min(1 << each_log2, (end - first + (1 << teams_log2()) - 1) >> teams_log2());
  }
  __device__ __forceinline__ int lines(int round) const { return outputs(round) << (pairs ? 1 : 0); }
  // Pieces: of an output, of a tile of rows of x, and of all tiles.
  __device__ __forceinline__ uint32_t of_output() const { return static_cast<uint32_t>(spans) << (pairs ? 1 : 0); }
  __device__ __forceinline__ uint32_t of_tile() const { return static_cast<uint32_t>(end - begin) * of_output(); }
  __device__ __forceinline__ uint32_t of_all() const {
    return of_tile() * static_cast<uint32_t>(step == 1 ? rows : (rows + kTile - 1) / kTile);
  }
  // Number within its tile of the piece of the i-th matrix row of the warp in a round.
  __device__ __forceinline__ uint32_t piece(int round, int i, int span) const {
    const int both = pairs ? 1 : 0;
    return static_cast<uint32_t>(output(team(), round, i >> both) - begin) * of_output() +
           (static_cast<uint32_t>(span) << both) + static_cast<uint32_t>(i & both);
  }
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
  if (share.pairs) return {i & 1, share.output(share.team(), round, i >> 1)};
  return line_of_output(in, share.output(share.team(), round, i));
}

// What matrices are stored as, in one number.
__device__ __forceinline__ int stored_as(const Matrix& matrix) {
  return matrix.form == Form::kCodes ? 256 + matrix.bits : static_cast<int>(matrix.form);
}

// A block's dynamic shared memory.
__device__ __forceinline__ unsigned char* block_shared() {
  extern __shared__ __align__(128) unsigned char shared[];
  return shared;
}

// Of it.
struct Slots {
  uint32_t ring, barriers, slot_bytes, log2;  // addresses in shared memory

  __device__ __forceinline__ explicit Slots(const FeedPlan& plan) : slot_bytes(plan.slot_bytes), log2(plan.slots_log2) {
    const uint32_t at = shared_address(block_shared());
    ring = at + plan.work_bytes;
    barriers = at + barriers_at(plan);
  }
  __device__ __forceinline__ uint32_t slot(uint32_t piece) const { return piece & ((1u << log2) - 1); }
  __device__ __forceinline__ uint32_t place(uint32_t piece) const { return ring + slot(piece) * slot_bytes; }
  __device__ __forceinline__ uint32_t full(uint32_t piece) const { return barriers + slot(piece) * kSlotBarriers; }
  __device__ __forceinline__ uint32_t empty(uint32_t piece) const { return full(piece) + 8; }
  __device__ __forceinline__ uint32_t turn(uint32_t piece) const { return piece >> log2; }
  // By a warp, before anybody uses them.
  __device__ void make() const {
    for (uint32_t i = lane(); i < 1u << log2; i += 32) {
      make_barrier(full(i), 32);
      make_barrier(empty(i), 1);
    }
    barriers_made();
  }
  // The feeder: until a piece may come there.
  __device__ __forceinline__ void wait_empty(uint32_t piece) const {
    if (turn(piece) > 0) wait_for(empty(piece), (turn(piece) - 1) & 1);
  }
  // Whoever multiplies: until it has come.
  __device__ __forceinline__ void wait_full(uint32_t piece) const { wait_for(full(piece), turn(piece) & 1); }
  // Behind what the warp read of it.
  __device__ __forceinline__ void release(uint32_t piece) const {
    __syncwarp();
    if (lane() == 0) arrive(empty(piece));
  }
};

// The feeder's pieces of a product; `first` is the number of its first piece. They come in bulk, kBulk at a time, where
// the card can; else each lane copies its part. Matrices of a product have one pitch.
__device__ __forceinline__ void feed_product(const Instruction& in, const Share& share, const FeedPlan& plan,
                                             const Slots& slots, uint32_t first, Policy passing) {
  const int wide = plan.span, both = share.pairs ? 1 : 0;
  const uint32_t each = share.of_output(), count = share.of_tile(), all = share.of_all();
  const float by = 1.0f / static_cast<float>(each);
  const auto line_of_piece = [&](uint32_t i, int& column) {
    // Exact: there are far fewer than 2^20 in a block.
    const auto output = static_cast<uint32_t>((static_cast<float>(i) + 0.5f) * by);
    const auto within = static_cast<int>(i - output * each), of_block = share.begin + static_cast<int>(output);
    column = (within >> both) * wide;
    return both != 0 ? Line{within & 1, of_block} : line_of_output(in, of_block);
  };
  for (uint32_t tile = 0; tile < all; tile += count) {
    if (kCopiesInBulk) {
      const uint32_t bulk = in.matrix[0].form == Form::kCodes ? 32 : kBulk;
      for (uint32_t base = 0; base < count; base += 32) {
        const uint32_t i = base + lane(), piece = first + tile + i;
        int column;
        const Line line = line_of_piece(min(i, count - 1), column);
        const uint32_t end = min(32u, count - base);
        for (uint32_t of = 0; of < end; of += bulk) {
          if (lane() - of < bulk && i < count) {
            slots.wait_empty(piece);
            bring(in.matrix[line.matrix], line.row, column, wide, slots.place(piece), slots.full(piece), passing);
          }
          __syncwarp();
        }
      }
    } else {
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t piece = first + tile + i;
        slots.wait_empty(piece);
        int column;
        const Line line = line_of_piece(i, column);
        ask(in.matrix[line.matrix], line.row, column, wide, slots.place(piece), passing);
        arrive_behind_copies(slots.full(piece));
      }
    }
  }
}

// Whoever multiplies, and the feeder: where weights do not come ahead their slots are what other kinds work in.
__device__ __forceinline__ void begin_product(const FeedPlan& plan) {
  if (plan.ahead) return;
  leave_to_copies();
  meet_feeder();
}

// A word of an instruction for each thread: asked for early, put down late.
inline constexpr uint32_t kWords = sizeof(Instruction) / 8;
static_assert(sizeof(Instruction) % 8 == 0 && kWords <= kThreads);
__device__ __forceinline__ uint64_t word_of(Address list, int index, uint32_t word) {
  return word < kWords ? at<const uint64_t>(list)[static_cast<size_t>(index) * kWords + word] : 0;
}
__device__ __forceinline__ void put_word(uint64_t word, uint32_t index, Instruction& to) {
  if (index < kWords) reinterpret_cast<uint64_t*>(&to)[index] = word;
}

// Where a list's instructions lie, or the argument's only one.
__device__ __forceinline__ Address instructions_of(const ListWork& work) {
  return work.list != 0 ? work.list : reinterpret_cast<Address>(&work.alone);
}

// The feeder of a list. `in`: room for the product that it is at, its own.
__device__ __noinline__ void feed_list(const ListWork& work, int rows, int rows_out, Instruction& in) {
  constexpr uint32_t kEach = (kWords + 31) / 32;
  const Slots slots(work.feed);
  const Policy passing = passes_by();
  const Address list = instructions_of(work);
  uint32_t first = 0;
  uint64_t words[kEach];
  const auto read = [&](int product) {
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) words[i] = word_of(list, product, lane() + 32 * i);
  };
  int product = work.first_product;
  if (product >= 0) read(product);
  while (product >= 0) {
    __syncwarp();  // behind the readers of the one before
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) put_word(words[i], lane() + 32 * i, in);
    __syncwarp();
    product = in.next_product;
    if (product >= 0) read(product);
    const Share share(in.product, in.wanted_only ? rows_out : rows);
    begin_product(work.feed);
    feed_product(in, share, work.feed, slots, first, passing);
    first += share.of_all();
  }
}

}  // namespace baton::cuda

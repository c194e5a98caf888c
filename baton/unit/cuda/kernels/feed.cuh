// Weights on their way from memory to the warps that will multiply them, across the instructions of a list: while a
// block waits for others or does something else, what comes next arrives.
//
// A piece is a span of columns of a matrix row (feed_layout.h). Behind the warps that work is one more, the feeder: it
// asks for the pieces of the block, in one order, into a ring of slots in shared memory. They come in bundles: kBundle
// spans of a row, or as many rows of fewer, which follow each other in memory and so come by one copy; of a pair of
// matrices in turns of the one and of the other. A slot holds a bundle and has two barriers: `full` ends its phase when
// the bundle has come, `empty` when the warps that multiplied its pieces have read them. Bundle number n of a block,
// counted from the launch on, lies in slot n % slots; whose pieces are in it both sides know from the product.
#pragma once

#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels/feed_pieces.cuh"

namespace baton::cuda {

inline constexpr int kSet = 4;               // matrix rows of a warp at a time, at most
inline constexpr int kInstructionsKept = 8;  // instructions that a block has before it
static_assert((kInstructionsKept & (kInstructionsKept - 1)) == 0);
// Bundles that the feeder asks for at a time, at most, all of which wait until the last has room: of 16-bit values, and
// of codes, whose bundles are small.
inline constexpr uint32_t kBulk = 1, kBulkCodes = 4;

// A piece's bundle, of those of a tile of rows of x, and where in the bundle's slot it lies.
struct PieceAt {
  uint32_t bundle, offset;
};

// How pieces of a product are bundled (share_out).
struct Bundling {
  int bundle_log2, of_row, both;  // rows of a bundle; bundles of these; 1 for pairs
  int row_stride, span_stride;

  __device__ __forceinline__ explicit Bundling(const ProductShares& of)
      : bundle_log2(of.bundle_log2),
        of_row((of.spans + static_cast<int>(kBundle) - 1) / static_cast<int>(kBundle)),
        both(of.has(ProductShares::kPairs) ? 1 : 0),
        row_stride(of.row_stride),
        span_stride(of.span_stride) {}
  // Of the block's output so and so; `second`: of a pair, the other matrix.
  __device__ __forceinline__ PieceAt at(int output, int span, int second) const {
    constexpr int kMask = static_cast<int>(kBundle) - 1;
    const int rows = (1 << bundle_log2) - 1;
    const int bundle = (output >> bundle_log2) * of_row + span / static_cast<int>(kBundle);
    return {static_cast<uint32_t>((bundle << both) + second),
            static_cast<uint32_t>((output & rows) * row_stride + (span & kMask) * span_stride)};
  }
  // Bundles of so many outputs.
  __device__ __forceinline__ uint32_t count(int outputs) const {
    const int rows = (1 << bundle_log2) - 1;
    return static_cast<uint32_t>((outputs + rows) >> bundle_log2) * static_cast<uint32_t>(of_row << both);
  }
};

// What a block has of a product, and a warp of it.
struct Share {
  int begin, end;  // outputs of the block
  int spans, rounds;
  int rows, step;  // of x, and how many at a time
  int slices_log2, each_log2;
  bool pairs;
  Bundling bundling;

  __device__ __forceinline__ Share(const ProductShares& of, int rows_of_x)
      : spans(of.spans),
        rows(rows_of_x),
        step(of.has(ProductShares::kTiles) && rows_of_x > 1 ? kTile : 1),
        slices_log2(of.slices_log2),
        each_log2(of.each_log2),
        pairs(of.has(ProductShares::kPairs)),
        bundling(of) {
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
  // Bundles of a tile of rows of x, and of all tiles.
  __device__ __forceinline__ uint32_t of_tile() const { return bundling.count(end - begin); }
  __device__ __forceinline__ uint32_t of_all() const {
    return of_tile() * static_cast<uint32_t>(step == 1 ? rows : (rows + kTile - 1) / kTile);
  }
  // The piece of the i-th matrix row of the warp in a round.
  __device__ __forceinline__ PieceAt piece(int round, int i, int span) const {
    const int both = bundling.both;
    return bundling.at(output(team(), round, i >> both) - begin, span, i & both);
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
  __device__ __forceinline__ uint32_t slot(uint32_t bundle) const { return bundle & ((1u << log2) - 1); }
  __device__ __forceinline__ uint32_t place(uint32_t bundle) const { return ring + slot(bundle) * slot_bytes; }
  __device__ __forceinline__ uint32_t full(uint32_t bundle) const { return barriers + slot(bundle) * kSlotBarriers; }
  __device__ __forceinline__ uint32_t empty(uint32_t bundle) const { return full(bundle) + 8; }
  __device__ __forceinline__ uint32_t turn(uint32_t bundle) const { return bundle >> log2; }
  // By a warp, before anybody uses them.
  __device__ void make() const {
    for (uint32_t i = lane(); i < 1u << log2; i += 32) {
      make_barrier(full(i), 32);
      make_barrier(empty(i), kBundle);
    }
    barriers_made();
  }
  // The feeder: until a bundle may come there. It stands in for pieces that the bundle has not.
  __device__ __forceinline__ void wait_empty(uint32_t bundle) const {
    if (turn(bundle) > 0) wait_for(empty(bundle), (turn(bundle) - 1) & 1);
  }
  __device__ __forceinline__ void release_missing(uint32_t bundle, int pieces) const {
    for (int i = pieces; i < static_cast<int>(kBundle); ++i) arrive(empty(bundle));
  }
  // Whoever multiplies: until it has come.
  __device__ __forceinline__ void wait_full(uint32_t bundle) const { wait_for(full(bundle), turn(bundle) & 1); }
  // Behind what the warp read of one of its pieces.
  __device__ __forceinline__ void release(uint32_t bundle) const {
    __syncwarp();
    if (lane() == 0) arrive(empty(bundle));
  }
};

// A bundle of pieces of a block: rows of one matrix, or of one and the next, and spans of these.
struct PieceBundle {
  int output, rows;  // of the block's
  int span, spans;
  int second;  // of a pair, the other matrix

  // Number `i` of a tile.
  __device__ __forceinline__ PieceBundle(const Share& share, uint32_t i) {
    const Bundling& by = share.bundling;
    second = static_cast<int>(i) & by.both;
    const int bundle = static_cast<int>(i) >> by.both;
    // Exact: there are far fewer than 2^20 in a block.
    const auto rows_before = static_cast<int>((static_cast<float>(bundle) + 0.5f) / static_cast<float>(by.of_row));
    output = rows_before << by.bundle_log2;
    rows = min(1 << by.bundle_log2, share.end - share.begin - output);
    span = (bundle - rows_before * by.of_row) * static_cast<int>(kBundle);
    spans = min(static_cast<int>(kBundle), share.spans - span);
  }
  __device__ __forceinline__ int pieces() const { return rows * spans; }
  // What it is copied by, as piece_runs: one run for rows of one matrix that lie as its slot has them.
  template <class Run>
  __device__ __forceinline__ void runs(const Instruction& in, const Share& share, int wide, Run&& run) const {
    const Bundling& by = share.bundling;
    for (int r = 0; r < rows;) {
      const int of_all = share.begin + output + r;
      const Line line = by.both != 0 ? Line{second, of_all} : line_of_output(in, of_all);
      const Matrix& matrix = in.matrix[line.matrix];
      const auto to = static_cast<uint32_t>(r * by.row_stride);
      if (matrix.row_bytes == by.row_stride && (matrix.form != Form::kCodes || wide == kStrip)) {
        const int together = min(rows - r, matrix.rows - line.row);
        const int at = span * by.span_stride, left = matrix.row_bytes - at;
        const int bytes =
            span + spans == share.spans ? (together - 1) * matrix.row_bytes + left : spans * by.span_stride;
        run(row_at(matrix, line.row) + at, to, static_cast<uint32_t>(bytes));
        r += together;
        continue;
      }
      for (int s = 0; s < spans; ++s)
        piece_runs(matrix, line.row, (span + s) * wide, wide,
                   [&](const unsigned char* from, uint32_t at, uint32_t bytes) {
                     run(from, to + static_cast<uint32_t>(s * by.span_stride) + at, bytes);
                   });
      ++r;
    }
  }
};

// The feeder's pieces of a product; `first` is the number of its first bundle. They come in bulk, several bundles at a
// time, where the card can; else each lane copies its part. Matrices of a product have one pitch.
__device__ __forceinline__ void feed_product(const Instruction& in, const Share& share, const FeedPlan& plan,
                                             const Slots& slots, uint32_t first, Policy passing) {
  const uint32_t count = share.of_tile(), all = share.of_all();
  for (uint32_t tile = 0; tile < all; tile += count) {
    if (kCopiesInBulk) {
      const uint32_t most = in.matrix[0].form == Form::kCodes ? kBulkCodes : kBulk;
      const uint32_t bulk = min(most, 1u << slots.log2);  // of two in one slot the later would take a phase for its own
      for (uint32_t base = 0; base < count; base += 32) {
        const uint32_t i = base + lane(), number = first + tile + i;
        const PieceBundle bundle(share, min(i, count - 1));
        // Each lane finds out what its bundle is copied by before the first is asked for, not between two of them.
        const unsigned char* begin = nullptr;
        uint32_t bytes = 0, runs = 0;
        bundle.runs(in, share, plan.span, [&](const unsigned char* from, uint32_t, uint32_t of_run) {
          if (runs++ == 0) begin = from;
          bytes += of_run;
        });
        const uint32_t end = min(32u, count - base), full = slots.full(number), to = slots.place(number);
        for (uint32_t of = 0; of < end; of += bulk) {
          if (lane() - of < bulk && i < count) {
            slots.wait_empty(number);
            slots.release_missing(number, bundle.pieces());
            arrive_with_bulk(full, bytes);
            if (runs == 1) {
              copy_in_bulk(to, begin, bytes, full, passing);
            } else {
              bundle.runs(in, share, plan.span, [&](const unsigned char* from, uint32_t at, uint32_t of_run) {
                copy_in_bulk(to + at, from, of_run, full, passing);
              });
            }
          }
          __syncwarp();
        }
      }
    } else {
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t number = first + tile + i, to = slots.place(number);
        const PieceBundle bundle(share, i);
        slots.wait_empty(number);
        if (lane() == 0) slots.release_missing(number, bundle.pieces());
        bundle.runs(in, share, plan.span, [&](const unsigned char* from, uint32_t at, uint32_t bytes) {
#pragma unroll 4
          for (uint32_t own = lane() * 16; own < bytes; own += 512) copy_ahead(to + at + own, from + own, passing);
        });
        arrive_behind_copies(slots.full(number));
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

// What the warps of a block that run a list for one row (run_plain_list.cuh) are told of each round of work: a ticket.
//
// Who gets which rows of a matrix, where their weights will lie and where their sums go follows from the list alone,
// and to find it out takes a warp longer than to multiply. So one warp more, the clerk, finds it out for all of them,
// some rounds ahead: it reads the list, puts instructions into shared memory, and writes a ticket for every round of a
// product and one for each instruction of another kind. A ticket has two barriers, as a bundle has: `full` ends its
// phase when it is written, `empty` when all warps have left what it is of; with the ticket they leave its instruction.
#pragma once

#include "baton/unit/cuda/kernels/feed.cuh"

namespace baton::cuda {

inline constexpr uint32_t kTicketsLog2 = 2, kTickets = 1u << kTicketsLog2;  // written before they are read, at most
// As many instructions are kept: a ticket that takes another's place may be of one that takes the place of that one's.
inline constexpr uint32_t kPlainInstructions = kTickets;

// Which function has an instruction.
enum class PlainWay : int32_t {
  kEnd,
  kValues,
  kStagedValues,
  kCodes,
  kStagedCodes,
  kConvDelta,
  kAttendRow,
  kJoinRow,
  kOther,
  kQ8_0,  // in the order of Packing, and all of them
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kMixed
};
BATON_BOTH constexpr PlainWay way_of_packing(Packing packing) {
  return static_cast<PlainWay>(static_cast<int32_t>(PlainWay::kOther) + static_cast<int32_t>(packing));
}
static_assert(way_of_packing(Packing::kMixed) == PlainWay::kMixed);

struct Ticket {
  using Flag = uint32_t;
  static constexpr Flag kWaits = 1;    // all blocks arrive behind the instruction before, and its outputs are no words
  static constexpr Flag kArrives = 2;  // the same of this one
  static constexpr Flag kLast = 4;     // of its instruction
  // A product of several rounds: each piece makes room as soon as it has been multiplied.
  static constexpr Flag kOneByOne = 8;
  static constexpr Flag kTimed = 16;  // the block notes when it had done the instruction
  PlainWay way;
  int32_t index;  // of the instruction
  uint32_t flags;
  int32_t unused;
  // Of a product, of each warp the pieces of its set: where they lie in the block's shared memory, in place of those
  // that it has not the first, and the barrier `full` of the bundle, a multiple of 8, with twice the number of the
  // matrix and the parity of its phase; 0, behind the last that it has. `empty` lies 8 behind `full`.
  uint32_t piece[kWarps][kSet];
  uint32_t full[kWarps][kSet];
  // Where the sums of each team's set go; 0: nowhere.
  Address out[kWarps * kSet];
  // Of other kinds, from `piece` on: their units have so much room.
  static constexpr uint32_t kUnitBytes = 1152;
  unsigned char more[kUnitBytes - (sizeof(piece) + sizeof(full) + sizeof(out))];

  __device__ __forceinline__ bool has(Flag flag) const { return (flags & flag) != 0; }
  __device__ __forceinline__ static uint32_t full_of(uint32_t barrier, int matrix, uint32_t parity) {
    return barrier + 2 * static_cast<uint32_t>(matrix) + parity;
  }
  __device__ __forceinline__ static int matrix_of(uint32_t full) { return static_cast<int>(full >> 1 & 3); }
  __device__ __forceinline__ static bool has_come(uint32_t full) { return has_ended(full & ~7u, full & 1); }
  // At once, where has_come may wait a little.
  __device__ __forceinline__ static bool has_come_now(uint32_t full) { return has_ended_now(full & ~7u, full & 1); }
  __device__ __forceinline__ static void wait(uint32_t full) { wait_for(full & ~7u, full & 1); }
  // By one lane, behind what the warp read of the piece.
  __device__ __forceinline__ static void release(uint32_t full) { arrive((full & ~7u) + 8); }
};
static_assert(sizeof(Ticket) % 16 == 0 && kMatricesMax <= 4);

// The barriers of a block's tickets, 16 bytes each.
struct TicketBarriers {
  uint32_t at;

  __device__ __forceinline__ uint32_t full(uint32_t number) const { return at + (number & (kTickets - 1)) * 16; }
  __device__ __forceinline__ uint32_t empty(uint32_t number) const { return full(number) + 8; }
  __device__ __forceinline__ static uint32_t turn(uint32_t number) { return number >> kTicketsLog2; }
  // By one thread, before anybody uses them.
  __device__ __forceinline__ void make() const {
    for (uint32_t i = 0; i < kTickets; ++i) {
      make_barrier(full(i), 1);
      make_barrier(empty(i), kWarps);
    }
  }
  __device__ __forceinline__ void wait_full(uint32_t number) const { wait_for(full(number), turn(number) & 1); }
  __device__ __forceinline__ void wait_empty(uint32_t number) const {
    if (turn(number) > 0) wait_for(empty(number), (turn(number) - 1) & 1);
  }
  // By a warp, behind what its lanes read or wrote.
  __device__ __forceinline__ void arrive_at(uint32_t barrier) const {
    __syncwarp();
    if (lane() == 0) arrive(barrier);
  }
};

// How a product's outputs are shared out to the warps of a block (ProductShares), round by round.
struct PlainShare {
  const ProductShares& of;
  int begin, outputs;  // of the block
  int both, teams_log2;

  __device__ __forceinline__ explicit PlainShare(const ProductShares& shares)
      : of(shares), both(shares.has(ProductShares::kPairs) ? 1 : 0), teams_log2(kWarpsLog2 - shares.slices_log2) {
    const int block = static_cast<int>(blockIdx.x);
    begin = block * of.outputs + min(block, of.more);
    outputs = of.outputs + (block < of.more ? 1 : 0);
  }
  __device__ __forceinline__ int each_round() const { return kSet >> both << teams_log2; }
  // At least one: a block without outputs, too, has its part of what comes before.
  __device__ __forceinline__ int rounds() const { return max(1, (outputs + each_round() - 1) / each_round()); }
  // Of the block, number `i` of a team's set.
  __device__ __forceinline__ int output(int round, int of_team, int i) const {
    return round * each_round() + of_team + ((i >> both) << teams_log2);
  }
  // Bundles of all rounds.
  __device__ __forceinline__ uint32_t bundles() const { return Bundling(of).count(outputs); }
};

// The product's part of a ticket, by the clerk's lanes together. `first`: the number of the product's first bundle.
__device__ __forceinline__ void write_round(const Instruction& in, const PlainShare& share, int round,
                                            const FeedPlan& plan, uint32_t first, Ticket& to) {
  const Slots slots(plan);
  const Bundling bundling(in.product);
  const uint32_t before = shared_address(block_shared());
  constexpr int kItems = kWarps * kSet;
#pragma unroll
  for (int item = static_cast<int>(lane()); item < kItems; item += 32) {
    const int i = item % kSet, second = i & share.both;
    const int team = item / kSet >> in.product.slices_log2, slice = item / kSet & ((1 << in.product.slices_log2) - 1);
    uint32_t piece = 0, full = 0;
    if (const int output = share.output(round, team, i); output < share.outputs && slice < in.product.spans) {
      const int matrix = share.both != 0 ? second : line_of_output(in, share.begin + output).matrix;
      const PieceAt at = bundling.at(output, slice, second);
      const uint32_t bundle = first + at.bundle;
      piece = slots.place(bundle) - before + at.offset;
      full = Ticket::full_of(slots.full(bundle), matrix, slots.turn(bundle) & 1);
    }
    const uint32_t first_piece = __shfl_sync(kAll, piece, static_cast<int>(lane()) & ~(kSet - 1));
    if (full == 0) piece = first_piece;
    (&to.piece[0][0])[item] = piece, (&to.full[0][0])[item] = full;
    // Of the sums, which teams have.
    const int of_team = item / kSet, output = share.output(round, of_team, i);
    Address out = 0;
    if (second == 0 && of_team < 1 << share.teams_log2 && output < share.outputs) {
      const Line line = share.both != 0 ? Line{0, share.begin + output} : line_of_output(in, share.begin + output);
      out = in.outs[line.matrix] + static_cast<Address>(line.row) * 4;
    }
    to.out[item] = out;
  }
}

}  // namespace baton::cuda

// How a list for one row of x is run, where is_plain says yes to all instructions: by the kernels of list_plain*.cu.
// What products and delta rules tell each other goes as words (Worded) where the list says so: no block then waits for
// another, but for the values that it needs. What a warp has to do it reads from tickets (tickets.cuh), which the last
// warp of the block writes; the one before it brings weights.
#pragma once

#include <cstddef>

#include "baton/unit/cuda/kernels/attend_row.cuh"
#include "baton/unit/cuda/kernels/delta_row.cuh"
#include "baton/unit/cuda/kernels/list.cuh"
#include "baton/unit/cuda/kernels/plain_products.cuh"

namespace baton::cuda {

// What a block has of a launch: in shared memory, as registers are for what is multiplied, and what a kernel keeps in
// memory of its own instead is more than the first level of cache holds. For the same reason the kernel itself has
// nothing that lives while it calls a function but the number of a ticket.
struct PlainKept {
  unsigned char instructions[kPlainInstructions + 1][sizeof(Instruction)];  // and the feeder's
  Ticket tickets[kTickets];
  unsigned char pass_at[kPassKept];
  uint64_t ticket_barriers[kTickets][2];
  Meeting meeting;
  FeedPlan feed;
  Address list, pass_address, times;
  Address old_words;  // of the launch before
  uint64_t words_bytes;
  int count;
  bool second;  // its words are the second ones

  __device__ __forceinline__ Instruction& instruction(int i) {
    return *reinterpret_cast<Instruction*>(instructions[i & static_cast<int>(kPlainInstructions - 1)]);
  }
  __device__ __forceinline__ const Pass& pass() const { return *reinterpret_cast<const Pass*>(pass_at); }
  __device__ __forceinline__ TicketBarriers barriers() const { return {shared_address(ticket_barriers)}; }
  __device__ __forceinline__ Ticket& ticket(uint32_t number) { return tickets[number & (kTickets - 1)]; }
  // The instruction of a ticket that is there.
  __device__ __forceinline__ const Instruction& in(uint32_t number) { return instruction(ticket(number).index); }
  __device__ __forceinline__ void wait(uint32_t number) {
    if (ticket(number).has(Ticket::kWaits)) meeting.wait();
  }
  // Where an instruction works, and where the one before did.
  __device__ __forceinline__ unsigned char* room(uint32_t number) {
    return block_shared() + (ticket(number).index & 1) * half_of(feed);
  }
  __device__ __forceinline__ unsigned char* other_room(uint32_t number) {
    return block_shared() + (~ticket(number).index & 1) * half_of(feed);
  }

  // As do_plain_multiply has tickets.
  struct Tickets {
    PlainKept& kept;
    __device__ __forceinline__ const Ticket& at(uint32_t number) const { return kept.ticket(number); }
    __device__ __forceinline__ void wait(uint32_t number) const { kept.barriers().wait_full(number); }
    __device__ __forceinline__ void leave(uint32_t number) const {
      kept.barriers().arrive_at(kept.barriers().empty(number));
    }
  };
};
static_assert(sizeof(PlainKept) <= kKeptBytes && sizeof(Instruction) % 16 == 0);

// The block's first unit of a kConvDelta, if it has one, or of a kAttendRow: in its ticket, where a product's has
// pieces.
template <class Unit>
__device__ __forceinline__ Unit& unit_in(Ticket& ticket) {
  static_assert(sizeof(Unit) <= Ticket::kUnitBytes && alignof(Unit) <= 16 && offsetof(Ticket, piece) % 16 == 0);
  return *reinterpret_cast<Unit*>(&ticket.piece);
}

__device__ __forceinline__ bool has_none(const Instruction& in, const Pass& pass) {
  return in.what == Do::kAttendJoin && !has_parts(in, pass);
}

// The clerk.
class Clerk {
 public:
  __device__ __forceinline__ explicit Clerk(PlainKept& kept) : kept_(kept), barriers_(kept.barriers()) {}

  __device__ __forceinline__ void work() {
    const int count = kept_.count;
    if (count > 0) ask(0);
    const uint32_t each = words_left() / static_cast<uint32_t>(max(1, count)) + 1;
    for (int index = 0; index < count; ++index) {
      Instruction& in = kept_.instruction(index);
      take_place();  // whoever had the place of the instruction's first ticket has left the instruction in this place
#pragma unroll
      for (uint32_t i = 0; i < kEach; ++i) put_word(words_[i], lane() + 32 * i, in);
      __syncwarp();
      if (index + 1 < count) ask(index + 1);
      if (kept_.second && lane() == 0) move_words(in, kept_.words_bytes);
      __syncwarp();
      write(in, index);
      clear(each);
    }
    clear(words_left());
    take_place();
    end_ticket(PlainWay::kEnd, count, 0);
  }

 private:
  static constexpr uint32_t kEach = (kWords + 31) / 32;

  __device__ __forceinline__ void ask(int index) {
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) words_[i] = word_of(kept_.list, index, lane() + 32 * i);
  }
  // How often the warps of all blocks that clear words have to, still.
  __device__ __forceinline__ uint32_t words_left() const {
    const auto all = static_cast<uint32_t>((kept_.words_bytes / 16 + 32 * gridDim.x - 1) / (32 * gridDim.x));
    return all - min(all, cleared_);
  }
  // Of the launch before, so that the next one finds none.
  __device__ __forceinline__ void clear(uint32_t times) {
    for (uint32_t i = min(times, words_left()); i > 0; --i, ++cleared_) {
      const uint64_t own = (uint64_t{cleared_} * gridDim.x + blockIdx.x) * 32 + lane();
      if (own < kept_.words_bytes / 16)
        at<uint4>(kept_.old_words)[own] = make_uint4(kNoWord, kNoWord, kNoWord, kNoWord);
    }
  }
  __device__ __forceinline__ void take_place() { barriers_.wait_empty(number_); }
  __device__ __forceinline__ void end_ticket(PlainWay way, int index, uint32_t flags) {
    Ticket& ticket = kept_.ticket(number_);
    if (lane() == 0) ticket.way = way, ticket.index = index, ticket.flags = flags;
    barriers_.arrive_at(barriers_.full(number_));
    ++number_;
  }
  __device__ __forceinline__ static PlainWay way_of(const Instruction& in) {
    const bool staged = !in.product.has(ProductShares::kFours);
    if (in.what == Do::kMultiply && in.product.form == Form::kCodes) {
      if (staged) return PlainWay::kStagedCodes;
      return in.product.packing == Packing::kOther ? PlainWay::kCodes : way_of_packing(in.product.packing);
    }
    if (in.what == Do::kMultiply) return staged ? PlainWay::kStagedValues : PlainWay::kValues;
    if (in.what == Do::kConvDelta) return PlainWay::kConvDelta;
    if (in.what == Do::kAttendRow) return PlainWay::kAttendRow;
    return in.what == Do::kAttendJoin && in.worded != 0 ? PlainWay::kJoinRow : PlainWay::kOther;
  }
  __device__ __forceinline__ void write(const Instruction& in, int index) {
    const bool arrives = (in.worded & kWordsOut) == 0 && !has_none(in, kept_.pass());
    const uint32_t flags = (waits_ ? Ticket::kWaits : 0) | (arrives ? Ticket::kArrives : 0) |
                           (kept_.times != 0 && blockIdx.x == 0 ? Ticket::kTimed : 0);
    waits_ = arrives;
    const PlainWay way = way_of(in);
    if (way == PlainWay::kConvDelta && lane() == 0 &&
        static_cast<int>(blockIdx.x) < DeltaUnit::count(in.op, kept_.pass().runs, 1))
      unit_in<DeltaUnit>(kept_.ticket(number_)) = DeltaUnit(in.op, static_cast<int>(blockIdx.x), 1);
    if (way == PlainWay::kAttendRow)
      unit_in<AttendRowUnit>(kept_.ticket(number_)).make(in, kept_.pass(), static_cast<int>(blockIdx.x));
    if (in.what != Do::kMultiply) return end_ticket(way, index, flags | Ticket::kLast);
    const PlainShare share(in.product);
    const int rounds = share.rounds();
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      if (round > 0) take_place();
      write_round(in, share, round, kept_.feed, first_, kept_.ticket(number_));
      end_ticket(way, index, flags | (rounds > 1 ? Ticket::kOneByOne : 0) | (round + 1 == rounds ? Ticket::kLast : 0));
    }
    first_ += share.bundles();
  }

  PlainKept& kept_;
  const TicketBarriers barriers_;
  uint32_t number_ = 0;  // of the next ticket
  uint32_t first_ = 0;   // bundles of the products before
  uint32_t cleared_ = 0;
  bool waits_ = false;
  uint64_t words_[kEach];
};
__device__ __noinline__ void write_tickets(PlainKept& kept) {
  is_shared(&kept);
  Clerk(kept).work();
}

// Behind a warp's instruction, whose last ticket has that number and those flags, of what its exchanges found; returns
// the number of the next ticket, which is there.
__device__ __forceinline__ uint32_t end_plain(PlainKept& kept, uint32_t number, uint32_t flags, uint32_t done) {
  const PlainKept::Tickets tickets = {kept};
  copies_wait<0>();
  if ((flags & (Ticket::kTimed | Ticket::kArrives)) != 0) {
    const int index = tickets.at(number).index;
    if ((flags & Ticket::kTimed) != 0 && threadIdx.x == 0) at<uint64_t>(kept.times)[index] = card_time();
    if ((flags & Ticket::kArrives) != 0 && index + 1 < kept.count) {
      const Instruction& in = kept.instruction(index);
      if (in.what == Do::kMultiply || in.what == Do::kConvDelta) {
        kept.meeting.arrive_when(done);
      } else {
        kept.meeting.arrive();
      }
      tickets.wait(number + 1);
      fetch_needed(kept.in(number + 1), kept.pass());
    }
  }
  tickets.leave(number);
  tickets.wait(number + 1);
  return number + 1;
}

// Which products a call of plain_multiply goes on with; kEnd: with none.
template <class Held>
__device__ __forceinline__ constexpr PlainWay way_of() {
  if constexpr (kIsPacked<Held>) {
    return way_of_packing(Held::kPacked);
  } else {
    return kOfCodes<Held> ? PlainWay::kEnd : PlainWay::kValues;
  }
}

// Apart, as all that follows, so that each has all registers. Products one behind the other.
template <class Held>
__device__ __noinline__ uint32_t plain_multiply(PlainKept& kept, uint32_t number) {
  is_shared(&kept);
#pragma unroll 1
  do {
    const uint32_t of = number;
    uint32_t flags = 0;
    const uint32_t done = do_plain_multiply<Held>(kept.in(of), kept.room(of), kept.feed.span, PlainKept::Tickets{kept},
                                                  number, flags, [&] { kept.wait(of); });
    number = end_plain(kept, number, flags, done);
  } while (way_of<Held>() != PlainWay::kEnd && kept.ticket(number).way == way_of<Held>());
  return number;
}
__device__ __noinline__ void stage_of_row(PlainKept& kept, uint32_t number) {
  is_shared(&kept);
  kept.wait(number);
  stage_other(kept.in(number), kept.room(number));
}
__device__ __noinline__ uint32_t conv_delta_of_row(PlainKept& kept, uint32_t number) {
  is_shared(&kept);
  const DeltaUnit& first = unit_in<DeltaUnit>(kept.ticket(number));
  is_shared(&first);
  const uint32_t done =
      do_conv_delta_rows(kept.in(number), kept.pass(), blockIdx.x, gridDim.x, first, kept.room(number), [&] {
        if (kept.ticket(number).has(Ticket::kWaits)) {
          kept.meeting.wait();
        } else {
          // A block that has no unit meets nowhere else, and leaves nobody behind at what comes before.
          meet();
        }
      });
  return end_plain(kept, number, kept.ticket(number).flags, done);
}
template <int kWidth, bool kBf16>
__device__ __noinline__ uint32_t attend_of_row(PlainKept& kept, uint32_t number) {
  is_shared(&kept);
  do_attend_row<kWidth, kBf16>(kept.in(number), kept.pass(), unit_in<AttendRowUnit>(kept.ticket(number)),
                               kept.room(number), kept.other_room(number));
  return end_plain(kept, number, kept.ticket(number).flags, 0);
}
__device__ __forceinline__ uint32_t attend_of_any_row(PlainKept& kept, uint32_t number) {
  const int width = kept.in(number).op.width;
  const bool bf16 = kept.in(number).slot.form == Form::kBF16;
  if (width == 256) return bf16 ? attend_of_row<256, true>(kept, number) : attend_of_row<256, false>(kept, number);
  if (width == 128) return bf16 ? attend_of_row<128, true>(kept, number) : attend_of_row<128, false>(kept, number);
  return bf16 ? attend_of_row<64, true>(kept, number) : attend_of_row<64, false>(kept, number);
}
__device__ __noinline__ uint32_t join_of_row(PlainKept& kept, uint32_t number) {
  is_shared(&kept);
  join_row(kept.in(number), kept.pass(), kept.room(number));
  return end_plain(kept, number, kept.ticket(number).flags, 0);
}
__device__ __noinline__ uint32_t do_other(PlainKept& kept, uint32_t number) {
  is_shared(&kept);
  kept.wait(number);
  if (has_none(kept.in(number), kept.pass())) {
    meet();  // nobody waits for nothing
  } else {
    run_other<true>(kept.in(number), kept.pass(), kept.pass_address, block_shared());
  }
  return end_plain(kept, number, kept.ticket(number).flags, 0);
}

// kCodes: some products may be of codes.
template <bool kCodes>
__device__ __forceinline__ void run_plain_list(const ListWork& work) {
  __shared__ __align__(16) unsigned char kept_at[sizeof(PlainKept)];
  PlainKept& kept = *reinterpret_cast<PlainKept*>(kept_at);
  is_shared(&kept);
  if (at<const Pass>(work.pass)->stopped != 0) return;
  if (warp() == kWarps) {
    Slots(work.feed).make();
    __syncthreads();
    return feed_list(work, 1, 1, *reinterpret_cast<Instruction*>(kept.instructions[kPlainInstructions]));
  }
  if (threadIdx.x == 0) {
    kept.barriers().make();
    kept.meeting = Meeting(work.barrier);
    const bool second = (kept.meeting.with_words() & 1) != 0;
    kept.words_bytes = work.words_bytes;
    kept.old_words = work.words + (second ? 0 : work.words_bytes);
    kept.second = second;
    kept.feed = work.feed;
    kept.list = work.list, kept.pass_address = work.pass, kept.times = work.times, kept.count = work.count;
  }
  copy_pass(work.pass, kept.pass_at);
  __syncthreads();
  if (warp() > kWarps) return write_tickets(kept);
  kept.barriers().wait_full(0);
  for (uint32_t number = 0;;) {
    switch (kept.ticket(number).way) {
      case PlainWay::kEnd:
        return kept.meeting.leave(kept.words_bytes != 0);
      case PlainWay::kStagedValues:
        stage_of_row(kept, number);
        [[fallthrough]];
      case PlainWay::kValues:
        number = plain_multiply<HeldValues>(kept, number);
        break;
      case PlainWay::kStagedCodes:
        if constexpr (kCodes) stage_of_row(kept, number);
        [[fallthrough]];
      case PlainWay::kCodes:
        if constexpr (kCodes) number = plain_multiply<HeldIntegers>(kept, number);
        break;
#define BATON_CASE(packing)                                                                    \
  case PlainWay::packing:                                                                      \
    if constexpr (kCodes) number = plain_multiply<HeldPacked<Packing::packing>>(kept, number); \
    break;
        BATON_CASE(kQ8_0)
        BATON_CASE(kQ4_K)
        BATON_CASE(kQ5_K)
        BATON_CASE(kQ6_K)
#undef BATON_CASE
      case PlainWay::kMixed:
        if constexpr (kCodes) number = plain_multiply<HeldMixed>(kept, number);
        break;
      case PlainWay::kConvDelta:
        number = conv_delta_of_row(kept, number);
        break;
      case PlainWay::kAttendRow:
        number = attend_of_any_row(kept, number);
        break;
      case PlainWay::kJoinRow:
        number = join_of_row(kept, number);
        break;
      default:
        number = do_other(kept, number);
    }
  }
}

}  // namespace baton::cuda

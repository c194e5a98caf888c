// Do::kMultiply as most steps have it: one row of x, matrices of 16-bit values or of codes.
#pragma once

#include <type_traits>

#include "baton/unit/cuda/kernels/packed_pieces.cuh"
#include "baton/unit/cuda/kernels/products.cuh"
#include "baton/unit/cuda/kernels/tickets.cuh"
#include "baton/unit/cuda/kernels/words.cuh"

namespace baton::cuda {

template <class Held>
inline constexpr bool kOfCodes = !std::is_same_v<Held, HeldValues>;
template <class Held>
inline constexpr bool kIsPacked = kOfCodes<Held> && !std::is_same_v<Held, HeldIntegers>;

// A row of x of those that go by fours, and a meeting. kAhead: fours that a thread asks for at a time. meanwhile(): as
// prologue_fours_of has it.
template <bool kCodes, int kAhead, class Meanwhile>
__device__ __forceinline__ void stage_plain(const Instruction& in, const Staged& staged, const Factors& factors,
                                            const Meanwhile& meanwhile) {
  prologue_fours_of<kAhead>(
      in, kCodes ? staged.pitch : staged.stride, factors.squares(0), RowOfWords{in.x, (in.worded & kWordsX) != 0},
      RowOfWords{in.y, (in.worded & kWordsY) != 0},
      [&](int i, const float4& four) {
        if constexpr (kCodes) {
          round_fours(four, staged.integers(0), i, staged.groups);
        } else {
          staged.put_halves(i, four);
        }
      },
      meanwhile);
  meet();
}

// What of an instruction is needed when its sums are there, in one register: read before x comes.
class PlainHow {
 public:
  __device__ __forceinline__ explicit PlainHow(const Instruction& in)
      : bits_(static_cast<int>(in.epilogue) | ((in.worded & kWordsOut) != 0 ? kOut : 0) |
              ((in.worded & kWordsZ) != 0 ? kZ : 0) | (in.product.has(ProductShares::kPairs) ? kPairs : 0) |
              (in.product.form == Form::kBF16 ? kBf16 : 0)) {
    made_here(bits_);
  }
  __device__ __forceinline__ bool ends(Epilogue epilogue) const { return (bits_ & 15) == static_cast<int>(epilogue); }
  __device__ __forceinline__ bool words_out() const { return (bits_ & kOut) != 0; }
  __device__ __forceinline__ bool words_z() const { return (bits_ & kZ) != 0; }
  __device__ __forceinline__ bool pairs() const { return (bits_ & kPairs) != 0; }
  __device__ __forceinline__ bool bf16() const { return (bits_ & kBf16) != 0; }

 private:
  static constexpr int kOut = 16, kZ = 32, kPairs = 64, kBf16 = 128;
  int bits_;
};

// Where a thread's output of a round goes, if it has one, and what is added there. Few registers: they are needed for
// what is multiplied meanwhile.
class PlainTarget {
 public:
  // Asks for what is added.
  __device__ __forceinline__ void ask(const Instruction& in, Address out) {
    out_ = out;
    if (out_ != 0) look(in);
  }
  // Returns what there was, or nothing.
  __device__ __forceinline__ uint32_t store(const Instruction& in, const PlainHow& how, float product, float other) {
    if (out_ == 0) return 0;
    if (how.ends(Epilogue::kSwiGlu)) product = silu(product) * other;
    if (how.ends(Epilogue::kGeGlu)) product = gelu_of(product, in.op.gelu) * other;
    if (how.ends(Epilogue::kAdd)) {
      while (how.words_z() && !has_come(before_)) {
        looked_in_vain();
        look(in);
      }
      product += __uint_as_float(before_);
    }
    if (!how.words_out()) return exchange(at<float>(out_), product);
    store_word(at<uint32_t>(out_), word_of_value(product));
    return 0;
  }

 private:
  __device__ __forceinline__ void look(const Instruction& in) {
    if (in.epilogue != Epilogue::kAdd) return;  // of one matrix
    before_ = look_at_word(at<const uint32_t>(in.z + (out_ - in.outs[0])));
  }

  Address out_ = 0;
  uint32_t before_ = 0;
};

// A warp's pieces of a round: what the ticket says of them, as far as it is read before x comes. There are no registers
// for more.
struct PlainPieces {
  uint32_t full;  // of number lane() % kSet
  int count;
  bool come;  // whether all were seen to have come

  __device__ __forceinline__ void read(const Ticket& ticket) {
    full = ticket.full[warp()][lane() & (kSet - 1)];
    count = __popc(__ballot_sync(kAll, full != 0) & ((1u << kSet) - 1));
    come = false;
    made_here(count);
  }
  // Whether all have come, as it is now: each lane asks for one, as each answer takes its time.
  __device__ __forceinline__ void look() { come = __all_sync(kAll, full == 0 || Ticket::has_come_now(full)) != 0; }
  // Where they lie; also, behind them, until all have come, where that was not seen before.
  __device__ __forceinline__ void wait(const Ticket& ticket, const unsigned char* (&places)[kSet]) const {
    const uint4 pieces = *reinterpret_cast<const uint4*>(ticket.piece[warp()]);
    while (!come && !__all_sync(kAll, full == 0 || Ticket::has_come(full))) looked_in_vain();
    __syncwarp();
    places[0] = block_shared() + pieces.x, places[1] = block_shared() + pieces.y;
    places[2] = block_shared() + pieces.z, places[3] = block_shared() + pieces.w;
  }
  // Behind what the warp read of them.
  __device__ __forceinline__ void release() const {
    __syncwarp();
    if (static_cast<int>(lane()) < count) Ticket::release(full);
  }
  // Each, and room is made behind it: sums[i] becomes times(its place, its matrix).
  template <class Times>
  __device__ __forceinline__ void one_by_one(const Ticket& ticket, float (&sums)[kSet][1], const Times& times) const {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const uint32_t of = __shfl_sync(kAll, full, i), piece = ticket.piece[warp()][i];
      Ticket::wait(of);
      const float sum = times(block_shared() + piece, Ticket::matrix_of(of));
#pragma unroll
      for (int k = 0; k < kSet; ++k) sums[k][0] = k == i ? sum : sums[k][0];
      __syncwarp();
      if (lane() == 0) Ticket::release(of);
    }
  }
};
static_assert(kSet == 4);

// In place of these, of codes that are taken apart as they say of themselves, which need all registers.
struct NoPieces {
  __device__ __forceinline__ void read(const Ticket&) {}
  __device__ __forceinline__ void look() {}
};
template <class Held>
using PiecesOf = std::conditional_t<std::is_same_v<Held, HeldIntegers>, NoPieces, PlainPieces>;

// The warp's pieces of a round, of codes: what the ticket says of each is read when it is needed.
__device__ __forceinline__ void multiply_plain(const Instruction& in, const PlainHow&, const HeldIntegers& held,
                                               const Ticket& ticket, const NoPieces&, bool, float (&sums)[kSet][1]) {
  if (ticket.full[warp()][0] == 0) return;
  const auto x = held.read();
#pragma unroll 1
  for (int i = 0; i < kSet; ++i) {
    const uint32_t piece = ticket.piece[warp()][i], full = ticket.full[warp()][i];
    if (full == 0) break;
    Ticket::wait(full);
    const float sum = held.times(in.matrix[Ticket::matrix_of(full)], x, block_shared() + piece);
#pragma unroll
    for (int k = 0; k < kSet; ++k) sums[k][0] = k == i ? sum : sums[k][0];
    __syncwarp();
    if (lane() == 0) Ticket::release(full);
  }
}

// The same of 16-bit values. `one_by_one`: more rounds come, and each makes room as soon as it has been multiplied.
__device__ __forceinline__ void multiply_plain(const Instruction&, const PlainHow& how, const HeldValues& held,
                                               const Ticket& ticket, const PlainPieces& pieces, bool one_by_one,
                                               float (&sums)[kSet][1]) {
  if (pieces.count == 0) return;
  if (one_by_one) {
    return pieces.one_by_one(ticket, sums, [&](const unsigned char* from, int) {
      return how.bf16() ? held.template times_form<Form::kBF16>(from, 0)
                        : held.template times_form<Form::kF16>(from, 0);
    });
  }
  const unsigned char* places[kSet];
  pieces.wait(ticket, places);
  const auto times = [&](auto form) {
    constexpr Form kForm = decltype(form)::value;
    // No switch: a compiler makes that a jump by a table, which is read first.
    if (pieces.count > 2) return held.template times_each<kForm, 4>(places, sums);
    if (pieces.count == 2) return held.template times_each<kForm, 2>(places, sums);
    return held.template times_each<kForm, 1>(places, sums);
  };
  if (how.bf16()) {
    times(std::integral_constant<Form, Form::kBF16>());
  } else {
    times(std::integral_constant<Form, Form::kF16>());
  }
  pieces.release();
}

// The same of codes whose matrices are packed in several known ways.
__device__ __forceinline__ void multiply_plain(const Instruction& in, const PlainHow&, const HeldMixed& held,
                                               const Ticket& ticket, const PlainPieces& pieces, bool,
                                               float (&sums)[kSet][1]) {
  if (pieces.count == 0) return;
  const auto x = held.read();
  pieces.one_by_one(ticket, sums,
                    [&](const unsigned char* from, int matrix) { return held.times(in.matrix[matrix], x, from); });
}

// The same of codes that are packed in one known way.
template <Packing kPacking>
__device__ __forceinline__ void multiply_plain(const Instruction&, const PlainHow&, const HeldPacked<kPacking>& held,
                                               const Ticket& ticket, const PlainPieces& pieces, bool one_by_one,
                                               float (&sums)[kSet][1]) {
  if (pieces.count == 0) return;
  const auto x = held.read();
  if (one_by_one)
    return pieces.one_by_one(ticket, sums, [&](const unsigned char* from, int) { return held.times(x, from); });
  const unsigned char* places[kSet];
  pieces.wait(ticket, places);
  if (pieces.count > 2) {
    held.template times_each<4>(x, places, sums);
  } else if (pieces.count == 2) {
    held.template times_each<2>(x, places, sums);
  } else {
    held.template times_each<1>(x, places, sums);
  }
  pieces.release();
}

// One behind the other, read by fours where there are four: 2 to 16.
__device__ __forceinline__ float sum_of_slices(const float* from, int slices_log2) {
  if (slices_log2 == 1) return (0.0f + from[0]) + from[1];
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < 1 << slices_log2; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    sum = (((sum + four.x) + four.y) + four.z) + four.w;
  }
  return sum;
}

// One row of x with matrices of 16-bit values of one form, or of codes; no more spans than warps: what most steps are
// made of. The sums are do_multiply's, in fewer steps; is_plain says of which. `tickets` has those of its rounds, the
// first of which, `number`, is there; wait() is called before anything is read that is not words. A row that does not
// go by fours is staged before (stage_other). `number` and `flags` become those of the last ticket. Returns what has to
// be there before the outputs are: Meeting::arrive_when.
template <class Held, class Tickets, class Wait>
__device__ __forceinline__ uint32_t do_plain_multiply(const Instruction& in, unsigned char* shared, int span,
                                                      const Tickets& tickets, uint32_t& number, uint32_t& flags,
                                                      const Wait& wait) {
  is_shared(&in);
  const ProductShares& of = in.product;
  const Staged staged(in.matrix[0], shared + kBeforeRows);
  const int slices_log2 = of.slices_log2, teams_log2 = kWarpsLog2 - slices_log2;
  const int slice = static_cast<int>(warp()) & ((1 << slices_log2) - 1), team = static_cast<int>(warp() >> slices_log2);
  const Held held(staged, min(slice * span, staged.pitch - kGroup), span);
  const bool whole = slices_log2 == 0;
  const int thread = static_cast<int>(threadIdx.x), number_of_team = whole ? Sums<1>::number() : thread & (kSet - 1);
  const int of_team = whole ? team : thread >> 2;
  const bool puts = whole ? (lane() & 7) == 0 : of_team < 1 << teams_log2;
  float* const partial = reinterpret_cast<float*>(shared);
  static_assert(kSet == 4 && Sums<1>::kSpread == 8);
  PlainTarget target;
  PiecesOf<Held> pieces;
  const auto read_ticket = [&] {
    const Ticket& ticket = tickets.at(number);
    target.ask(in, puts ? ticket.out[of_team * kSet + number_of_team] : 0);
    pieces.read(ticket);
    flags = ticket.flags;
  };
  // Before x is there, while others still bring it: whatever need not wait for it.
  int put_at = ((team * kSet + Sums<1>::number()) << slices_log2) + slice;
  made_here(put_at);
  const PlainHow how(in);
  wait();
  read_ticket();
  // What is taken apart as it says of itself needs all registers.
  constexpr int kAhead = std::is_same_v<Held, HeldIntegers> ? 1 : 2;
  if (of.has(ProductShares::kFours))
    stage_plain<kOfCodes<Held>, kAhead>(in, staged, Factors(in, true, shared), [&] { pieces.look(); });
  uint32_t done = 0;
#pragma unroll 1
  for (int round = 0;; ++round) {
    float sums[kSet][1] = {};
    multiply_plain(in, how, held, tickets.at(number), pieces, (flags & Ticket::kOneByOne) != 0, sums);
    // Here, beside the sums: nobody then waits for either. Anew: there are no registers to keep it in.
    const float factor = Factors(in, of.has(ProductShares::kFours), shared).of_row();
    float sum = Sums<1>::of(sums), other = 0;
    if (whole) {
      other = __shfl_down_sync(kAll, sum, Sums<1>::kSpread);
    } else {
      float* const put = partial + (round & 1) * kWarps * kSet * kTile;
      if ((lane() & 7) == 0) put[put_at] = sum;
      int own = thread << slices_log2;
      made_here(own);  // while others are waited for, not before the sums
      meet();
      if (puts) {
        const float* const from = put + own;
        sum = sum_of_slices(from, slices_log2);
        if (how.pairs()) other = sum_of_slices(from + (1 << slices_log2), slices_log2);
      }
    }
    done |= target.store(in, how, sum * factor, other * factor);
    if ((flags & Ticket::kLast) != 0) break;
    tickets.leave(number);
    ++number;
    tickets.wait(number);
    read_ticket();
  }
  return done;
}

}  // namespace baton::cuda

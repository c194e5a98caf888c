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

// A row of x of those that go by fours, and a meeting. kAhead: fours that a thread asks for at a time.
template <bool kCodes, int kAhead>
__device__ __forceinline__ void stage_plain(const Instruction& in, const Staged& staged, const Factors& factors) {
  prologue_fours_of<kAhead>(in, kCodes ? staged.pitch : staged.stride, factors.squares(0),
                            RowOfWords{in.x, (in.worded & kWordsX) != 0}, RowOfWords{in.y, (in.worded & kWordsY) != 0},
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
  // Asks for what is added.
  __device__ __forceinline__ void ask(const Instruction& in, Address out) {
    out_ = out;
    if (out_ != 0) look(in);
  }
  // Returns what there was, or nothing.
  __device__ __forceinline__ uint32_t store(const Instruction& in, float product, float other) {
    if (out_ == 0) return 0;
    if (in.epilogue == Epilogue::kSwiGlu) product = silu(product) * other;
    if (in.epilogue == Epilogue::kGeGlu) product = gelu_of(product, in.op.gelu) * other;
    if (in.epilogue == Epilogue::kAdd) {
      while ((in.worded & kWordsZ) != 0 && !has_come(before_)) {
        looked_in_vain();
        look(in);
      }
      product += __uint_as_float(before_);
    }
    if ((in.worded & kWordsOut) == 0) return exchange(at<float>(out_), product);
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

// A warp's pieces of a round.
struct PlainPieces {
  uint32_t piece[kSet], full[kSet];
  int count;

  __device__ __forceinline__ void read(const Ticket& ticket) {
    const uint4 pieces = *reinterpret_cast<const uint4*>(ticket.piece[warp()]);
    const uint4 fulls = *reinterpret_cast<const uint4*>(ticket.full[warp()]);
    piece[0] = pieces.x, piece[1] = pieces.y, piece[2] = pieces.z, piece[3] = pieces.w;
    full[0] = fulls.x, full[1] = fulls.y, full[2] = fulls.z, full[3] = fulls.w;
    count = 0;
#pragma unroll
    for (int i = 0; i < kSet; ++i) count += full[i] != 0 ? 1 : 0;
    made_here(count);
  }
  __device__ __forceinline__ static const unsigned char* place(uint32_t piece) {
    return block_shared() + (piece & ~15u);
  }
  __device__ __forceinline__ static void wait(uint32_t full) { wait_for(full & ~7u, full & 1); }
  // Whether all have come: asked at once, as each answer takes its time.
  __device__ __forceinline__ static bool are_there(const uint32_t (&full)[kSet], int count) {
    bool there = true;
#pragma unroll
    for (int i = 0; i < kSet; ++i) {
      const uint32_t of = i < count ? full[i] : full[0];
      there = has_ended_now(of & ~7u, of & 1) & there;
    }
    return there;
  }
  __device__ __forceinline__ static void release(uint32_t full) {
    __syncwarp();
    if (lane() == 0) arrive((full & ~7u) + 8);
  }
  // All of them.
  __device__ __forceinline__ void wait() const {
    if (are_there(full, count)) return;
#pragma unroll 1
    for (int i = 0; i < count; ++i) wait(of(full, i));
  }
  __device__ __forceinline__ void release() const {
    __syncwarp();
    const uint32_t own = of(full, static_cast<int>(lane() & 3));
    if (static_cast<int>(lane()) < count) arrive((own & ~7u) + 8);
  }
  // Each, and room is made behind it: sums[i] becomes times(piece).
  template <class Times>
  __device__ __forceinline__ void one_by_one(float (&sums)[kSet][1], const Times& times) const {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const uint32_t barrier = of(full, i);
      wait(barrier);
      const float sum = times(of(piece, i));
#pragma unroll
      for (int k = 0; k < kSet; ++k) sums[k][0] = k == i ? sum : sums[k][0];
      release(barrier);
    }
  }
  // By number, of what is in registers.
  __device__ __forceinline__ static uint32_t of(const uint32_t (&all)[kSet], int i) {
    const uint32_t low = (i & 1) != 0 ? all[1] : all[0], high = (i & 1) != 0 ? all[3] : all[2];
    return (i & 2) != 0 ? high : low;
  }
};

// In place of these, of codes that are taken apart as they say of themselves: there are no registers for more.
struct NoPieces {
  __device__ __forceinline__ void read(const Ticket&) {}
};
template <class Held>
using PiecesOf = std::conditional_t<std::is_same_v<Held, HeldIntegers>, NoPieces, PlainPieces>;

// The warp's pieces of a round, of codes: what the ticket says of each is read when it is needed.
__device__ __forceinline__ void multiply_plain(const Instruction& in, const HeldIntegers& held, const Ticket& ticket,
                                               const NoPieces&, bool, float (&sums)[kSet][1]) {
  if (ticket.full[warp()][0] == 0) return;
  const auto x = held.read();
#pragma unroll 1
  for (int i = 0; i < kSet; ++i) {
    const uint32_t piece = ticket.piece[warp()][i], full = ticket.full[warp()][i];
    if (full == 0) break;
    PlainPieces::wait(full);
    const float sum = held.times(in.matrix[piece & 15u], x, PlainPieces::place(piece));
#pragma unroll
    for (int k = 0; k < kSet; ++k) sums[k][0] = k == i ? sum : sums[k][0];
    PlainPieces::release(full);
  }
}

// The same of 16-bit values. `one_by_one`: more rounds come, and each makes room as soon as it has been multiplied.
__device__ __forceinline__ void multiply_plain(const Instruction& in, const HeldValues& held, const Ticket&,
                                               const PlainPieces& pieces, bool one_by_one, float (&sums)[kSet][1]) {
  static_assert(kSet == 4);
  if (pieces.count == 0) return;
  if (one_by_one) {
    return pieces.one_by_one(sums, [&](uint32_t piece) {
      const unsigned char* const from = pieces.place(piece);
      return in.product.form == Form::kBF16 ? held.template times_form<Form::kBF16>(from, 0)
                                            : held.template times_form<Form::kF16>(from, 0);
    });
  }
  pieces.wait();
  const unsigned char* places[kSet];
#pragma unroll
  for (int i = 0; i < kSet; ++i) places[i] = pieces.place(pieces.piece[i]);
  const auto times = [&](auto form) {
    constexpr Form kForm = decltype(form)::value;
    // No switch: a compiler makes that a jump by a table, which is read first.
    if (pieces.count == 4) return held.template times_each<kForm, 4>(places, sums);
    if (pieces.count == 2) return held.template times_each<kForm, 2>(places, sums);
    if (pieces.count == 1) return held.template times_each<kForm, 1>(places, sums);
    return held.template times_each<kForm, 3>(places, sums);
  };
  if (in.product.form == Form::kBF16) {
    times(std::integral_constant<Form, Form::kBF16>());
  } else {
    times(std::integral_constant<Form, Form::kF16>());
  }
  pieces.release();
}

// The same of codes whose matrices are packed in several known ways.
__device__ __forceinline__ void multiply_plain(const Instruction& in, const HeldMixed& held, const Ticket&,
                                               const PlainPieces& pieces, bool, float (&sums)[kSet][1]) {
  if (pieces.count == 0) return;
  const auto x = held.read();
  pieces.one_by_one(sums, [&](uint32_t piece) { return held.times(in.matrix[piece & 15u], x, pieces.place(piece)); });
}

// The same of codes that are packed in one known way.
template <Packing kPacking>
__device__ __forceinline__ void multiply_plain(const Instruction&, const HeldPacked<kPacking>& held, const Ticket&,
                                               const PlainPieces& pieces, bool one_by_one, float (&sums)[kSet][1]) {
  if (pieces.count == 0) return;
  const auto x = held.read();
  if (one_by_one) return pieces.one_by_one(sums, [&](uint32_t piece) { return held.times(x, pieces.place(piece)); });
  pieces.wait();
  const unsigned char* places[kSet];
#pragma unroll
  for (int i = 0; i < kSet; ++i) places[i] = pieces.place(i < pieces.count ? pieces.piece[i] : pieces.piece[0]);
  if (pieces.count > 2) {  // of one more than there are nobody takes the sum
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
  wait();
  read_ticket();
  // What is taken apart as it says of itself needs all registers.
  constexpr int kAhead = std::is_same_v<Held, HeldIntegers> ? 1 : 2;
  if (of.has(ProductShares::kFours)) stage_plain<kOfCodes<Held>, kAhead>(in, staged, Factors(in, true, shared));
  uint32_t done = 0;
#pragma unroll 1
  for (int round = 0;; ++round) {
    float sums[kSet][1] = {};
    multiply_plain(in, held, tickets.at(number), pieces, (flags & Ticket::kOneByOne) != 0, sums);
    // Here, beside the sums: nobody then waits for either. Anew: there are no registers to keep it in.
    const float factor = Factors(in, of.has(ProductShares::kFours), shared).of_row();
    float sum = Sums<1>::of(sums), other = 0;
    if (whole) {
      other = __shfl_down_sync(kAll, sum, Sums<1>::kSpread);
    } else {
      float* const put = partial + (round & 1) * kWarps * kSet * kTile;
      if ((lane() & 7) == 0) put[put_at] = sum;
      meet();
      if (puts) {
        const float* const from = put + (thread << slices_log2);
        sum = sum_of_slices(from, slices_log2);
        if (of.has(ProductShares::kPairs)) other = sum_of_slices(from + (1 << slices_log2), slices_log2);
      }
    }
    done |= target.store(in, sum * factor, other * factor);
    if ((flags & Ticket::kLast) != 0) break;
    tickets.leave(number);
    ++number;
    tickets.wait(number);
    read_ticket();
  }
  return done;
}

}  // namespace baton::cuda

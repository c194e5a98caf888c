// Do::kMultiply as most steps have it: one row of x, matrices of 16-bit values or of codes.
#pragma once

#include <type_traits>

#include "baton/unit/cuda/kernels/products.cuh"
#include "baton/unit/cuda/kernels/tickets.cuh"
#include "baton/unit/cuda/kernels/words.cuh"

namespace baton::cuda {

// A row of x of those that go by fours, and a meeting.
template <bool kCodes>
__device__ __forceinline__ void stage_plain(const Instruction& in, const Staged& staged, const Factors& factors) {
  prologue_fours_of<kCodes ? 1 : 2>(in, kCodes ? staged.pitch : staged.stride, factors.squares(0),
                                    RowOfWords{in.x, (in.worded & kWordsX) != 0},
                                    RowOfWords{in.y, (in.worded & kWordsY) != 0}, [&](int i, const float4& four) {
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

  __device__ __forceinline__ explicit PlainPieces(const Ticket& ticket) {
    const uint4 pieces = *reinterpret_cast<const uint4*>(ticket.piece[warp()]);
    const uint4 fulls = *reinterpret_cast<const uint4*>(ticket.full[warp()]);
    piece[0] = pieces.x, piece[1] = pieces.y, piece[2] = pieces.z, piece[3] = pieces.w;
    full[0] = fulls.x, full[1] = fulls.y, full[2] = fulls.z, full[3] = fulls.w;
    count = 0;
#pragma unroll
    for (int i = 0; i < kSet; ++i) count += full[i] != 0 ? 1 : 0;
  }
  __device__ __forceinline__ static const unsigned char* place(uint32_t piece) {
    return block_shared() + (piece & ~15u);
  }
  __device__ __forceinline__ static void wait(uint32_t full) { wait_for(full & ~7u, full & 1); }
  __device__ __forceinline__ static void release(uint32_t full) {
    __syncwarp();
    if (lane() == 0) arrive((full & ~7u) + 8);
  }
  // By number, of what is in registers.
  __device__ __forceinline__ static uint32_t of(const uint32_t (&all)[kSet], int i) {
    const uint32_t low = (i & 1) != 0 ? all[1] : all[0], high = (i & 1) != 0 ? all[3] : all[2];
    return (i & 2) != 0 ? high : low;
  }
};

// The warp's pieces of a round, of codes: what the ticket says of each is read when it is needed.
__device__ __forceinline__ void multiply_plain(const Instruction& in, const HeldIntegers& held, const Ticket& ticket,
                                               bool, float (&sums)[kSet][1]) {
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
__device__ __forceinline__ void multiply_plain(const Instruction& in, const HeldValues& held, const Ticket& ticket,
                                               bool one_by_one, float (&sums)[kSet][1]) {
  static_assert(kSet == 4);
  const PlainPieces pieces(ticket);
  const int count = pieces.count;
  if (count == 0) return;
  if (one_by_one) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const uint32_t full = pieces.of(pieces.full, i);
      pieces.wait(full);
      const unsigned char* const from = pieces.place(pieces.of(pieces.piece, i));
      const float sum = in.product.form == Form::kBF16 ? held.template times_form<Form::kBF16>(from, 0)
                                                       : held.template times_form<Form::kF16>(from, 0);
#pragma unroll
      for (int k = 0; k < kSet; ++k) sums[k][0] = k == i ? sum : sums[k][0];
      pieces.release(full);
    }
    return;
  }
  const unsigned char* places[kSet];
#pragma unroll
  for (int i = 0; i < kSet; ++i) {
    if (i < count) pieces.wait(pieces.full[i]);
    places[i] = pieces.place(pieces.piece[i]);
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
  const uint32_t own = pieces.of(pieces.full, static_cast<int>(lane() & 3));
  if (static_cast<int>(lane()) < count) arrive((own & ~7u) + 8);
}

// One row of x with matrices of 16-bit values of one form, or of codes; no more spans than warps: what most steps are
// made of. The sums are do_multiply's, in fewer steps; is_plain says of which. `tickets` has those of its rounds, the
// first of which, `number`, is there; wait() is called before anything is read that is not words. A row that does not
// go by fours is staged before (stage_other). `number` and `flags` become those of the last ticket. Returns what has to
// be there before the outputs are: Meeting::arrive_when.
template <bool kCodes, class Tickets, class Wait>
__device__ __forceinline__ uint32_t do_plain_multiply(const Instruction& in, unsigned char* shared, int span,
                                                      const Tickets& tickets, uint32_t& number, uint32_t& flags,
                                                      const Wait& wait) {
  is_shared(&in);
  const ProductShares& of = in.product;
  const bool fours = of.has(ProductShares::kFours);
  const Factors factors(in, fours, shared);
  const Staged staged(in.matrix[0], shared + kBeforeRows);
  const int slices_log2 = of.slices_log2, teams_log2 = kWarpsLog2 - slices_log2;
  const int slice = static_cast<int>(warp()) & ((1 << slices_log2) - 1), team = static_cast<int>(warp() >> slices_log2);
  const std::conditional_t<kCodes, HeldIntegers, HeldValues> held(staged, min(slice * span, staged.pitch - kGroup),
                                                                  span);
  const bool whole = slices_log2 == 0;
  const int thread = static_cast<int>(threadIdx.x), number_of_team = whole ? Sums<1>::number() : thread & (kSet - 1);
  const int of_team = whole ? team : thread >> 2;
  const bool puts = whole ? (lane() & 7) == 0 : of_team < 1 << teams_log2;
  float* const partial = reinterpret_cast<float*>(shared);
  static_assert(kSet == 4 && Sums<1>::kSpread == 8);
  PlainTarget target;
  const auto aim = [&] { target.ask(in, puts ? tickets.at(number).out[of_team * kSet + number_of_team] : 0); };
  wait();
  aim();
  if (fours) stage_plain<kCodes>(in, staged, factors);
  const float factor = factors.of(0);
  uint32_t done = 0;
#pragma unroll 1
  for (int round = 0;; ++round) {
    flags = tickets.at(number).flags;
    float sums[kSet][1] = {};
    multiply_plain(in, held, tickets.at(number), (flags & Ticket::kOneByOne) != 0, sums);
    float sum = Sums<1>::of(sums), other = 0;
    if (whole) {
      other = __shfl_down_sync(kAll, sum, Sums<1>::kSpread);
    } else {
      float* const put = partial + (round & 1) * kWarps * kSet * kTile;
      if ((lane() & 7) == 0) put[((team * kSet + Sums<1>::number()) << slices_log2) + slice] = sum;
      meet();
      if (puts) {
        const float* const from = put + (thread << slices_log2);
        sum = 0;
        for (int i = 0; i < 1 << slices_log2; ++i) sum += from[i];
        if (of.has(ProductShares::kPairs)) {
          for (int i = 0; i < 1 << slices_log2; ++i) other += from[(1 << slices_log2) + i];
        }
      }
    }
    done |= target.store(in, sum * factor, other * factor);
    if ((flags & Ticket::kLast) != 0) break;
    tickets.leave(number);
    ++number;
    tickets.wait(number);
    aim();
  }
  return done;
}

}  // namespace baton::cuda

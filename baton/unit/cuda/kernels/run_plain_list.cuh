// How a list for one row of x is run, where is_plain says yes to all instructions: by the kernels of list_plain*.cu.
// What products and delta rules tell each other goes as words (Worded) where the list says so: no block then waits for
// another, but for the values that it needs.
#pragma once

#include "baton/unit/cuda/kernels/attend_row.cuh"
#include "baton/unit/cuda/kernels/delta_row.cuh"
#include "baton/unit/cuda/kernels/list.cuh"
#include "baton/unit/cuda/kernels/plain_products.cuh"

namespace baton::cuda {

// Which function has an instruction.
enum class PlainWay : int {
  kEnd,
  kValues,
  kStagedValues,
  kCodes,
  kStagedCodes,
  kConvDelta,
  kAttendRow,
  kJoinRow,
  kOther
};

// What a block has of a launch, and each of its warps: in shared memory, as registers are for what is multiplied, and
// what a kernel keeps in memory of its own instead is more than the first level of cache holds. For the same reason the
// kernel itself has nothing that lives while it calls a function: each begins from here, and so does what comes behind.
struct PlainKept {
  unsigned char instructions[kInstructionsKept + 1][sizeof(Instruction)];  // and the feeder's
  unsigned char pass_at[kPassKept];
  Meeting meeting;
  uint32_t launch;
  FeedPlan feed;
  Address list, pass_address, times;
  int count;
  struct Warp {
    int index;       // of the instruction
    uint32_t piece;  // bundles of the products before it
    bool waits;      // the instruction before ended with an arrival
  } warp[kWarps];

  __device__ __forceinline__ Instruction& instruction(int i) {
    return *reinterpret_cast<Instruction*>(instructions[i & (kInstructionsKept - 1)]);
  }
  __device__ __forceinline__ const Pass& pass() const { return *reinterpret_cast<const Pass*>(pass_at); }
  // By a warp whose lanes are together.
  __device__ __forceinline__ void go_on(int index, uint32_t piece, bool waits) {
    __syncwarp();
    if (lane() == 0) warp[cuda::warp()] = {index, piece, waits};
    __syncwarp();
  }
  __device__ __forceinline__ const Warp& own() const { return warp[cuda::warp()]; }
  // The warp's instruction.
  __device__ __forceinline__ const Instruction& in() { return instruction(own().index); }
  __device__ __forceinline__ void wait() const {
    if (own().waits) meeting.wait();
  }
  // Where it works, and where the one before did.
  __device__ __forceinline__ unsigned char* room() const { return block_shared() + (own().index & 1) * half_of(feed); }
  __device__ __forceinline__ unsigned char* other_room() const {
    return block_shared() + (~own().index & 1) * half_of(feed);
  }

  // What is next for the warp.
  __device__ __forceinline__ PlainWay next() {
    const int i = own().index;
    if (i >= count) return PlainWay::kEnd;
    // It takes the place of one that nobody reads any more: behind it all have met.
    const int ahead = i + kInstructionsKept - 2;
    if (i > 1 && ahead < count) bring(list, ahead, instruction(ahead));
    const Instruction& of = instruction(i);
    const bool staged = !of.product.has(ProductShares::kFours);
    if (of.what == Do::kMultiply && of.product.form == Form::kCodes)
      return staged ? PlainWay::kStagedCodes : PlainWay::kCodes;
    if (of.what == Do::kMultiply) return staged ? PlainWay::kStagedValues : PlainWay::kValues;
    if (of.what == Do::kConvDelta) return PlainWay::kConvDelta;
    if (of.what == Do::kAttendRow) return PlainWay::kAttendRow;
    return of.what == Do::kAttendJoin && of.worded != 0 ? PlainWay::kJoinRow : PlainWay::kOther;
  }
};
static_assert(sizeof(PlainKept) <= kKeptBytes && sizeof(Instruction) % 16 == 0);

// Apart, as all that follows, so that each has all registers.
template <bool kCodes>
__device__ __noinline__ uint32_t plain_multiply(PlainKept& kept) {
  is_shared(&kept);
  return do_plain_multiply<kCodes>(kept.in(), {kept.room(), kept.launch}, kept.feed, kept.own().piece,
                                   [&] { kept.wait(); });
}
__device__ __noinline__ void stage_of_row(PlainKept& kept) {
  is_shared(&kept);
  kept.wait();
  stage_other(kept.in(), kept.room());
}
__device__ __noinline__ uint32_t conv_delta_of_row(PlainKept& kept) {
  is_shared(&kept);
  return do_conv_delta_rows(kept.in(), kept.pass(), blockIdx.x, gridDim.x, kept.room(), kept.launch, [&] {
    if (kept.own().waits) {
      kept.meeting.wait();
    } else {
      meet();  // a block that has no unit meets nowhere else, and leaves nobody behind at what comes before
    }
  });
}
__device__ __noinline__ void attend_of_row(PlainKept& kept) {
  is_shared(&kept);
  do_attend_row(kept.in(), kept.pass(), kept.room(), kept.other_room(), kept.launch);
}
__device__ __noinline__ void join_of_row(PlainKept& kept) {
  is_shared(&kept);
  join_row(kept.in(), kept.pass(), kept.room(), kept.launch);
}
__device__ __forceinline__ bool has_none(const Instruction& in, const Pass& pass) {
  return in.what == Do::kAttendJoin && !has_parts(in, pass);
}
__device__ __noinline__ void do_other(PlainKept& kept) {
  is_shared(&kept);
  kept.wait();
  if (has_none(kept.in(), kept.pass())) return meet();  // nobody waits for nothing
  run_other<true>(kept.in(), kept.pass(), kept.pass_address, block_shared());
}

// Behind the warp's instruction, of what its exchanges found: what is next.
__device__ __noinline__ PlainWay end_one(PlainKept& kept, uint32_t done) {
  is_shared(&kept);
  const int i = kept.own().index;
  const Instruction& in = kept.in();
  // When the first block had done it.
  if (kept.times != 0 && blockIdx.x == 0 && threadIdx.x == 0) at<uint64_t>(kept.times)[i] = card_time();
  copies_wait<0>();
  const bool product = in.what == Do::kMultiply, words = (in.worded & kWordsOut) != 0;
  const bool waits = !words && !has_none(in, kept.pass());
  kept.go_on(i + 1, kept.own().piece + (product ? Share(in.product, 1).of_tile() : 0), waits);
  if (waits && i + 1 < kept.count) {
    if (product || in.what == Do::kConvDelta) {
      kept.meeting.arrive_when(done);
    } else {
      kept.meeting.arrive();
    }
    fetch_needed(kept.instruction(i + 1), kept.pass());
  }
  return kept.next();
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
    return feed_list(work, 1, 1, *reinterpret_cast<Instruction*>(kept.instructions[kInstructionsKept]));
  }
  if (threadIdx.x == 0) {
    kept.meeting = Meeting(work.barrier);
    kept.launch = kept.meeting.launch();
    kept.feed = work.feed;
    kept.list = work.list, kept.pass_address = work.pass, kept.times = work.times, kept.count = work.count;
  }
  copy_pass(work.pass, kept.pass_at);
  for (int i = 0; i < min(work.count, kInstructionsKept); ++i) bring(work.list, i, kept.instruction(i));
  copies_wait<0>();
  kept.go_on(0, 0, false);
  __syncthreads();
  for (PlainWay way = kept.next(); way != PlainWay::kEnd;) {
    switch (way) {
      case PlainWay::kStagedValues:
        stage_of_row(kept);
        [[fallthrough]];
      case PlainWay::kValues:
        way = end_one(kept, plain_multiply<false>(kept));
        break;
      case PlainWay::kStagedCodes:
        if constexpr (kCodes) stage_of_row(kept);
        [[fallthrough]];
      case PlainWay::kCodes:
        if constexpr (kCodes) way = end_one(kept, plain_multiply<true>(kept));
        break;
      case PlainWay::kConvDelta:
        way = end_one(kept, conv_delta_of_row(kept));
        break;
      case PlainWay::kAttendRow:
        attend_of_row(kept);
        way = end_one(kept, 0);
        break;
      case PlainWay::kJoinRow:
        join_of_row(kept);
        way = end_one(kept, 0);
        break;
      default:
        do_other(kept);
        way = end_one(kept, 0);
    }
  }
  kept.meeting.leave();
}

}  // namespace baton::cuda

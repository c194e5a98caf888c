// How a list for one row of x is run, where is_plain says yes to all instructions: by the kernels of list_plain*.cu.
// What products and delta rules tell each other goes as words (Worded) where the list says so: no block then waits for
// another, but for the values that it needs.
#pragma once

#include "baton/unit/cuda/kernels/delta_row.cuh"
#include "baton/unit/cuda/kernels/list.cuh"
#include "baton/unit/cuda/kernels/plain_products.cuh"

namespace baton::cuda {

// What a block has of a launch, and each of its warps: in shared memory, as registers are for what is multiplied, and
// what a kernel keeps in memory of its own instead is more than the first level of cache holds.
struct PlainKept {
  Meeting meeting;
  uint32_t launch;
  FeedPlan feed;
  struct Warp {
    int index;       // of the instruction
    uint32_t piece;  // bundles of the products before it
    bool waits;      // the instruction before ended with an arrival
  } warp[kWarps];

  // By a warp whose lanes are together.
  __device__ __forceinline__ void go_on(int index, uint32_t piece, bool waits) {
    __syncwarp();
    if (lane() == 0) warp[cuda::warp()] = {index, piece, waits};
    __syncwarp();
  }
  __device__ __forceinline__ const Warp& own() const { return warp[cuda::warp()]; }
  __device__ __forceinline__ void wait() const {
    if (own().waits) meeting.wait();
  }
  // Where the warp's instruction works.
  __device__ __forceinline__ unsigned char* room() const { return block_shared() + (own().index & 1) * half_of(feed); }
};
static_assert((kInstructionsKept + 1) * sizeof(Instruction) + kPassKept + sizeof(PlainKept) + 16 <= kKeptBytes);

// Apart, as all that follows, so that each has all registers.
__device__ __noinline__ uint32_t conv_delta_of_row(const Instruction& in, const Pass& pass, const PlainKept& kept) {
  is_shared(&in);
  is_shared(&pass);
  is_shared(&kept);
  return do_conv_delta_rows(in, pass, blockIdx.x, gridDim.x, kept.room(), kept.launch, [&] {
    if (kept.own().waits) {
      kept.meeting.wait();
    } else {
      meet();  // a block that has no unit meets nowhere else, and leaves nobody behind at what comes before
    }
  });
}

template <bool kCodes>
__device__ __noinline__ uint32_t plain_multiply(const Instruction& in, const PlainKept& kept) {
  is_shared(&kept);
  return do_plain_multiply<kCodes>(in, {kept.room(), kept.launch}, kept.feed, kept.own().piece, [&] { kept.wait(); });
}

template <bool kCodes>
__device__ __forceinline__ uint32_t multiply_row(const Instruction& in, const PlainKept& kept) {
  if (!in.product.has(ProductShares::kFours)) {
    kept.wait();
    stage_other(in, kept.room());
  }
  if (kCodes && in.product.form == Form::kCodes) return plain_multiply<true>(in, kept);
  return plain_multiply<false>(in, kept);
}

// When the first block had done it.
__device__ __forceinline__ void note_time(const ListWork& work, int i) {
  if (work.times != 0 && blockIdx.x == 0 && threadIdx.x == 0) at<uint64_t>(work.times)[i] = card_time();
}

// kCodes: some products may be of codes.
template <bool kCodes>
__device__ __forceinline__ void run_plain_list(const ListWork& work) {
  __shared__ __align__(16) unsigned char instructions[kInstructionsKept + 1][sizeof(Instruction)];  // and the feeder's
  __shared__ __align__(16) unsigned char pass_at[kPassKept];
  __shared__ __align__(16) unsigned char kept_at[sizeof(PlainKept)];
  PlainKept& kept = *reinterpret_cast<PlainKept*>(kept_at);
  is_shared(&kept);
  const auto instruction = [&](int i) -> Instruction& {
    return *reinterpret_cast<Instruction*>(instructions[i & (kInstructionsKept - 1)]);
  };
  if (at<const Pass>(work.pass)->stopped != 0) return;
  if (warp() == kWarps) {
    Slots(work.feed).make();
    __syncthreads();
    return feed_list(work, 1, 1, *reinterpret_cast<Instruction*>(instructions[kInstructionsKept]));
  }
  const Pass& pass = *reinterpret_cast<const Pass*>(pass_at);
  if (threadIdx.x == 0) {
    kept.meeting = Meeting(work.barrier);
    kept.launch = kept.meeting.launch();
    kept.feed = work.feed;
  }
  copy_pass(work.pass, pass_at);
  for (int i = 0; i < min(work.count, kInstructionsKept); ++i) bring(work.list, i, instruction(i));
  copies_wait<0>();
  kept.go_on(0, 0, false);
  __syncthreads();
  while (kept.own().index < work.count) {
    const int i = kept.own().index;
    // It takes the place of one that nobody reads any more: behind it all have met.
    const int next = i + kInstructionsKept - 2;
    if (i > 1 && next < work.count) bring(work.list, next, instruction(next));
    const Instruction& in = instruction(i);
    is_shared(&in);
    uint32_t done = 0;
    bool exchanged = true;  // what it wrote, if not words
    if (in.what == Do::kMultiply) {
      done = multiply_row<kCodes>(in, kept);
    } else if (in.what == Do::kConvDelta) {
      done = conv_delta_of_row(in, pass, kept);
    } else {
      kept.wait();
      // Nobody waits for nothing.
      if (in.what == Do::kAttendJoin && !has_parts(in, pass)) {
        note_time(work, i);
        meet();
        kept.go_on(i + 1, kept.own().piece, false);
        continue;
      }
      run_other<true>(in, pass, work.pass, block_shared());
      exchanged = false;
    }
    note_time(work, i);
    copies_wait<0>();
    const bool waits = (in.worded & kWordsOut) == 0;
    kept.go_on(i + 1, kept.own().piece + (in.what == Do::kMultiply ? Share(in.product, 1).of_tile() : 0), waits);
    if (!waits || i + 1 == work.count) continue;
    if (exchanged) {
      kept.meeting.arrive_when(done);
    } else {
      kept.meeting.arrive();
    }
    fetch_needed(instruction(i + 1), pass);
  }
  kept.meeting.leave();
}

}  // namespace baton::cuda

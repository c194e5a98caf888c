// How any list of instructions is run in one launch, by the kernel of list.cu. Weights of what follows are on their way
// all the time (feed.cuh).
#pragma once

#include "baton/unit/cuda/kernels/list.cuh"
#include "baton/unit/cuda/kernels/products.cuh"

namespace baton::cuda {

__device__ __forceinline__ void run_list(const ListWork& work) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ __align__(16) unsigned char kept[kInstructionsKept + 1][sizeof(Instruction)];  // the last is the feeder's
  __shared__ __align__(16) unsigned char pass_at[kPassKept];
  const auto instruction = [&](int i) -> Instruction& {
    return *reinterpret_cast<Instruction*>(kept[i & (kInstructionsKept - 1)]);
  };
  const Pass& whole = *at<const Pass>(work.pass);
  if (whole.stopped != 0) return;
  if (warp() == kWarps) {
    Slots(work.feed).make();
    __syncthreads();
    return feed_list(work, whole.rows, whole.rows_out, *reinterpret_cast<Instruction*>(kept[kInstructionsKept]));
  }
  const Pass& pass = whole.runs <= kRunsKept ? *reinterpret_cast<const Pass*>(pass_at) : whole;
  Meeting meeting(work.barrier);
  copy_pass(work.pass, pass_at);
  if (work.list == 0) {
    put_word(word_of(instructions_of(work), 0, threadIdx.x), threadIdx.x, instruction(0));
  } else {
    for (int i = 0; i < min(work.count, kInstructionsKept); ++i) bring(work.list, i, instruction(i));
  }
  copies_wait<0>();
  __syncthreads();
  uint32_t piece = 0;
  for (int i = 0; i < work.count; ++i) {
    // It takes the place of the one before, which nobody reads any more.
    const int next = i + kInstructionsKept - 1;
    const bool comes = i > 0 && next < work.count;
    if (comes) bring(work.list, next, instruction(next));
    const Instruction& in = instruction(i);
    is_shared(&in);
    // Nobody waits for nothing.
    if (in.what == Do::kAttendJoin && !has_parts(in, pass)) {
      if (work.times != 0 && blockIdx.x == 0 && threadIdx.x == 0) at<uint64_t>(work.times)[i] = card_time();
      meet();
      continue;
    }
    const bool product = in.what == Do::kMultiply;
    uint32_t done = 0;
    if (product) {
      const Share share(in.product, rows::count_of(in, pass));
      done = do_multiply(in, share, shared, work.feed, piece);
      piece += share.of_all();
    } else if (in.what == Do::kConvDelta) {
      do_conv_delta(in, pass, blockIdx.x, gridDim.x, shared);
    } else {
      run_other<false>(in, pass, work.pass, shared);
    }
    if (work.times != 0 && blockIdx.x == 0 && threadIdx.x == 0) at<uint64_t>(work.times)[i] = card_time();
    copies_wait<0>();
    if (i + 1 == work.count) break;
    if (product) {
      meeting.arrive_when(done);
    } else {
      meeting.arrive();
    }
    fetch_needed(instruction(i + 1), pass);
    meeting.wait();
  }
  if (work.barrier != 0) meeting.leave();
}

}  // namespace baton::cuda

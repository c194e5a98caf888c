// How a list for one row of x is run, where is_plain says yes to all instructions: by the kernels of list_plain*.cu.
// What products and delta rules tell each other goes as words (Worded) where the list says so: no block then waits for
// another, but for the values that it needs.
#pragma once

#include "baton/unit/cuda/kernels/delta_row.cuh"
#include "baton/unit/cuda/kernels/list.cuh"
#include "baton/unit/cuda/kernels/plain_products.cuh"

namespace baton::cuda {

// Apart, so that products have all registers.
__device__ __noinline__ uint32_t conv_delta_of_row(const Instruction& in, const Pass& pass, unsigned char* shared,
                                                   uint32_t launch, bool waits, Meeting meeting) {
  is_shared(&in);
  is_shared(&pass);
  return do_conv_delta_rows(in, pass, blockIdx.x, gridDim.x, shared, launch, [&] {
    if (waits) {
      meeting.wait();
    } else {
      meet();  // a block that has no unit meets nowhere else, and leaves nobody behind at what comes before
    }
  });
}

// kCodes: some products may be of codes.
template <bool kCodes>
__device__ __forceinline__ void run_plain_list(const ListWork& work) {
  unsigned char* const shared = block_shared();
  __shared__ __align__(16) unsigned char kept[kInstructionsKept + 1][sizeof(Instruction)];  // the last is the feeder's
  __shared__ __align__(16) unsigned char pass_at[kPassKept];
  const auto instruction = [&](int i) -> Instruction& {
    return *reinterpret_cast<Instruction*>(kept[i & (kInstructionsKept - 1)]);
  };
  if (at<const Pass>(work.pass)->stopped != 0) return;
  if (warp() == kWarps) {
    Slots(work.feed).make();
    __syncthreads();
    return feed_list(work, 1, 1, *reinterpret_cast<Instruction*>(kept[kInstructionsKept]));
  }
  const Pass& pass = *reinterpret_cast<const Pass*>(pass_at);
  Meeting meeting(work.barrier);
  copy_pass(work.pass, pass_at);
  for (int i = 0; i < min(work.count, kInstructionsKept); ++i) bring(work.list, i, instruction(i));
  copies_wait<0>();
  __syncthreads();
  Bench bench = {shared, meeting.launch()};
  uint32_t piece = 0;
  bool waits = false;  // the instruction before ended with an arrival
  for (int i = 0; i < work.count; ++i) {
    // It takes the place of one that nobody reads any more: behind it all have met.
    const int next = i + kInstructionsKept - 2;
    if (i > 1 && next < work.count) bring(work.list, next, instruction(next));
    const Instruction& in = instruction(i);
    is_shared(&in);
    bench.shared = shared + (i & 1) * half_of(work.feed);
    const auto wait = [&] {
      if (waits) meeting.wait();
    };
    uint32_t done = 0;
    bool exchanged = true;  // what it wrote, if not words
    if (in.what == Do::kMultiply) {
      if (kCodes && in.product.form == Form::kCodes) {
        done = do_plain_multiply<true>(in, bench, work.feed, piece, wait);
      } else {
        done = do_plain_multiply<false>(in, bench, work.feed, piece, wait);
      }
      piece += Share(in.product, 1).of_tile();
    } else if (in.what == Do::kConvDelta) {
      done = conv_delta_of_row(in, pass, bench.shared, bench.launch, waits, meeting);
    } else {
      wait();
      // Nobody waits for nothing.
      if (in.what == Do::kAttendJoin && !has_parts(in, pass)) {
        if (work.times != 0 && blockIdx.x == 0 && threadIdx.x == 0) at<uint64_t>(work.times)[i] = card_time();
        meet();
        waits = false;
        continue;
      }
      run_other<true>(in, pass, work.pass, shared);
      exchanged = false;
    }
    if (work.times != 0 && blockIdx.x == 0 && threadIdx.x == 0) at<uint64_t>(work.times)[i] = card_time();
    copies_wait<0>();
    waits = (in.worded & kWordsOut) == 0;
    if (!waits || i + 1 == work.count) continue;
    if (exchanged) {
      meeting.arrive_when(done);
    } else {
      meeting.arrive();
    }
    fetch_needed(instruction(i + 1), pass);
  }
  meeting.leave();
}

}  // namespace baton::cuda

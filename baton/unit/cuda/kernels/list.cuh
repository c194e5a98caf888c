// What kernels that run a list of instructions in one launch are made of: all blocks do their part of one, meet, and go
// on to the next.
#pragma once

#include <cstddef>

#include "baton/unit/cuda/kernels/attention.cuh"
#include "baton/unit/cuda/kernels/conv.cuh"
#include "baton/unit/cuda/kernels/delta.cuh"
#include "baton/unit/cuda/kernels/draws.cuh"
#include "baton/unit/cuda/kernels/experts.cuh"
#include "baton/unit/cuda/kernels/feed.cuh"
#include "baton/unit/cuda/kernels/heads.cuh"
#include "baton/unit/cuda/kernels/prepare.cuh"

namespace baton::cuda {
// Counts arrivals; the last of a launch sets it back, as nobody waits for that one. The first thread's members alone
// change: one may lie in shared memory.
class Meeting {
 public:
  __device__ explicit Meeting(Address at) : count_(cuda::at<uint32_t>(at)) {}

  // What every block wrote before it arrived is seen by every block that has waited.
  __device__ void arrive() {
    meet();
    if (threadIdx.x != 0) return;
    target_ += gridDim.x;
    add_released(count_, 1);
  }
  // The same of what was written by exchanges, whose old values are in `done`: a release would wait for all weights
  // that are on their way, too. That they are read here is what makes threads wait for them.
  __device__ void arrive_when(uint32_t done) {
    meet_or(done == 0xffedcba9u ? 1 : 0);
    if (threadIdx.x != 0) return;
    target_ += gridDim.x;
    add_relaxed(count_, 1);
  }
  __device__ void wait() const {
    if (threadIdx.x == 0) {
      while (load_acquired(count_) < target_) {
      }
    }
    meet();
  }
  // `with_words`: it had words.
  __device__ void leave(bool with_words = false) {
    meet();
    if (threadIdx.x != 0) return;
    __threadfence();
    if (atomicAdd(count_, 1) != target_ + gridDim.x - 1) return;
    count_[0] = 0;
    ++count_[1];
    if (with_words) ++count_[2];
  }
  // Launches with words before this one.
  __device__ uint32_t with_words() const { return count_[2]; }

 private:
  uint32_t* count_;
  uint32_t target_ = 0;
};

// All threads of a block: behind it what other blocks wrote before they arrived is seen; or, with null, what its own
// did.
__device__ __forceinline__ void wait_for_blocks(const Meeting* meeting) {
  if (meeting == nullptr) return meet();
  is_shared(meeting);
  meeting->wait();
}

namespace {

// A pass of few runs is read from there: kernels ask for it everywhere.
constexpr int kRunsKept = 8;
constexpr uint32_t kPassKept = offsetof(Pass, run) + kRunsKept * sizeof(Run);
static_assert((kInstructionsKept + 1) * sizeof(Instruction) + kPassKept <= kKeptBytes);
__device__ inline void copy_pass(Address pass, unsigned char* to) {
  static_assert(kPassKept % 8 == 0 && kPassKept / 8 <= kThreads);
  if (threadIdx.x < kPassKept / 8) reinterpret_cast<uint64_t*>(to)[threadIdx.x] = at<const uint64_t>(pass)[threadIdx.x];
}

// An instruction of the list, as a group of copies.
__device__ __forceinline__ void bring(Address list, int index, Instruction& to) {
  static_assert(sizeof(Instruction) % 16 == 0 && sizeof(Instruction) / 16 <= kThreads);
  if (threadIdx.x < sizeof(Instruction) / 16)
    copy_ahead(shared_address(&to) + threadIdx.x * 16,
               at<const uint4>(list + sizeof(Instruction) * index) + threadIdx.x);
  copies_end_group();
}

// What the next instruction needs at once, to the second level of cache.
__device__ inline void fetch_needed(const Instruction& in, const Pass& pass) {
  if (in.what == Do::kConvDelta)
    return fetch_state(in, pass, static_cast<int>(blockIdx.x),
                       column_groups(in.op, pass.runs, static_cast<int>(gridDim.x)));
  if (in.what != Do::kMultiply || in.vectors[0] == 0) return;
  const int width = in.prologue == Prologue::kGated ? in.op.width : in.x_width;
  const int i = static_cast<int>(threadIdx.x) * 32;
  if (i < width) fetch_line(at<const float>(in.vectors[0]) + i);
}

// All other kinds, or those of them that is_usual says yes to: apart, so that those which a step has most of share
// registers with none.
template <bool kUsual>
__device__ __noinline__ void run_other(const Instruction& instruction, const Pass& pass, Address pass_address,
                                       unsigned char* shared) {
  const uint32_t block = blockIdx.x, blocks = gridDim.x;
  switch (instruction.what) {
#define BATON_CASE(kind, function)                                                                          \
  case Do::kind:                                                                                            \
    if constexpr (!kUsual || is_usual(Do::kind)) return function(instruction, pass, block, blocks, shared); \
    return;
    BATON_CASE(kEmbed, do_embed)
    BATON_CASE(kPrepare, do_prepare)
    BATON_CASE(kSplitPairs, do_split_pairs)
    BATON_CASE(kRope, do_rope)
    BATON_CASE(kHeads, do_heads)
    BATON_CASE(kAppend, do_append)
    BATON_CASE(kAttend, do_attend<!kUsual>)
    BATON_CASE(kAttendJoin, do_attend_join)
    BATON_CASE(kShortConv, do_short_conv)
    BATON_CASE(kEach, do_each)
    BATON_CASE(kRoute, do_route)
    BATON_CASE(kExpertsIn, do_experts_in)
    BATON_CASE(kExpertsOut, do_experts_out)
    BATON_CASE(kPick, do_pick)
    BATON_CASE(kCap, do_cap)
    BATON_CASE(kPenalise, do_penalise)
    BATON_CASE(kArgmax, do_argmax)
    BATON_CASE(kDraw, do_draw)
#undef BATON_CASE
    case Do::kAdvance:
      return do_advance(pass_address, block);
    default:  // what lists do not hold: lowering.cc
      return;
  }
}

}  // namespace
}  // namespace baton::cuda

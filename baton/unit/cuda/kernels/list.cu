// The kernel that runs a list of instructions in one launch: all blocks do their part of one, meet, and go on to the
// next. Weights of what follows are on their way all the time (feed.cuh).
#include "baton/unit/cuda/kernels/attention.cuh"
#include "baton/unit/cuda/kernels/conv.cuh"
#include "baton/unit/cuda/kernels/delta.cuh"
#include "baton/unit/cuda/kernels/draws.cuh"
#include "baton/unit/cuda/kernels/experts.cuh"
#include "baton/unit/cuda/kernels/heads.cuh"
#include "baton/unit/cuda/kernels/products.cuh"
#include "baton/unit/cuda/kernels/rows.cuh"

namespace baton::cuda {
namespace {

// Counts arrivals; the last of a launch sets it back, as nobody waits for that one.
class Meeting {
 public:
  __device__ explicit Meeting(Address at) : count_(cuda::at<uint32_t>(at)) {}

  // What every block wrote before it arrived is seen by every block that has waited.
  __device__ void arrive() {
    __syncthreads();
    target_ += gridDim.x;
    if (threadIdx.x == 0) add_released(count_, 1);
  }
  __device__ void wait() {
    if (threadIdx.x == 0) {
      while (load_acquired(count_) < target_) {
      }
    }
    __syncthreads();
  }
  __device__ void leave() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    if (atomicAdd(count_, 1) == target_ + gridDim.x - 1) *count_ = 0;
  }

 private:
  uint32_t* const count_;
  uint32_t target_ = 0;
};

// A word of an instruction for each thread: asked for early, put down late.
constexpr uint32_t kWords = sizeof(Instruction) / 8;
static_assert(sizeof(Instruction) % 8 == 0 && kWords <= kThreads);
static_assert(kInstructionsKept * sizeof(Instruction) + sizeof(Feed) <= kKeptBytes);
__device__ uint64_t word_of(Address list, int index) {
  return threadIdx.x < kWords ? at<const uint64_t>(list)[static_cast<size_t>(index) * kWords + threadIdx.x] : 0;
}
__device__ void put_word(uint64_t word, Instruction& to) {
  if (threadIdx.x < kWords) reinterpret_cast<uint64_t*>(&to)[threadIdx.x] = word;
}

// What the next instruction needs at once, to the second level of cache.
__device__ void fetch_needed(const Instruction& in, const Pass& pass) {
  if (in.what == Do::kConvDelta)
    return fetch_state(in, pass, static_cast<int>(blockIdx.x),
                       column_groups(in.op, pass.runs, static_cast<int>(gridDim.x)));
  if (in.what != Do::kMultiply || in.vectors[0] == 0) return;
  const int width = in.prologue == Prologue::kGated ? in.op.width : in.x_width;
  const int i = static_cast<int>(threadIdx.x) * 32;
  if (i < width) fetch_line(at<const float>(in.vectors[0]) + i);
}

// All other kinds: apart, so that those which a step has most of share registers with none.
__device__ __noinline__ void run_other(const Instruction& instruction, Address pass_address, unsigned char* shared) {
  const Pass& pass = *at<Pass>(pass_address);
  const uint32_t block = blockIdx.x, blocks = gridDim.x;
  switch (instruction.what) {
#define BATON_CASE(kind, function) \
  case Do::kind:                   \
    return function(instruction, pass, block, blocks, shared);
    BATON_CASE(kEmbed, do_embed)
    BATON_CASE(kPrepare, do_prepare)
    BATON_CASE(kSplitPairs, do_split_pairs)
    BATON_CASE(kRope, do_rope)
    BATON_CASE(kHeads, do_heads)
    BATON_CASE(kAppend, do_append)
    BATON_CASE(kAttend, do_attend)
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

extern "C" __global__ void __launch_bounds__(kThreads, 1) baton_list(const __grid_constant__ ListWork work) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ __align__(16) unsigned char kept[kInstructionsKept][sizeof(Instruction)];
  __shared__ __align__(16) unsigned char feed_at[sizeof(Feed)];
  Feed& feed = *reinterpret_cast<Feed*>(feed_at);
  const auto instruction = [&](int i) -> Instruction& {
    return *reinterpret_cast<Instruction*>(kept[i & (kInstructionsKept - 1)]);
  };
  const Pass& pass = *at<const Pass>(work.pass);
  if (pass.stopped != 0) return;
  Meeting meeting(work.barrier);
  for (int i = 0; i < min(work.count, kInstructionsKept); ++i) put_word(word_of(work.list, i), instruction(i));
  feed.begin(work.feed, pass, &instruction(0));
  __syncthreads();
  if (work.feed.ahead) fill(feed, min(work.count, kInstructionsKept));
  for (int i = 0; i < work.count; ++i) {
    // It takes the place of the one before, which nobody reads any more.
    const int next = i + kInstructionsKept - 1;
    const bool comes = i > 0 && next < work.count;
    const uint64_t word = comes ? word_of(work.list, next) : 0;
    if (instruction(i).what == Do::kMultiply) {
      do_multiply(instruction(i), i, blockIdx.x, gridDim.x, shared, feed);
    } else if (instruction(i).what == Do::kConvDelta) {
      do_conv_delta(instruction(i), pass, blockIdx.x, gridDim.x, shared);
    } else {
      run_other(instruction(i), work.pass, shared);
    }
    if (work.times != 0 && blockIdx.x == 0 && threadIdx.x == 0) at<uint64_t>(work.times)[i] = card_time();
    if (comes) put_word(word, instruction(next));
    if (i + 1 == work.count) break;
    meeting.arrive();
    if (work.feed.ahead) fill(feed, min(work.count, i + kInstructionsKept));
    fetch_needed(instruction(i + 1), pass);
    meeting.wait();
  }
  meeting.leave();
}

// One of them alone: it shares its code with the list's.
extern "C" __global__ void __launch_bounds__(kThreads, 1) baton_multiply(const __grid_constant__ Work work) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ __align__(16) unsigned char feed_at[sizeof(Feed)];
  Feed& feed = *reinterpret_cast<Feed*>(feed_at);
  const Pass& pass = *at<const Pass>(work.pass);
  feed.begin(work.feed, pass, &work.instruction);
  __syncthreads();
  if (work.feed.ahead) fill(feed, 1);
  do_multiply(work.instruction, 0, blockIdx.x, gridDim.x, shared, feed);
}

}  // namespace baton::cuda

// The kernel that runs a list of instructions in one launch: all blocks do their part of one, meet, and go on to the
// next. Weights of what follows are on their way all the time (feed.cuh).
#include "baton/unit/cuda/kernels/attention.cuh"
#include "baton/unit/cuda/kernels/conv.cuh"
#include "baton/unit/cuda/kernels/delta.cuh"
#include "baton/unit/cuda/kernels/draws.cuh"
#include "baton/unit/cuda/kernels/experts.cuh"
#include "baton/unit/cuda/kernels/heads.cuh"
#include "baton/unit/cuda/kernels/plain_products.cuh"
#include "baton/unit/cuda/kernels/rows.cuh"

#include <cstddef>

namespace baton::cuda {
namespace {

// Counts arrivals; the last of a launch sets it back, as nobody waits for that one.
class Meeting {
 public:
  __device__ explicit Meeting(Address at) : count_(cuda::at<uint32_t>(at)) {}

  // What every block wrote before it arrived is seen by every block that has waited.
  __device__ void arrive() {
    meet();
    target_ += gridDim.x;
    if (threadIdx.x == 0) add_released(count_, 1);
  }
  // The same of what was written by exchanges, whose old values are in `done`: a release would wait for all weights
  // that are on their way, too. That they are read here is what makes threads wait for them.
  __device__ void arrive_when(uint32_t done) {
    meet_or(done == 0xffedcba9u ? 1 : 0);
    target_ += gridDim.x;
    if (threadIdx.x == 0) add_relaxed(count_, 1);
  }
  __device__ void wait() {
    if (threadIdx.x == 0) {
      while (load_acquired(count_) < target_) {
      }
    }
    meet();
  }
  __device__ void leave() {
    meet();
    if (threadIdx.x != 0) return;
    __threadfence();
    if (atomicAdd(count_, 1) == target_ + gridDim.x - 1) *count_ = 0;
  }

 private:
  uint32_t* const count_;
  uint32_t target_ = 0;
};

// A pass of few runs is read from there: kernels ask for it everywhere.
constexpr int kRunsKept = 8;
constexpr uint32_t kPassKept = offsetof(Pass, run) + kRunsKept * sizeof(Run);
static_assert((kInstructionsKept + 1) * sizeof(Instruction) + kPassKept <= kKeptBytes);
__device__ void copy_pass(Address pass, unsigned char* to) {
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
__device__ __noinline__ void run_other(const Instruction& instruction, const Pass& pass, Address pass_address,
                                       unsigned char* shared) {
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

// Of any list, or of one row of x where is_plain says yes to all instructions: with matrices of 16-bit values, or of
// codes, too.
enum class Lists : uint8_t { kAny, kPlainValues, kPlainCodes };

template <Lists kLists>
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
  for (int i = 0; i < min(work.count, kInstructionsKept); ++i) bring(work.list, i, instruction(i));
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
    const bool product = in.what == Do::kMultiply;
    uint32_t done = 0;
    if (product) {
      if constexpr (kLists != Lists::kAny) {
        if (kLists == Lists::kPlainCodes && in.product.form == Form::kCodes) {
          done = do_plain_multiply<true>(in, shared, work.feed, piece);
        } else {
          done = do_plain_multiply<false>(in, shared, work.feed, piece);
        }
        piece += Share(in.product, 1).of_tile();
      } else {
        const Share share(in.product, rows::count_of(in, pass));
        done = do_multiply(in, share, shared, work.feed, piece);
        piece += share.of_all();
      }
    } else if (in.what == Do::kConvDelta) {
      if constexpr (kLists != Lists::kAny) {
        do_plain_conv_delta(in, pass, blockIdx.x, gridDim.x, shared);
      } else {
        do_conv_delta(in, pass, blockIdx.x, gridDim.x, shared);
      }
    } else {
      run_other(in, pass, work.pass, shared);
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
  meeting.leave();
}

extern "C" __global__ void __launch_bounds__(kThreads + kFeederThreads, 1)
    baton_list(const __grid_constant__ ListWork work) {
  run_list<Lists::kAny>(work);
}
extern "C" __global__ void __launch_bounds__(kThreads + kFeederThreads, 1)
    baton_list_plain(const __grid_constant__ ListWork work) {
  run_list<Lists::kPlainValues>(work);
}
extern "C" __global__ void __launch_bounds__(kThreads + kFeederThreads, 1)
    baton_list_plain_codes(const __grid_constant__ ListWork work) {
  run_list<Lists::kPlainCodes>(work);
}

// One of them alone: it shares its code with the list's.
extern "C" __global__ void __launch_bounds__(kThreads + kFeederThreads, 1)
    baton_multiply(const __grid_constant__ Work work) {
  unsigned char* const shared = block_shared();
  __shared__ __align__(16) unsigned char kept[sizeof(Instruction)];
  Instruction& in = *reinterpret_cast<Instruction*>(kept);
  if (warp() == kWarps) Slots(work.feed).make();
  if (threadIdx.x < kWords)
    put_word(reinterpret_cast<const uint64_t*>(&work.instruction)[threadIdx.x], threadIdx.x, in);
  __syncthreads();
  const Share share(in.product, rows::count_of(in, *at<const Pass>(work.pass)));
  if (warp() < kWarps) {
    do_multiply(in, share, shared, work.feed, 0);
    return;
  }
  begin_product(work.feed);
  feed_product(in, share, work.feed, Slots(work.feed), 0, passes_by());
}

}  // namespace baton::cuda

// The kernel that runs a list of instructions in one launch: all blocks do their part of one, meet, and go on to the
// next. While they do one, the weights of the next are on their way to the second level of cache.
#include "baton/unit/cuda/kernels/attention.cuh"
#include "baton/unit/cuda/kernels/conv.cuh"
#include "baton/unit/cuda/kernels/delta.cuh"
#include "baton/unit/cuda/kernels/draws.cuh"
#include "baton/unit/cuda/kernels/experts.cuh"
#include "baton/unit/cuda/kernels/heads.cuh"
#include "baton/unit/cuda/kernels/products.cuh"
#include "baton/unit/cuda/kernels/ptx.cuh"
#include "baton/unit/cuda/kernels/rows.cuh"

namespace baton::cuda {
namespace {

constexpr uint32_t kAheadBytes = 128 * 1024;  // of a block: all of them fill a third of the cache

// Counts arrivals; the last of a launch sets it back, as nobody waits for that one.
class Meeting {
 public:
  __device__ explicit Meeting(Address at) : count_(cuda::at<uint32_t>(at)) {}

  // What every block wrote before is seen by every block behind it.
  __device__ void meet() {
    __syncthreads();
    target_ += gridDim.x;
    if (threadIdx.x == 0) {
      add_released(count_, 1);
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
__device__ uint64_t word_of(Address list, int index) {
  return threadIdx.x < kWords ? at<const uint64_t>(list)[static_cast<size_t>(index) * kWords + threadIdx.x] : 0;
}
__device__ void put_word(uint64_t word, Instruction& to) {
  if (threadIdx.x < kWords) reinterpret_cast<uint64_t*>(&to)[threadIdx.x] = word;
}

__device__ void fetch_ahead(const uint8_t* from, uint64_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr uint64_t kPiece = 16 * 1024;
  for (uint64_t i = lane() * kPiece; i < bytes; i += 32 * kPiece)
    fetch_piece(from + i, static_cast<uint32_t>(min(kPiece, bytes - i) & ~uint64_t{15}));
#else
  for (uint64_t i = lane() * 128; i < bytes; i += 32 * 128) fetch_line(from + i);
#endif
}

// The block's part of the weights of a product; one warp asks for them.
__device__ void fetch_weights(const Instruction& instruction) {
  if (instruction.what != Do::kMultiply || warp() != kThreads / 32 - 1) return;
  const Outputs outputs(instruction);
  const int begin = outputs.begin_of(blockIdx.x, gridDim.x), end = outputs.begin_of(blockIdx.x + 1, gridDim.x);
  int offset = 0;
  for (int i = 0; i < instruction.matrices; ++i) {
    const Matrix& matrix = instruction.matrix[i];
    const int first = max(0, begin - offset), last = min(matrix.rows, end - offset);
    if (first < last) {
      const uint64_t bytes = static_cast<uint64_t>(last - first) * static_cast<uint64_t>(matrix.row_bytes);
      fetch_ahead(at<uint8_t>(matrix.values) + int64_t{first} * matrix.row_bytes, min(bytes, uint64_t{kAheadBytes}));
    }
    if (!outputs.pairs) offset += matrix.rows;
  }
}

__device__ void run(const Instruction& instruction, Address pass_address, unsigned char* shared) {
  const Pass& pass = *at<Pass>(pass_address);
  const uint32_t block = blockIdx.x, blocks = gridDim.x;
  switch (instruction.what) {
    case Do::kMultiply:
      return do_multiply(instruction, pass, block, blocks, shared);
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
      BATON_CASE(kConvDelta, do_conv_delta)
      BATON_CASE(kShortConv, do_short_conv)
      BATON_CASE(kEach, do_each)
      BATON_CASE(kRoute, do_route)
      BATON_CASE(kExpertsIn, do_experts_in)
      BATON_CASE(kExpertsOut, do_experts_out)
      BATON_CASE(kPick, do_pick)
      BATON_CASE(kCap, do_cap)
      BATON_CASE(kArgmax, do_argmax)
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
  // The one at work, the next, and the one behind it, which comes while others may still read the one before.
  __shared__ __align__(16) unsigned char kept[3][sizeof(Instruction)];
  const auto instruction = [&](int i) -> Instruction& { return *reinterpret_cast<Instruction*>(kept[i % 3]); };
  if (at<Pass>(work.pass)->stopped != 0) return;
  Meeting meeting(work.barrier);
  put_word(word_of(work.list, 0), instruction(0));
  if (work.count > 1) put_word(word_of(work.list, 1), instruction(1));
  __syncthreads();
  for (int i = 0; i < work.count; ++i) {
    const uint64_t word = i + 2 < work.count ? word_of(work.list, i + 2) : 0;
    if (i + 1 < work.count) fetch_weights(instruction(i + 1));
    run(instruction(i), work.pass, shared);
    if (work.times != 0 && blockIdx.x == 0 && threadIdx.x == 0) at<uint64_t>(work.times)[i] = card_time();
    if (i + 2 < work.count) put_word(word, instruction(i + 2));
    if (i + 1 < work.count) meeting.meet();
  }
  meeting.leave();
}

// One of them alone: it shares its code with the list's.
extern "C" __global__ void __launch_bounds__(kThreads, 1) baton_multiply(const __grid_constant__ Work work) {
  extern __shared__ __align__(128) unsigned char shared[];
  do_multiply(work.instruction, *at<const Pass>(work.pass), blockIdx.x, gridDim.x, shared);
}

}  // namespace baton::cuda

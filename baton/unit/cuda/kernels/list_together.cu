// The kernel that runs a list of instructions in one launch for many rows: products on tensor cores. Before blocks wait
// for others they fetch the weights of the product that comes next to the second level of cache, and find out what
// their part of it is.
#include "baton/unit/cuda/kernels/delta_many.cuh"
#include "baton/unit/cuda/kernels/list.cuh"
#include "baton/unit/cuda/kernels/products_mma.cuh"

namespace baton::cuda {
namespace {

constexpr int kFetchAhead = 5;  // instructions, of which the first product's weights are fetched
static_assert(kFetchAhead < kInstructionsKept);

// What a block has of a launch: in shared memory, so that nothing but the number of an instruction lives in the kernel
// while it calls a function, which would have to put as many registers away for each of its threads.
struct TogetherKept {
  unsigned char instructions[kInstructionsKept][sizeof(Instruction)];
  unsigned char pass_at[sizeof(Pass)];
  Meeting meeting;
  int fetched;  // the last product whose weights were fetched

  __device__ __forceinline__ Instruction& in(int i) {
    return *reinterpret_cast<Instruction*>(instructions[i & (kInstructionsKept - 1)]);
  }
  __device__ __forceinline__ const Pass& pass() const { return *reinterpret_cast<const Pass*>(pass_at); }
  __device__ __forceinline__ int rows(int i) { return rows::count_of(in(i), pass()); }
};
static_assert(sizeof(TogetherKept) + sizeof(SpanBarriers) <= kMmaKeptBytes && sizeof(Instruction) % 16 == 0 &&
              sizeof(Pass) % 8 == 0 && sizeof(Pass) / 8 <= kThreads);

// Apart, so that the products have all registers.
__device__ __noinline__ void conv_delta_of_any(const Instruction& in, const Pass& pass, unsigned char* shared) {
  is_shared(&in);
  do_conv_delta(in, pass, blockIdx.x, gridDim.x, shared);
}

__device__ __noinline__ void other_of_many(TogetherKept& kept, int i, Address pass, unsigned char* shared) {
  is_shared(&kept);
  const Instruction& in = kept.in(i);
  if (in.what == Do::kPrepare && in.to_planes) return prepare_planes(in, kept.rows(i));
  run_other<false>(in, kept.pass(), pass, shared);
}

// Behind instruction i, which is not the last: the block has done its part. Whoever needs what others did waits.
__device__ __noinline__ void arrive_behind(TogetherKept& kept, int i, Address list, int count) {
  is_shared(&kept);
  const int fetched = kept.fetched;  // before threads meet, as one writes it behind that
  copies_wait<0>();
  kept.meeting.arrive();
  if (i + kInstructionsKept < count) {
    bring(list, i + kInstructionsKept, kept.in(i + kInstructionsKept));
    copies_end_group();
  }
  fetch_needed(kept.in(i + 1), kept.pass());
  if (fetched > i) return;
  int ahead = i + 1;
  while (ahead < min(i + kFetchAhead, count) && kept.in(ahead).what != Do::kMultiply) ++ahead;
  if (ahead == min(i + kFetchAhead, count)) return;
  fetch_units(kept.in(ahead), kept.rows(ahead));
  if (threadIdx.x == 0) kept.fetched = ahead;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1) baton_list_together(const __grid_constant__ ListWork work) {
  __shared__ __align__(16) unsigned char kept_at[sizeof(TogetherKept)];
  TogetherKept& kept = *reinterpret_cast<TogetherKept*>(kept_at);
  is_shared(&kept);
  if (at<const Pass>(work.pass)->stopped != 0) return;
  if (threadIdx.x < sizeof(Pass) / 8)
    reinterpret_cast<uint64_t*>(kept.pass_at)[threadIdx.x] = at<const uint64_t>(work.pass)[threadIdx.x];
  if (threadIdx.x == 0) {
    kept.meeting = Meeting(work.barrier), kept.fetched = -1;
    span_barriers().make();
  }
  for (int i = 0; i < min(work.count, kInstructionsKept); ++i) bring(work.list, i, kept.in(i));
  copies_wait<0>();
  __syncthreads();
#pragma unroll 1
  for (int i = 0;;) {
    const Meeting* const before = i > 0 ? &kept.meeting : nullptr;
    if (kept.in(i).what == Do::kMultiply) {
#pragma unroll 1
      for (int row = 0; row < kept.rows(i);)
        row = multiply_mma(kept.in(i), row, kept.rows(i), row == 0 ? before : nullptr);
    } else if (kept.in(i).what == Do::kConvDelta && is_plain_delta(kept.in(i).op) &&
               dynamic_shared_bytes() >= kDeltaManyShared) {
      do_conv_delta_of_many(kept.in(i), kept.pass(), block_shared(), before);
    } else {
      wait_for_blocks(before);
      if (kept.in(i).what == Do::kConvDelta) {
        conv_delta_of_any(kept.in(i), kept.pass(), block_shared());
      } else {
        other_of_many(kept, i, work.pass, block_shared());
      }
    }
    if (work.times != 0 && blockIdx.x == 0 && threadIdx.x == 0) at<uint64_t>(work.times)[i] = card_time();
    if (i + 1 == work.count) break;
    arrive_behind(kept, i, work.list, work.count);
    ++i;
  }
  kept.meeting.leave();
}

}  // namespace baton::cuda

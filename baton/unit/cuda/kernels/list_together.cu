// The kernel that runs a list of instructions in one launch for many rows: products on tensor cores. Nobody brings
// weights ahead, but while blocks wait for others they ask the second level of cache for those that come next.
#include "baton/unit/cuda/kernels/list.cuh"
#include "baton/unit/cuda/kernels/products_mma.cuh"

namespace baton::cuda {
namespace {

constexpr int kFetchAhead = 4;  // instructions, of which the first product's weights are asked for
static_assert(kFetchAhead < kInstructionsKept);

// Apart, so that the products have all registers.
__device__ __noinline__ void conv_delta_of_many(const Instruction& in, const Pass& pass, unsigned char* shared) {
  if (is_plain_delta(in.op)) {
    do_plain_conv_delta(in, pass, blockIdx.x, gridDim.x, shared);
  } else {
    do_conv_delta(in, pass, blockIdx.x, gridDim.x, shared);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1) baton_list_together(const __grid_constant__ ListWork work) {
  unsigned char* const shared = block_shared();
  __shared__ __align__(16) unsigned char kept[kInstructionsKept][sizeof(Instruction)];
  const auto instruction = [&](int i) -> Instruction& {
    return *reinterpret_cast<Instruction*>(kept[i & (kInstructionsKept - 1)]);
  };
  const Pass& pass = *at<const Pass>(work.pass);
  if (pass.stopped != 0) return;
  Meeting meeting(work.barrier);
  for (int i = 0; i < min(work.count, kInstructionsKept); ++i) bring(work.list, i, instruction(i));
  copies_wait<0>();
  __syncthreads();
  int fetched = 0;  // the last product whose weights were asked for
  for (int i = 0; i < work.count; ++i) {
    const int next = i + kInstructionsKept - 1;
    if (i > 0 && next < work.count) bring(work.list, next, instruction(next));
    const Instruction& in = instruction(i);
    is_shared(&in);
    if (in.what == Do::kMultiply) {
      multiply_mma(in, rows::count_of(in, pass), blockIdx.x, gridDim.x, dynamic_shared_bytes());
    } else if (in.what == Do::kConvDelta) {
      conv_delta_of_many(in, pass, shared);
    } else {
      run_other(in, pass, work.pass, shared);
    }
    if (work.times != 0 && blockIdx.x == 0 && threadIdx.x == 0) at<uint64_t>(work.times)[i] = card_time();
    copies_wait<0>();
    if (i + 1 == work.count) break;
    meeting.arrive();
    fetch_needed(instruction(i + 1), pass);
    for (int ahead = i + 1; ahead < min(i + kFetchAhead, work.count); ++ahead) {
      const Instruction& then = instruction(ahead);
      if (then.what != Do::kMultiply) continue;
      if (ahead > fetched) fetch_units(then, rows::count_of(then, pass), blockIdx.x, gridDim.x);
      fetched = ahead;
      break;
    }
    meeting.wait();
  }
  meeting.leave();
}

}  // namespace baton::cuda

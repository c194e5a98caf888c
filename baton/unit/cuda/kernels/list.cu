// The kernel that runs any list of instructions in one launch.
#include "baton/unit/cuda/kernels/run_list.cuh"

namespace baton::cuda {

extern "C" __global__ void __launch_bounds__(kThreads + kFeederThreads, 1)
    baton_list(const __grid_constant__ ListWork work) {
  run_list<Lists::kAny>(work);
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

// The kernels of one instruction with the default geometry: kThreads a block, kSharedBytes, any number of blocks.
#include "baton/unit/cuda/kernels/draws.cuh"
#include "baton/unit/cuda/kernels/experts.cuh"
#include "baton/unit/cuda/kernels/heads.cuh"
#include "baton/unit/cuda/kernels/prepare.cuh"

namespace baton::cuda {

#define BATON_ENTRY(word, ...)                                                              \
  extern "C" __global__ void __launch_bounds__(kThreads __VA_OPT__(, ) __VA_ARGS__)         \
      baton_##word(const __grid_constant__ Work work) {                                     \
    extern __shared__ __align__(128) unsigned char shared[];                                \
    begin_behind();                                                                         \
    do_##word(work.instruction, *at<const Pass>(work.pass), blockIdx.x, gridDim.x, shared); \
  }

BATON_ENTRY(embed)
BATON_ENTRY(prepare)
BATON_ENTRY(prepare_rows, 2)
BATON_ENTRY(prepare_gated, 2)
BATON_ENTRY(split_pairs)
BATON_ENTRY(rope)
BATON_ENTRY(heads, 2)
BATON_ENTRY(append)
BATON_ENTRY(each)
BATON_ENTRY(route)
BATON_ENTRY(experts_in)
BATON_ENTRY(experts_out)
BATON_ENTRY(pick)
BATON_ENTRY(cap)
BATON_ENTRY(penalise)
BATON_ENTRY(argmax)
BATON_ENTRY(draw)

extern "C" __global__ void __launch_bounds__(kThreads) baton_advance(const __grid_constant__ Work work) {
  begin_behind();
  do_advance(work.pass, blockIdx.x);
}

}  // namespace baton::cuda

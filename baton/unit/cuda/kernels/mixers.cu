// The kernels of one instruction of attention, convolution or the delta rule, with the geometry of mixers_geometry.cc.
#include "baton/unit/cuda/kernels/attention.cuh"
#include "baton/unit/cuda/kernels/attention_rows.cuh"
#include "baton/unit/cuda/kernels/conv.cuh"
#include "baton/unit/cuda/kernels/delta.cuh"

namespace baton::cuda {

#define BATON_ENTRY(word, function)                                                                           \
  extern "C" __global__ void __launch_bounds__(kThreads, 1) baton_##word(const __grid_constant__ Work work) { \
    extern __shared__ __align__(128) unsigned char shared[];                                                  \
    begin_behind();                                                                                           \
    function(work.instruction, *at<const Pass>(work.pass), blockIdx.x, gridDim.x, shared);                    \
  }

BATON_ENTRY(attend, do_attend<true>)
BATON_ENTRY(attend_join, do_attend_join)
BATON_ENTRY(attend_tile, do_attend_tile)
BATON_ENTRY(attend_all, do_attend_all)
BATON_ENTRY(conv, do_conv)
BATON_ENTRY(delta, do_delta)
BATON_ENTRY(conv_delta, do_conv_delta)
BATON_ENTRY(short_conv, do_short_conv)

#undef BATON_ENTRY

}  // namespace baton::cuda

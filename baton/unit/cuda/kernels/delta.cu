// Kernels of the gated delta rule of prompts.
#include "baton/unit/cuda/kernels/delta_chunk.cuh"

namespace baton::cuda {

extern "C" __global__ void __launch_bounds__(kDeltaPrepareThreads, 2)
    baton_delta_prepare(const __grid_constant__ Work work) {
  extern __shared__ __align__(128) unsigned char shared[];
  begin_behind();
  delta_prepare_block(work, shared);
}

extern "C" __global__ void __launch_bounds__(kDeltaChunksThreads, 1)
    baton_delta_chunks(const __grid_constant__ Work work) {
  extern __shared__ __align__(128) unsigned char shared[];
  begin_behind();
  delta_chunks_block(work, shared);
}

}  // namespace baton::cuda

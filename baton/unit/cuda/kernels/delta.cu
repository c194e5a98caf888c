// Kernels of the gated delta rule of prompts.
#include "baton/unit/cuda/kernels/delta_chunk.cuh"

namespace baton::cuda {

extern "C" __global__ void __launch_bounds__(kDeltaPrepareThreads, 2)
    baton_delta_prepare(const __grid_constant__ Work work) {
  extern __shared__ __align__(128) unsigned char shared[];
  begin_behind();
  delta_prepare_block(work, shared);
}

#define BATON_DELTA_CHUNKS(columns)                                     \
  extern "C" __global__ void __launch_bounds__(kDeltaChunksThreads, 1)  \
      baton_delta_chunks_##columns(const __grid_constant__ Work work) { \
    extern __shared__ __align__(128) unsigned char shared[];            \
    begin_behind();                                                     \
    delta_chunks_block<columns>(work, shared);                          \
  }

BATON_DELTA_CHUNKS(32)
BATON_DELTA_CHUNKS(16)

#undef BATON_DELTA_CHUNKS

}  // namespace baton::cuda

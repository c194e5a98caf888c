// Kernels of the gated delta rule of prompts.
#include "baton/unit/cuda/kernels/delta_chunk.cuh"

namespace baton::cuda {

#define BATON_DELTA_PREPARE(name, convolves)                                                                      \
  extern "C" __global__ void __launch_bounds__(kDeltaPrepareThreads, 2) name(const __grid_constant__ Work work) { \
    extern __shared__ __align__(128) unsigned char shared[];                                                      \
    begin_behind();                                                                                               \
    delta_prepare_block<convolves>(work, shared);                                                                 \
  }

BATON_DELTA_PREPARE(baton_delta_prepare, false)
BATON_DELTA_PREPARE(baton_conv_delta_prepare, true)

#define BATON_DELTA_CHUNKS(columns)                                     \
  extern "C" __global__ void __launch_bounds__(kDeltaChunksThreads, 1)  \
      baton_delta_chunks_##columns(const __grid_constant__ Work work) { \
    extern __shared__ __align__(128) unsigned char shared[];            \
    begin_behind();                                                     \
    delta_chunks_block<columns>(work, shared);                          \
  }

BATON_DELTA_CHUNKS(32)
BATON_DELTA_CHUNKS(16)

#undef BATON_DELTA_PREPARE
#undef BATON_DELTA_CHUNKS

}  // namespace baton::cuda

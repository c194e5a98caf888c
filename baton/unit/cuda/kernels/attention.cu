// Kernels of attention of prompts, by type of keys and values and by width of a head.
#include "baton/unit/cuda/kernels/attention_tile.cuh"

namespace baton::cuda {

#define BATON_ATTEND_TILE(name, width, bf16)                                  \
  extern "C" __global__ void __launch_bounds__(kAttendTileThreads, 2)         \
      baton_attend_tile_##name##_##width(const __grid_constant__ Work work) { \
    extern __shared__ __align__(128) unsigned char shared[];                  \
    begin_behind();                                                           \
    attend_tile_block<width, bf16>(work, shared);                             \
  }

BATON_ATTEND_TILE(f16, 64, false)
BATON_ATTEND_TILE(f16, 128, false)
BATON_ATTEND_TILE(f16, 256, false)
BATON_ATTEND_TILE(bf16, 64, true)
BATON_ATTEND_TILE(bf16, 128, true)
BATON_ATTEND_TILE(bf16, 256, true)

#undef BATON_ATTEND_TILE

}  // namespace baton::cuda

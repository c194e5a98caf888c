// Kernels of products of many rows; tile_geometry.h says which one when.
#include "baton/unit/cuda/kernels/tile_plain.cuh"
#include "baton/unit/cuda/kernels/tile_wide.cuh"

namespace baton::cuda {

#define BATON_TILE_PLAIN(name, ...)                                                                     \
  extern "C" __global__ void __launch_bounds__(kPlainThreads) name(const __grid_constant__ Work work) { \
    extern __shared__ __align__(1024) unsigned char shared[];                                           \
    begin_behind();                                                                                     \
    tile_plain<__VA_ARGS__>(work.instruction, *at<const Pass>(work.pass), shared);                      \
  }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BATON_TILE_WIDE_BODY(...) \
  tile_wide<WideShape<__VA_ARGS__>>(work.instruction, *at<const Pass>(work.pass), shared)
#else
#define BATON_TILE_WIDE_BODY(...) static_cast<void>(shared)
#endif
#define BATON_TILE_WIDE(name, attributes, ...)                                                    \
  extern "C" __global__ void attributes __launch_bounds__(WideShape<__VA_ARGS__>::kThreadsAll, 1) \
      name(const __grid_constant__ Work work) {                                                   \
    extern __shared__ __align__(1024) unsigned char shared[];                                     \
    begin_behind();                                                                               \
    BATON_TILE_WIDE_BODY(__VA_ARGS__);                                                            \
  }

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define BATON_CLUSTER __cluster_dims__(kTileSegments, 1, 1)
#else
#define BATON_CLUSTER
#endif

// rows, columns, stages of a tile; the numbers are those of tile_geometry.cc.
BATON_TILE_PLAIN(baton_tile_plain_128, 128, 128, 3, false)
BATON_TILE_PLAIN(baton_tile_plain_64, 64, 64, 4, false)
BATON_TILE_PLAIN(baton_tile_plain_codes, 64, 64, 4, true)
BATON_TILE_WIDE(baton_tile_128x256, , 128, 256, 4)
BATON_TILE_WIDE(baton_tile_128x192, , 128, 192, 5)
BATON_TILE_WIDE(baton_tile_128x128, , 128, 128, 6)
BATON_TILE_WIDE(baton_tile_128x64, , 128, 64, 8)
BATON_TILE_WIDE(baton_tile_64x64, , 64, 64, 12)
BATON_TILE_WIDE(baton_tile_segments_128x128, , 128, 128, 6, false, Cut::kSegments)
BATON_TILE_WIDE(baton_tile_cluster_128x128, BATON_CLUSTER, 128, 128, 6, false, Cut::kCluster)
BATON_TILE_WIDE(baton_tile_cluster_128x192, BATON_CLUSTER, 128, 192, 5, false, Cut::kCluster)
BATON_TILE_WIDE(baton_tile_cluster_64x64, BATON_CLUSTER, 64, 64, 8, false, Cut::kCluster)
BATON_TILE_WIDE(baton_tile_codes_64x64, , 64, 64, 8, true)
BATON_TILE_WIDE(baton_tile_codes_cluster_64x64, BATON_CLUSTER, 64, 64, 8, true, Cut::kCluster)

extern "C" __global__ void __launch_bounds__(kPlainThreads) baton_unpack(const __grid_constant__ Work work) {
  begin_behind();
  unpack(work.instruction);
}

}  // namespace baton::cuda

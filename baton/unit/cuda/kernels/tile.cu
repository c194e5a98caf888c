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
#define BATON_TILE_BODY(body, ...) body<WideShape<__VA_ARGS__>>(work, shared)
#define BATON_TILE_CODES_BODY(...)               \
  begin_behind();                                \
  const Pass& pass = *at<const Pass>(work.pass); \
  tile_codes<WideShape<__VA_ARGS__>>(work.instruction, tile_rows(work.instruction, pass), shared)
#define BATON_LET_NEXT let_next_begin()
#else
#define BATON_TILE_BODY(body, ...) static_cast<void>(shared)
#define BATON_TILE_CODES_BODY(...) static_cast<void>(shared)
#define BATON_LET_NEXT static_cast<void>(0)
#endif
#define BATON_TILE_WIDE(name, attributes, body, ...)                                              \
  extern "C" __global__ void attributes __launch_bounds__(WideShape<__VA_ARGS__>::kThreadsAll, 1) \
      name(const __grid_constant__ TileWork work) {                                               \
    extern __shared__ __align__(1024) unsigned char shared[];                                     \
    BATON_LET_NEXT;                                                                               \
    BATON_TILE_BODY(body, __VA_ARGS__);                                                           \
  }
#define BATON_TILE_CODES(name, attributes, ...)                                                   \
  extern "C" __global__ void attributes __launch_bounds__(WideShape<__VA_ARGS__>::kThreadsAll, 1) \
      name(const __grid_constant__ Work work) {                                                   \
    extern __shared__ __align__(1024) unsigned char shared[];                                     \
    BATON_TILE_CODES_BODY(__VA_ARGS__);                                                           \
  }

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define BATON_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define BATON_CLUSTER(blocks)
#endif

// rows, columns, stages of a tile, blocks beside each other; the numbers are those of tile_geometry.cc.
BATON_TILE_PLAIN(baton_tile_plain_128, 128, 128, 3, false)
BATON_TILE_PLAIN(baton_tile_plain_64, 64, 64, 4, false)
BATON_TILE_PLAIN(baton_tile_plain_codes, 64, 64, 4, true)
BATON_TILE_WIDE(baton_tile_pair_128x256, BATON_CLUSTER(2), tile_wide, 128, 256, 4, 2)
BATON_TILE_WIDE(baton_tile_pair_128x192, BATON_CLUSTER(2), tile_wide, 128, 192, 5, 2)
BATON_TILE_WIDE(baton_tile_pair_128x128, BATON_CLUSTER(2), tile_wide, 128, 128, 6, 2)
BATON_TILE_WIDE(baton_tile_pair_64x128, BATON_CLUSTER(2), tile_wide, 64, 128, 8, 2)
BATON_TILE_WIDE(baton_tile_128x128, , tile_wide, 128, 128, 6)
BATON_TILE_WIDE(baton_tile_128x64, , tile_wide, 128, 64, 8)
BATON_TILE_WIDE(baton_tile_64x64, , tile_wide, 64, 64, 12)
BATON_TILE_WIDE(baton_tile_segments_128x128, BATON_CLUSTER(2), tile_wide, 128, 128, 6, 2, Cut::kSegments)
BATON_TILE_WIDE(baton_tile_cluster_128x192, BATON_CLUSTER(kTileSegments), tile_cluster, 128, 192, 5, 1, Cut::kCluster)
BATON_TILE_WIDE(baton_tile_cluster_128x128, BATON_CLUSTER(kTileSegments), tile_cluster, 128, 128, 6, 1, Cut::kCluster)
BATON_TILE_WIDE(baton_tile_cluster_64x64, BATON_CLUSTER(kTileSegments), tile_cluster, 64, 64, 8, 1, Cut::kCluster)
BATON_TILE_WIDE(baton_tile_halves_pair_128x128, BATON_CLUSTER(2), tile_wide, 128, 128, 6, 2, Cut::kSegments, false,
                kTileHalves)
BATON_TILE_WIDE(baton_tile_halves_128x128, BATON_CLUSTER(kTileHalves), tile_cluster, 128, 128, 6, 1, Cut::kCluster,
                false, kTileHalves)
BATON_TILE_WIDE(baton_tile_halves_64x64, BATON_CLUSTER(kTileHalves), tile_cluster, 64, 64, 8, 1, Cut::kCluster, false,
                kTileHalves)
BATON_TILE_CODES(baton_tile_codes_64x64, , 64, 64, 8, 1, Cut::kWhole, true)
BATON_TILE_CODES(baton_tile_codes_cluster_64x64, BATON_CLUSTER(kTileSegments), 64, 64, 8, 1, Cut::kCluster, true)
BATON_TILE_CODES(baton_tile_codes_halves_64x64, BATON_CLUSTER(kTileHalves), 64, 64, 8, 1, Cut::kCluster, true,
                 kTileHalves)

extern "C" __global__ void __launch_bounds__(kPlainThreads) baton_unpack(const __grid_constant__ Work work) {
  begin_behind();
  unpack(work.instruction);
}

}  // namespace baton::cuda

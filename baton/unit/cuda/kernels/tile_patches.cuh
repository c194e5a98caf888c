// bf16 that a warp of tile_wide.cuh has made, to memory: by patches in shared memory (tile_layout.h), which copies of
// their own bring where they belong while the warp goes on. From threads it would be four bytes at a time.
#pragma once

#include "baton/unit/cuda/kernels/tile.cuh"

namespace baton::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int kPatches>
struct Patches {
  uint32_t base;  // of the warp's patches
  uint32_t turn = 0;

  // Where the next may be put.
  __device__ __forceinline__ uint32_t take() {
    if (lane() == 0) boxes_read<kPatches - 1>();
    __syncwarp();
    const uint32_t at = base + turn * kPatchBytes;
    turn = turn + 1 < kPatches ? turn + 1 : 0;
    return at;
  }
  __device__ __forceinline__ void put(const TensorMap* map, int32_t column, int32_t row, uint32_t from) const {
    fence_shared();
    __syncwarp();
    if (lane() == 0) put_box(map, column, row, from);
  }
};

// finish_rows with patches for what goes to `out`; `row` is the warp's first.
template <int kGroups, int kPatches>
__device__ __forceinline__ void finish_patches(const TileWork& work, const TilePart& part, int32_t row,
                                               Patches<kPatches>& patches, float* sums) {
  constexpr int kEach = kPatchColumns / 8, kHalf = kGroups / 2, kAtOnce = kHalf % 8 == 0 ? 8 : kEach;
  const Instruction& in = work.instruction;
  const bool paired = is_paired(in);
  if (paired) gate_rows<kGroups>(in, sums);
  if (in.epilogue == Epilogue::kAdd) add_rows<kGroups>(in, part, sums);
#pragma unroll
  for (int g = 0; g < kGroups; g += kAtOnce) {
    if (paired && g >= kHalf) break;
    store_groups<kAtOnce, false>(in, part, g, sums + 4 * g);
  }
  if (!in.to_bf16 || row >= part.rows) return;
  const uint32_t r = value_row(lane(), 0), c = value_column(lane(), 0);
#pragma unroll
  for (int g = 0; g < kGroups; g += kEach) {
    if (paired && g >= kHalf) break;
    const TileColumn column = tile_column(in, part.tile, part.width, part.share, part.column + 8 * g);
    if (column.matrix != 0) continue;
    const uint32_t to = patches.take();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint32_t at = to + patch_offset(r, 8 * i + c);  // eight rows below, pieces have the same places
      store_shared(at, bf16_pair(sums[4 * (g + i)], sums[4 * (g + i) + 1]));
      store_shared(at + kPatchBytes / 2, bf16_pair(sums[4 * (g + i) + 2], sums[4 * (g + i) + 3]));
    }
    patches.put(&work.out, column.n, row, to);
  }
}

#endif

}  // namespace baton::cuda

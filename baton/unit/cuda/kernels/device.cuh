// What all kernels share: addresses as pointers, sums over a warp and a block, the functions of one value.
//
// A device function do_<kind>(instruction, pass, block, blocks, shared) does its part of an instruction: units of work
// block, block + blocks, ... It is called by the first kThreads threads of a block, all of them, from a kernel of its
// own or from the one that runs a list, and they meet() there; `shared` is the block's dynamic shared memory,
// shared_bytes_of (launch.h) or more of it, and holds nothing between calls.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "baton/unit/cuda/instruction.h"
#include "baton/unit/cuda/kernels/ptx.cuh"
#include "baton/unit/cuda/staging.h"

namespace baton::cuda {

inline constexpr uint32_t kAll = 0xffffffffu;
inline constexpr int kWarpsLog2 = 4;
static_assert(kWarps == 1 << kWarpsLog2);
static_assert(kWarps == 1 << kWarpsLog2);

template <class T>
__device__ __forceinline__ T* at(Address address) {
  return reinterpret_cast<T*>(address);
}
__device__ __forceinline__ float* row_of(Address x, int32_t width, int64_t row) {
  return at<float>(x) + row * pitch_of(width);
}

__device__ __forceinline__ uint32_t lane() { return threadIdx.x & 31; }
__device__ __forceinline__ uint32_t warp() { return threadIdx.x >> 5; }

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int i = 16; i > 0; i >>= 1) x += __shfl_xor_sync(kAll, x, i);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int i = 16; i > 0; i >>= 1) x = fmaxf(x, __shfl_xor_sync(kAll, x, i));
  return x;
}

// Eight values of a row of which `count` are there; the rest are zero.
__device__ __forceinline__ void load8(const float* from, int count, float (&to)[8]) {
  if (count >= 8 && (reinterpret_cast<uintptr_t>(from) & 15) == 0) {
    const float4 low = reinterpret_cast<const float4*>(from)[0], high = reinterpret_cast<const float4*>(from)[1];
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = i < count ? from[i] : 0.0f;
}

// Within two of the last place: what rounds as IEEE says calls a function, and what calls one keeps values in memory.
__device__ __forceinline__ float quotient(float x, float y) { return __fdividef(x, y); }
__device__ __forceinline__ float sigmoid(float x) { return quotient(1.0f, 1.0f + expf(-x)); }
__device__ __forceinline__ float silu(float x) { return quotient(x, 1.0f + expf(-x)); }

}  // namespace baton::cuda

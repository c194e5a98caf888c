// What a card can do at most: reads and copies of memory that no cache holds, products on tensor cores, f32. Each
// leaves sums that show whether it did all of it (limit_work.h).
#include "baton/unit/cuda/kernels/device.cuh"
#include "baton/unit/cuda/kernels/ptx.cuh"
#include "baton/unit/cuda/kernels/wgmma.cuh"
#include "baton/unit/cuda/limit_work.h"
#include "baton/unit/cuda/tile_layout.h"

namespace baton::cuda {
namespace {

// 16 bytes that nobody needs again; it is done however often the same is asked for.
__device__ __forceinline__ uint4 load_streamed(const uint4* from) {
#ifdef __CUDA_ARCH__
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
#else
  return *from;
#endif
}

__device__ __forceinline__ uint32_t warp_xor(uint32_t x) {
#pragma unroll
  for (int i = 16; i > 0; i >>= 1) x ^= __shfl_xor_sync(kAll, x, i);
  return x;
}

// Of this thread in a chunk: vectors kLimitThreads apart.
__device__ __forceinline__ void load_chunk(const uint4* chunk, uint4 (&v)[kLimitLoads]) {
#pragma unroll
  for (uint32_t i = 0; i < kLimitLoads; ++i) v[i] = load_streamed(chunk + i * kLimitThreads + threadIdx.x);
}

__device__ __forceinline__ void leave_sum(const LimitWork& work, float sum) {
  sum = warp_sum(sum);
  if (lane() == 0) at<float>(work.sums)[blockIdx.x * (blockDim.x / 32) + warp()] = sum;
}

__device__ __forceinline__ uint32_t pair_of(uint32_t row, uint32_t place) {
  return limit_value(row, place) | limit_value(row, place + 1) << 16;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Two groups of four warps: 64 rows each of their own, 256 columns that they share, 64 of K, over and over.
__device__ __forceinline__ float multiply_wide(const LimitWork& work, unsigned char* shared) {
  unsigned char* const begin = shared + (1024 - shared_address(shared) % 1024) % 1024;
  for (uint32_t piece = threadIdx.x; piece < (2 * 64 + 256) * 8; piece += kLimitProductThreads) {
    const uint32_t row = piece / 8;
    reinterpret_cast<uint4*>(begin)[piece] =
        make_uint4(pair_of(row, 0), pair_of(row, 2), pair_of(row, 4), pair_of(row, 6));
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint32_t base = shared_address(begin);
  const uint64_t rows = tile_descriptor(base + threadIdx.x / 128 * 64 * 128);
  const uint64_t columns = tile_descriptor(base + 2 * 64 * 128);
  float sums[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) sums[i] = 0;
  wgmma_touch(sums);
#pragma unroll 1
  for (uint32_t round = 0; round < work.rounds; ++round) {
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < kLimitWgmmas; ++k) wgmma<256>(sums, rows + 2 * k, columns + 2 * k, 1);
    wgmma_commit();
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
  wgmma_touch(sums);
  float all = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) all += sums[i];
  return all;
}

#else

// 16 sums of a warp: rows of their own, columns that are all the same number.
__device__ __forceinline__ float multiply_narrow(const LimitWork& work) {
  uint32_t a[4];
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) a[i] = pair_of(lane() * 4 + i, 0);
  const uint32_t b = limit_value(0, 0) | limit_value(0, 0) << 16;
  float sums[kLimitMmas][4];
#pragma unroll
  for (auto& sum : sums) sum[0] = sum[1] = sum[2] = sum[3] = 0;
  for (uint32_t round = 0; round < work.rounds; ++round) {
#pragma unroll
    for (auto& sum : sums) multiply_add<true>(sum, a, b, b);
  }
  float all = 0;
#pragma unroll
  for (const auto& sum : sums) all += sum[0] + sum[1] + sum[2] + sum[3];
  return all;
}

#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(kLimitThreads) baton_limit_fill(const __grid_constant__ LimitWork work) {
  const uint64_t step = uint64_t{gridDim.x} * kLimitThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kLimitThreads + threadIdx.x; i < work.vectors; i += step) {
    const auto n = static_cast<uint32_t>(i);
    at<uint4>(work.to)[i] = make_uint4(n, n + 1, ~n, n);
  }
}

extern "C" __global__ void __launch_bounds__(kLimitThreads, 2)
    baton_limit_read(const __grid_constant__ LimitWork work) {
  const auto* const from = at<const uint4>(work.from);
  const uint64_t step = gridDim.x * kLimitChunk;
  uint32_t sum = 0;
  for (uint32_t round = 0; round < work.rounds; ++round) {
    sum = turned_left(sum);
    for (uint64_t i = blockIdx.x * kLimitChunk; i < work.vectors; i += step) {
      uint4 v[kLimitLoads];
      load_chunk(from + i, v);
#pragma unroll
      for (const uint4& each : v) sum ^= each.x ^ each.y ^ each.z ^ each.w;
    }
  }
  sum = warp_xor(sum);
  if (lane() == 0) at<uint32_t>(work.sums)[blockIdx.x * (kLimitThreads / 32) + warp()] = sum;
}

extern "C" __global__ void __launch_bounds__(kLimitThreads, 2)
    baton_limit_copy(const __grid_constant__ LimitWork work) {
  const auto* const from = at<const uint4>(work.from);
  auto* const to = at<uint4>(work.to);
  const uint64_t step = gridDim.x * kLimitChunk;
  for (uint32_t round = 0; round < work.rounds; ++round) {
    for (uint64_t i = blockIdx.x * kLimitChunk; i < work.vectors; i += step) {
      uint4 v[kLimitLoads];
      load_chunk(from + i, v);
#pragma unroll
      for (uint32_t j = 0; j < kLimitLoads; ++j) to[i + j * kLimitThreads + threadIdx.x] = v[j];
    }
  }
}

extern "C" __global__ void __launch_bounds__(kLimitProductThreads, 1)
    baton_limit_products(const __grid_constant__ LimitWork work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr LimitPath kPath = LimitPath::kWgmma;
  leave_sum(work, multiply_wide(work, shared));
#else
  constexpr LimitPath kPath = LimitPath::kMma;
  leave_sum(work, multiply_narrow(work));
#endif
  if (blockIdx.x == 0 && threadIdx.x == 0) *at<uint32_t>(work.path) = static_cast<uint32_t>(kPath);
}

extern "C" __global__ void __launch_bounds__(kLimitThreads) baton_limit_f32(const __grid_constant__ LimitWork work) {
  float sums[kLimitSums];  // that no compiler takes for one
#pragma unroll
  for (uint32_t i = 0; i < kLimitSums; ++i) sums[i] = work.one * static_cast<float>(i);
#pragma unroll 1
  for (uint32_t round = 0; round < work.rounds; ++round) {
#pragma unroll
    for (float& sum : sums) sum = fmaf(work.one, work.one, sum);
  }
  float all = 0;
#pragma unroll
  for (const float sum : sums) all += sum;
  leave_sum(work, all);
}

}  // namespace baton::cuda

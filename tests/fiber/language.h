// What CUDA's language has beside C++, as far as kernels use it: vector types, functions of warps and blocks,
// intrinsics.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "baton/base/float.h"
#include "tests/fiber/fiber.h"

#define __device__
#define __host__
#define __global__
#define __shared__ constinit thread_local  // a block is a thread of the system
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))

#define BATON_FIBER_TWO(name, T, bytes) \
  struct alignas(bytes) name {          \
    T x, y;                             \
  };                                    \
  inline name make_##name(T x, T y) { return {x, y}; }
#define BATON_FIBER_FOUR(name, T, bytes) \
  struct alignas(bytes) name {           \
    T x, y, z, w;                        \
  };                                     \
  inline name make_##name(T x, T y, T z, T w) { return {x, y, z, w}; }
BATON_FIBER_TWO(float2, float, 8)
BATON_FIBER_TWO(int2, int, 8)
BATON_FIBER_TWO(uint2, uint32_t, 8)
BATON_FIBER_FOUR(float4, float, 16)
BATON_FIBER_FOUR(uint4, uint32_t, 16)
#undef BATON_FIBER_TWO
#undef BATON_FIBER_FOUR

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  const std::common_type_t<A, B> x = a, y = b;
  return y < x ? y : x;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  const std::common_type_t<A, B> x = a, y = b;
  return x < y ? y : x;
}
using std::isfinite;
using std::isinf;
using std::isnan;

inline void __syncthreads() { baton::fiber::meet_block("__syncthreads", 0); }
inline int __syncthreads_or(int value) { return baton::fiber::meet_block("__syncthreads_or", value != 0 ? 1 : 0); }
inline void __syncwarp(uint32_t mask = 0xffffffffu) {
  baton::fiber::meet_lanes("__syncwarp", mask, nullptr, [](void* const*, uint32_t) {});
}
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace baton::fiber {

// What the lane `from` has; of a lane that is not in the mask no number.
template <class T>
T shuffle(const char* kind, uint32_t mask, T value, int from) {
  struct Own {
    T value, got;
    int from;
  } own = {value, value, from};
  meet_lanes(kind, mask, &own, [](void* const* owns, uint32_t of) {
    for (int i = 0; i < 32; ++i) {
      if ((of >> i & 1) == 0) continue;
      Own& lane = *static_cast<Own*>(owns[i]);
      const bool there = lane.from >= 0 && lane.from < 32 && (of >> lane.from & 1) != 0;
      if (there) lane.got = static_cast<const Own*>(owns[lane.from])->value;
      if (!there) std::memset(&lane.got, 0xff, sizeof(T));
    }
  });
  return own.got;
}

// fold(so far, value of a lane, lane, whether it is the first), over the lanes of the mask.
template <class R, class T, class Fold>
R reduce(const char* kind, uint32_t mask, T value, const Fold& fold) {
  struct Own {
    T value;
    R got;
  } own = {value, R{}};
  meet_lanes(kind, mask, &own, [&](void* const* owns, uint32_t of) {
    R all{};
    for (int i = 0; i < 32; ++i) {
      if ((of >> i & 1) != 0) all = fold(all, static_cast<const Own*>(owns[i])->value, i, (of & ((1u << i) - 1)) == 0);
    }
    for (int i = 0; i < 32; ++i) {
      if ((of >> i & 1) != 0) static_cast<Own*>(owns[i])->got = all;
    }
  });
  return own.got;
}

inline int own_lane() { return static_cast<int>(threadIdx.x % 32); }

}  // namespace baton::fiber

template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int by) {
  return baton::fiber::shuffle("__shfl_xor_sync", mask, value, baton::fiber::own_lane() ^ by);
}
template <class T>
T __shfl_sync(uint32_t mask, T value, int from, int width = 32) {
  const int first = baton::fiber::own_lane() / width * width;
  return baton::fiber::shuffle("__shfl_sync", mask, value, first + (from & (width - 1)));
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, uint32_t by) {
  const uint32_t own = baton::fiber::own_lane();
  return baton::fiber::shuffle("__shfl_up_sync", mask, value, own >= by ? own - by : own);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, uint32_t by) {
  const int own = baton::fiber::own_lane(), from = own + static_cast<int>(by);
  return baton::fiber::shuffle("__shfl_down_sync", mask, value, from < 32 ? from : own);
}
inline bool __any_sync(uint32_t mask, bool value) {
  return baton::fiber::reduce<bool>("__any_sync", mask, value, [](bool a, bool b, int, bool) { return a || b; });
}
inline bool __all_sync(uint32_t mask, bool value) {
  return baton::fiber::reduce<bool>("__all_sync", mask, value,
                                    [](bool a, bool b, int, bool first) { return (first || a) && b; });
}
inline uint32_t __ballot_sync(uint32_t mask, bool value) {
  return baton::fiber::reduce<uint32_t>("__ballot_sync", mask, value,
                                        [](uint32_t a, bool b, int lane, bool) { return a | (b ? 1u << lane : 0u); });
}
template <class T>
T __reduce_max_sync(uint32_t mask, T value) {
  return baton::fiber::reduce<T>("__reduce_max_sync", mask, value,
                                 [](T a, T b, int, bool first) { return first || b > a ? b : a; });
}

// One block runs at a time, and of it one thread.
template <class T, class U>
T atomicAdd(T* at, U value) {
  const T before = *at;
  *at = static_cast<T>(before + static_cast<T>(value));
  return before;
}
template <class T, class U>
T atomicMax(T* at, U value) {
  const T before = *at;
  *at = max(before, static_cast<T>(value));
  return before;
}
template <class T, class U>
T atomicExch(T* at, U value) {
  const T before = *at;
  *at = static_cast<T>(value);
  return before;
}
inline uint32_t atomicInc(uint32_t* at, uint32_t last) {
  const uint32_t before = *at;
  *at = before >= last ? 0 : before + 1;
  return before;
}

inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline int __float2int_rn(float value) {
  if (std::isnan(value)) return 0;
  if (value >= 2147483648.0f) return 0x7fffffff;
  if (value <= -2147483648.0f) return -0x7fffffff - 1;
  return static_cast<int>(std::nearbyint(value));
}
inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline int __popc(uint32_t x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<uint32_t>(x)); }
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i) sum += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  return sum;
}

struct __nv_bfloat16 {
  uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
struct __half {
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {baton::f32_to_bf16(x)}; }
inline float __bfloat162float(__nv_bfloat16 x) { return baton::bf16_to_f32(x.bits); }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {{baton::f32_to_bf16(a)}, {baton::f32_to_bf16(b)}};
}
inline __half __float2half_rn(float x) { return {baton::f32_to_f16(x)}; }
inline float __half2float(__half x) { return baton::f16_to_f32(x.bits); }
inline __half2 __floats2half2_rn(float a, float b) { return {{baton::f32_to_f16(a)}, {baton::f32_to_f16(b)}}; }
inline float2 __half22float2(__half2 x) { return {baton::f16_to_f32(x.x.bits), baton::f16_to_f32(x.y.bits)}; }

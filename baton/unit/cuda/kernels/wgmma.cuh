// wgmma: 64 rows of x times kColumns columns, 16 of K, by the four warps of a group; both in shared memory
// (tile_descriptor). sums = product, or += with `add`. Nothing may touch `sums` before the group has waited.
#pragma once

#include <cstdint>

namespace baton::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// Registers of a thread from here on; all threads of a group ask for the same.
template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

#define BATON_SUMS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BATON_SUMS_16(d, i) BATON_SUMS_4(d, i), BATON_SUMS_4(d, i + 4), BATON_SUMS_4(d, i + 8), BATON_SUMS_4(d, i + 12)
#define BATON_SUMS_32(d, i) BATON_SUMS_16(d, i), BATON_SUMS_16(d, i + 16)
#define BATON_SUMS_64(d, i) BATON_SUMS_32(d, i), BATON_SUMS_32(d, i + 32)

template <int kColumns>
__device__ __forceinline__ void wgmma(float (&d)[kColumns / 2], uint64_t rows, uint64_t columns, int32_t add) {
  if constexpr (kColumns == 32) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, p, 1, 1, 0, 0;\n}\n"
        : BATON_SUMS_16(d, 0)
        : "l"(rows), "l"(columns), "r"(add));
  } else if constexpr (kColumns == 64) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0;\n}\n"
        : BATON_SUMS_32(d, 0)
        : "l"(rows), "l"(columns), "r"(add));
  } else if constexpr (kColumns == 128) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, 0, 0;\n}\n"
        : BATON_SUMS_64(d, 0)
        : "l"(rows), "l"(columns), "r"(add));
  } else if constexpr (kColumns == 192) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
        "%96, %97, p, 1, 1, 0, 0;\n}\n"
        : BATON_SUMS_64(d, 0), BATON_SUMS_32(d, 64)
        : "l"(rows), "l"(columns), "r"(add));
  } else if constexpr (kColumns == 256) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, p, 1, 1, 0, 0;\n}\n"
        : BATON_SUMS_64(d, 0), BATON_SUMS_64(d, 64)
        : "l"(rows), "l"(columns), "r"(add));
  } else {
    static_assert(kColumns == 0, "no such width");
  }
}

// 64 columns of f16 or bf16, sums +=.
//   wgmma_pairs   both in shared memory, as above
//   wgmma_across  rows in registers, as mma has them; columns turned: a row that a descriptor names is one of K, and
//   has
//                 the 64 columns
#define BATON_WGMMA_64(type, rows_are, across, ...)                                                \
  asm volatile(                                                                                    \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                                   \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                  \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                   \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " rows_are \
      ", p, 1, 1, " across ";\n}\n"                                                                \
      : BATON_SUMS_32(d, 0)                                                                        \
      : __VA_ARGS__)
template <bool kBf16>
__device__ __forceinline__ void wgmma_pairs(float (&d)[32], uint64_t rows, uint64_t columns) {
  if constexpr (kBf16) {
    BATON_WGMMA_64("bf16", "%32, %33", "0, 0", "l"(rows), "l"(columns));
  } else {
    BATON_WGMMA_64("f16", "%32, %33", "0, 0", "l"(rows), "l"(columns));
  }
}
template <bool kBf16>
__device__ __forceinline__ void wgmma_across(float (&d)[32], const uint32_t (&rows)[4], uint64_t columns) {
  if constexpr (kBf16) {
    BATON_WGMMA_64("bf16", "{%32, %33, %34, %35}, %36", "1", "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]),
                   "l"(columns));
  } else {
    BATON_WGMMA_64("f16", "{%32, %33, %34, %35}, %36", "1", "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]),
                   "l"(columns));
  }
}
#undef BATON_WGMMA_64

// Tells the compiler that the group's products write these.
template <int kValues>
__device__ __forceinline__ void wgmma_touch(float (&d)[kValues]) {
#pragma unroll
  for (int i = 0; i < kValues; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#endif

}  // namespace baton::cuda

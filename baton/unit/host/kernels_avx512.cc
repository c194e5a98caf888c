// The kernels on AVX-512 with VNNI; this file alone is compiled for them.
#include "baton/unit/host/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace baton::host {
namespace {

// In this order: each needs those before it.
// clang-format off
#include "baton/unit/host/kernels_loops.inl.h"
#include "baton/unit/host/kernels_avx512_lanes.inl.h"
#include "baton/unit/host/kernels_table.inl.h"
// clang-format on

}  // namespace

const Kernels& kernels_avx512();
const Kernels& kernels_avx512() {
  static constexpr Kernels kKernels = make_kernels("avx512", "avx512-vnni");
  return kKernels;
}

}  // namespace baton::host

#endif

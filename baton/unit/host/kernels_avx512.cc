// The kernels on AVX-512 with VNNI; this file alone is compiled for them.
#if defined(__x86_64__)

#include "baton/base/simd/avx512.h"
#include "baton/unit/host/kernels.h"

namespace baton::host {
namespace {

// 12 + 12 accumulators for integers, 24 for floats, of 32 registers.
constexpr int kIntegerPanels = 2, kIntegerTokens = 6, kFloatPanels = 2, kFloatTokens = 12;
constexpr int kDirectTokens = 8, kUnsortedTokens = 32, kAheadFrom = 1;

}  // namespace
}  // namespace baton::host

#include "baton/unit/host/kernels_all.inl.h"

namespace baton::host {

const Kernels& kernels_avx512();
const Kernels& kernels_avx512() {
  using enum Arithmetic;
  static constexpr Kernels kKernels = make_kernels("avx512", "avx512-vnni", {kF32Avx512, kF32Avx512, kInt8Avx512});
  return kKernels;
}

}  // namespace baton::host

#endif

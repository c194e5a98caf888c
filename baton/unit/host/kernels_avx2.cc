// The kernels on AVX2, FMA and F16C; this file alone is compiled for them.
#if defined(__x86_64__)

#include "baton/base/simd/avx2.h"
#include "baton/unit/host/kernels.h"

namespace baton::host {
namespace {

// 16 registers: 8 accumulators for integers, |w|, the signs, the activations, a product; those for floats, once a
// block, are in memory. 12 for floats.
constexpr int kIntegerPanels = 1, kIntegerTokens = 4, kFloatPanels = 1, kFloatTokens = 6;
constexpr int kDirectTokens = 4, kUnsortedTokens = 4, kAheadFrom = 1;

}  // namespace
}  // namespace baton::host

#include "baton/unit/host/kernels_all.inl.h"

namespace baton::host {

const Kernels& kernels_avx2();
const Kernels& kernels_avx2() {
  using enum Arithmetic;
  static constexpr Kernels kKernels = make_kernels("avx2", "avx2-fma", {kF32Avx2, kF32Avx2, kInt8Avx2});
  return kKernels;
}

}  // namespace baton::host

#endif

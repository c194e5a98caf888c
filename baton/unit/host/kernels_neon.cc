// The kernels on NEON with the dot-product instructions; this file alone is compiled for them.
#if defined(__aarch64__)

#include "baton/base/simd/neon.h"
#include "baton/unit/host/kernels.h"

namespace baton::host {
namespace {

// 12 + 12 accumulators for integers, 24 for floats, of 32 registers.
constexpr int kIntegerPanels = 1, kIntegerTokens = 3, kFloatPanels = 1, kFloatTokens = 6;
constexpr int kDirectTokens = 4, kUnsortedTokens = 4, kAheadFrom = 3;

}  // namespace
}  // namespace baton::host

#include "baton/unit/host/kernels_all.inl.h"

namespace baton::host {

const Kernels& kernels_neon();
const Kernels& kernels_neon() {
  using enum Arithmetic;
  static constexpr Kernels kKernels = make_kernels("neon", "neon-dotprod", {kF32Neon, kF32Neon, kInt8Neon});
  return kKernels;
}

}  // namespace baton::host

#endif

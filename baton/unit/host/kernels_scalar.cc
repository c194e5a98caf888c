// The set without instruction-set intrinsics, for any processor.
#include "baton/base/simd/scalar.h"
#include "baton/unit/host/kernels.h"

namespace baton::host {
namespace {

constexpr int kIntegerPanels = 1, kIntegerTokens = 1, kFloatPanels = 1, kFloatTokens = 2;
constexpr int kDirectTokens = 4, kUnsortedTokens = 4, kAheadFrom = 3;

}  // namespace
}  // namespace baton::host

#include "baton/unit/host/kernels_all.inl.h"

namespace baton::host {

const Kernels& kernels_scalar();
const Kernels& kernels_scalar() {
  using enum Arithmetic;
  static constexpr Kernels kKernels = make_kernels("scalar", "scalar", {kCompiler, kCompiler, kCompiler});
  return kKernels;
}

}  // namespace baton::host

// The loops without instruction-set intrinsics.
#include "baton/base/simd/scalar.h"

#include <cstddef>

namespace baton::apple {
namespace {

constexpr size_t kRows = 2;  // by one vector: 8 of 16 registers
constexpr int kVectors = 1;

}  // namespace
}  // namespace baton::apple

#include "baton/unit/apple/mac.inl.h"

namespace baton::apple {

const MacKernels& mac_kernels_scalar();
const MacKernels& mac_kernels_scalar() { return kMacKernels; }

}  // namespace baton::apple

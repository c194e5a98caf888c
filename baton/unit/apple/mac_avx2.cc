// The loops on AVX2.
#if defined(__x86_64__)

#include "baton/base/simd/avx2.h"

#include <cstddef>

namespace baton::apple {
namespace {

constexpr size_t kRows = 6;  // by one vector: 12 of 16 registers
constexpr int kVectors = 1;

}  // namespace
}  // namespace baton::apple

#include "baton/unit/apple/mac.inl.h"

namespace baton::apple {

const MacKernels& mac_kernels_avx2();
const MacKernels& mac_kernels_avx2() { return kMacKernels; }

}  // namespace baton::apple

#endif

// The loops on AVX-512.
#if defined(__x86_64__)

#include "baton/base/simd/avx512.h"

#include <cstddef>

namespace baton::apple {
namespace {

constexpr size_t kRows = 8;  // by two vectors: 16 of 32 registers
constexpr int kVectors = 2;

}  // namespace
}  // namespace baton::apple

#include "baton/unit/apple/mac.inl.h"

namespace baton::apple {

const MacKernels& mac_kernels_avx512();
const MacKernels& mac_kernels_avx512() { return kMacKernels; }

}  // namespace baton::apple

#endif

// The list of kernels' files, as build.cmake writes it.
#include "baton/unit/cuda/embedded.h"

#ifdef BATON_CUDA_KERNELS

#include <array>

#define BATON_KERNELS(name) extern "C" const unsigned char baton_kernels_##name[];
#include "baton/unit/cuda/kernel_list.inc"
#undef BATON_KERNELS

namespace baton::cuda {
namespace {
constexpr std::array kImages = {
#define BATON_KERNELS(name) KernelImage{#name, baton_kernels_##name},
#include "baton/unit/cuda/kernel_list.inc"
#undef BATON_KERNELS
};
}  // namespace

std::span<const KernelImage> kernel_images() { return kImages; }
std::string_view kernel_build() { return BATON_CUDA_KERNELS; }

}  // namespace baton::cuda

#else

namespace baton::cuda {

std::span<const KernelImage> kernel_images() { return {}; }
std::string_view kernel_build() { return {}; }

}  // namespace baton::cuda

#endif

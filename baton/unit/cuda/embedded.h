// The kernels that were compiled into this program.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace baton::cuda {

struct KernelImage {
  std::string_view name;  // of its file, kernels/<name>.cu
  const void* bytes;      // a fat binary
};
// Empty: built without CUDA.
std::span<const KernelImage> kernel_images();
// What made them and for which cards: "nvcc 13.0.88, sm_80 sm_90a, PTX 12.0"; empty without.
std::string_view kernel_build();

}  // namespace baton::cuda

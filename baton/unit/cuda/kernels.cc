// Names of kernels.
#include "baton/unit/cuda/kernels.h"

#include <iterator>

#include "baton/base/status.h"

namespace baton::cuda {

std::string_view kernel_name(Do what) {
  static constexpr std::string_view kNames[] = {
#define BATON_KIND(name, word) "baton_" #word,
#include "baton/unit/cuda/kind_list.inc"
#undef BATON_KIND
  };
  BATON_CHECK(static_cast<size_t>(what) < std::size(kNames));
  return kNames[static_cast<size_t>(what)];
}

}  // namespace baton::cuda

// Names of kernels, and what the host makes for them.
#include "baton/unit/cuda/kernels.h"

#include <cmath>
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

std::vector<float> rope_frequencies(const Op& rope, const float* factors) {
  std::vector<float> made;
  for (int32_t i = 0; i < rope.rotary / 2; ++i) {
    const float exponent = -2.0f * static_cast<float>(i) / static_cast<float>(rope.rotary);
    made.push_back(std::pow(rope.rope_theta, exponent) / (factors != nullptr ? factors[i] : 1.0f));
  }
  return made;
}

}  // namespace baton::cuda

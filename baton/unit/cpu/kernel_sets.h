// The kernel sets this build has and this processor can run.
#pragma once

#include <string_view>
#include <vector>

#include "baton/unit/cpu/kernels.h"

namespace baton::cpu {

// Best first; the last, "scalar", is always there.
std::vector<const Kernels*> kernel_sets();
// "scalar", "avx2", "avx512", "neon"; null when unknown or when this machine cannot run it.
const Kernels* kernels_by_name(std::string_view name);

}  // namespace baton::cpu

// The kernel sets this build has and this processor can run.
#pragma once

#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/unit/host/kernels.h"

namespace baton::host {

// Best first; the last, "scalar", is always there.
std::vector<const Kernels*> kernel_sets();
// Null when unknown or when this machine cannot run it.
const Kernels* kernels_by_name(std::string_view name);
// The set of that name, the best when it is empty. kUnsupported names those there are.
Result<const Kernels*> kernels_or_best(std::string_view name);
// The set named by the environment variable BATON_CPU_KERNELS, or the best. kUnsupported names those there are.
Result<const Kernels*> chosen_kernels();

}  // namespace baton::host

// The kernel sets this build has and this processor can run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/unit/host/kernels.h"

namespace baton::host {

// Best first; the last, "scalar", is always there.
std::vector<const Kernels*> kernel_sets();
// Null when unknown or when this machine cannot run it.
const Kernels* kernels_by_name(std::string_view name);
// All names of kernel_sets().
std::string kernel_set_names(std::string_view between);
// The set of that name, the best when it is empty. kUnsupported names those there are.
Result<const Kernels*> kernels_or_best(std::string_view name);

}  // namespace baton::host

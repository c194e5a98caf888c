// The kernel sets this build has and this processor can run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/unit/host/kernels.h"

namespace baton::host {

// The set of this name is the best that multiplies 16-bit weights in f32, whatever the number of rows.
inline constexpr std::string_view kExactKernels = "exact";

// Best first; the last, "scalar", is always there.
std::vector<const Kernels*> kernel_sets();
// Null when unknown or when this machine cannot run it.
const Kernels* kernels_by_name(std::string_view name);
// All names of kernel_sets().
std::string kernel_set_names(std::string_view between);
// The set of that name or kExactKernels, the best when it is empty. kUnsupported names those there are.
Result<const Kernels*> kernels_or_best(std::string_view name);

// The names that kernels_or_best takes, for an option of a unit: "avx512|avx2|scalar|exact".
std::string kernel_set_choices();
inline constexpr std::string_view kKernelSetMeaning =
    "instruction set of its kernels; exact: the first without bf16 products of 16-bit weights";

}  // namespace baton::host

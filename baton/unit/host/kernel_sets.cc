// Which kernel sets this build has and this processor can run.
#include "baton/unit/host/kernel_sets.h"

#include <fmt/format.h>

#include <string>

#include "baton/base/simd/cpu_features.h"
#include "baton/unit/host/operands.h"

namespace baton::host {

// Each is defined in kernels_<set>.cc and may be entered where the set runs.
#define BATON_INSTRUCTION_SET(set, needed, options) const Kernels& kernels_##set();
#include "baton/base/simd/instruction_sets.inc"
#undef BATON_INSTRUCTION_SET
const Kernels& kernels_scalar();

std::vector<const Kernels*> kernel_sets() {
  std::vector<const Kernels*> sets;
#define BATON_INSTRUCTION_SET(set, needed, options) \
  if (runs(InstructionSet::set)) sets.push_back(&kernels_##set());
#include "baton/base/simd/instruction_sets.inc"
#undef BATON_INSTRUCTION_SET
  sets.push_back(&kernels_scalar());
  return sets;
}

const Kernels* kernels_by_name(std::string_view name) {
  for (const Kernels* set : kernel_sets()) {
    if (name == set->name) return set;
  }
  return nullptr;
}

std::string kernel_set_names(std::string_view between) {
  std::string names;
  for (const Kernels* set : kernel_sets()) names += fmt::format("{}{}", names.empty() ? "" : between, set->name);
  return names;
}

Result<const Kernels*> kernels_or_best(std::string_view name) {
  if (name.empty()) return kernel_sets().front();
  if (name == kExactKernels) {
    for (const Kernels* set : kernel_sets()) {
      if (!has_tiles(*set, Packing::kF16) && !has_tiles(*set, Packing::kBF16)) return set;
    }
  }
  if (const Kernels* kernels = kernels_by_name(name)) return kernels;
  return fail(Code::kUnsupported, fmt::format("{}: no such kernel set on this machine; it has {}, {}", name,
                                              kernel_set_names(", "), kExactKernels));
}

std::string kernel_set_choices() { return fmt::format("{}|{}", kernel_set_names("|"), kExactKernels); }

}  // namespace baton::host

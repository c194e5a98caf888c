// Which kernel sets this build has and this processor can run.
#include "baton/unit/cpu/kernel_sets.h"

#include "baton/unit/cpu/cpu_features.h"

namespace baton::cpu {

extern const Kernels k_kernels_scalar;
#if defined(__x86_64__)
extern const Kernels k_kernels_avx2;
extern const Kernels k_kernels_avx512;
#elif defined(__aarch64__)
extern const Kernels k_kernels_neon;
#endif

std::vector<const Kernels*> kernel_sets() {
  std::vector<const Kernels*> sets;
  [[maybe_unused]] const CpuFeatures f = detect_cpu_features();
#if defined(__x86_64__)
  if (f.avx512f && f.avx512bw && f.avx512dq && f.avx512vl && f.avx512vnni) sets.push_back(&k_kernels_avx512);
  if (f.avx2 && f.fma && f.f16c) sets.push_back(&k_kernels_avx2);
#elif defined(__aarch64__)
  if (f.neon && f.dotprod) sets.push_back(&k_kernels_neon);
#endif
  sets.push_back(&k_kernels_scalar);
  return sets;
}

const Kernels* kernels_by_name(std::string_view name) {
  for (const Kernels* set : kernel_sets()) {
    if (name == set->name) return set;
  }
  return nullptr;
}

}  // namespace baton::cpu

// Which kernel sets this build has and this processor can run.
#include "baton/unit/host/kernel_sets.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "baton/unit/host/cpu_features.h"

namespace baton::host {

extern const Kernels k_kernels_scalar;
#if defined(__x86_64__)
extern const Kernels k_kernels_avx2;
extern const Kernels k_kernels_avx512;
void add_amx_kernels(Kernels& k);
void add_bf16_kernels(Kernels& k);
#elif defined(__aarch64__)
extern const Kernels k_kernels_neon;
#endif

#if defined(__x86_64__)
namespace {
// The vectors of AVX-512 and what `add` adds to them.
Kernels avx512_and(const char* name, const char* description, void (*add)(Kernels&)) {
  Kernels k = k_kernels_avx512;
  k.name = name;
  k.description = description;
  add(k);
  return k;
}

const Kernels& kernels_amx() {
  static const Kernels kernels = avx512_and("amx", "amx-bf16 and avx512-vnni", add_amx_kernels);
  return kernels;
}

// Products of 16-bit weights in bf16.
const Kernels& kernels_bf16() {
  static const Kernels kernels = avx512_and("avx512bf16", "avx512bf16 and avx512-vnni", add_bf16_kernels);
  return kernels;
}
}  // namespace
#endif

std::vector<const Kernels*> kernel_sets() {
  std::vector<const Kernels*> sets;
  [[maybe_unused]] const CpuFeatures f = detect_cpu_features();
#if defined(__x86_64__)
  const bool avx512 = f.avx512f && f.avx512bw && f.avx512dq && f.avx512vl && f.avx512vnni;
  if (avx512 && f.avx512bf16 && f.amx_tile && f.amx_bf16 && allow_tiles()) sets.push_back(&kernels_amx());
  if (avx512) sets.push_back(&k_kernels_avx512);
  // Quicker than the set above and less exact: for who asks for it by name.
  if (avx512 && f.avx512bf16) sets.push_back(&kernels_bf16());
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

Result<const Kernels*> chosen_kernels() {
  constexpr const char* kForceVariable = "BATON_CPU_KERNELS";
  const char* forced = std::getenv(kForceVariable);
  if (forced == nullptr || *forced == '\0') return kernel_sets().front();
  const Kernels* kernels = kernels_by_name(forced);
  if (kernels != nullptr) return kernels;
  std::string names;
  for (const Kernels* set : kernel_sets()) names += fmt::format("{}{}", names.empty() ? "" : ", ", set->name);
  return fail(Code::kUnsupported,
              fmt::format("{}={}: no such kernel set on this machine; it has {}", kForceVariable, forced, names));
}

}  // namespace baton::host

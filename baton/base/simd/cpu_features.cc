// cpuid and xgetbv on x86-64; the auxiliary vector or sysctl on arm64.
#include "baton/base/simd/cpu_features.h"

#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace baton {
namespace {

#if defined(__x86_64__)

struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf) {
  Leaf out;
  if (__get_cpuid_count(leaf, subleaf, &out.eax, &out.ebx, &out.ecx, &out.edx) == 0) return {};
  return out;
}

// Which register states the operating system saves (XCR0).
uint64_t saved_states() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool bit(uint32_t word, int index) { return (word >> index & 1u) != 0; }

void detect(CpuFeatures& f) {
  const Leaf basic = cpuid(1, 0);
  if (!bit(basic.ecx, 27)) return;  // OSXSAVE: without it no vector state can be trusted
  const uint64_t saved = saved_states();
  const bool ymm = (saved & 0x6) == 0x6;
  const bool zmm = ymm && (saved & 0xe0) == 0xe0;
  const bool tiles = (saved & 0x60000) == 0x60000;
  const Leaf seven = cpuid(7, 0);
  const Leaf seven_one = cpuid(7, 1);
  f.fma = ymm && bit(basic.ecx, 12);
  f.f16c = ymm && bit(basic.ecx, 29);
  f.avx2 = ymm && bit(seven.ebx, 5);
  f.avx_vnni = ymm && bit(seven_one.eax, 4);
  f.avx512f = zmm && bit(seven.ebx, 16);
  f.avx512dq = zmm && bit(seven.ebx, 17);
  f.avx512bw = zmm && bit(seven.ebx, 30);
  f.avx512vl = zmm && bit(seven.ebx, 31);
  f.avx512vnni = zmm && bit(seven.ecx, 11);
  f.avx512bf16 = zmm && bit(seven_one.eax, 5);
  f.avx512fp16 = zmm && bit(seven.edx, 23);
  f.amx_bf16 = tiles && bit(seven.edx, 22);
  f.amx_tile = tiles && bit(seven.edx, 24);
  f.amx_int8 = tiles && bit(seven.edx, 25);
}

#elif defined(__aarch64__) && defined(__linux__)

void detect(CpuFeatures& f) {
  const unsigned long capabilities = getauxval(AT_HWCAP);
  const unsigned long capabilities2 = getauxval(AT_HWCAP2);
  f.neon = (capabilities & (1ul << 1)) != 0;      // HWCAP_ASIMD
  f.dotprod = (capabilities & (1ul << 20)) != 0;  // HWCAP_ASIMDDP
  f.i8mm = (capabilities2 & (1ul << 13)) != 0;    // HWCAP2_I8MM
}

#elif defined(__aarch64__) && defined(__APPLE__)

bool flag(const char* name) {
  int value = 0;
  size_t bytes = sizeof(value);
  return sysctlbyname(name, &value, &bytes, nullptr, 0) == 0 && value != 0;
}

void detect(CpuFeatures& f) {
  f.neon = true;
  f.dotprod = flag("hw.optional.arm.FEAT_DotProd");
  f.i8mm = flag("hw.optional.arm.FEAT_I8MM");
}

#else

void detect(CpuFeatures&) {}

#endif

}  // namespace

bool allow_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures found = [] {
    CpuFeatures features;
    detect(features);
    return features;
  }();
  return found;
}

bool runs(InstructionSet set) {
  using S [[maybe_unused]] = InstructionSet;
  [[maybe_unused]] const CpuFeatures& f = cpu_features();
#define BATON_INSTRUCTION_SET(name, needed, options) \
  if (set == S::name) return needed;
#include "baton/base/simd/instruction_sets.inc"
#undef BATON_INSTRUCTION_SET
  return false;
}

std::vector<std::string> feature_names(const CpuFeatures& f) {
  const std::pair<bool, const char*> all[] = {
      {f.avx2, "avx2"},         {f.fma, "fma"},           {f.f16c, "f16c"},         {f.avx_vnni, "avx-vnni"},
      {f.avx512f, "avx512f"},   {f.avx512bw, "avx512bw"}, {f.avx512dq, "avx512dq"}, {f.avx512vl, "avx512vl"},
      {f.avx512vnni, "vnni"},   {f.avx512bf16, "bf16"},   {f.avx512fp16, "fp16"},   {f.amx_tile, "amx-tile"},
      {f.amx_int8, "amx-int8"}, {f.amx_bf16, "amx-bf16"}, {f.neon, "neon"},         {f.dotprod, "dotprod"},
      {f.i8mm, "i8mm"},
  };
  std::vector<std::string> names;
  for (const auto& [found, name] : all) {
    if (found) names.emplace_back(name);
  }
  return names;
}

}  // namespace baton

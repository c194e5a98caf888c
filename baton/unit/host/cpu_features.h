// What instruction sets the processor and the operating system offer, found once at run time.
#pragma once

#include <string>
#include <vector>

namespace baton::host {

struct CpuFeatures {
  // x86-64
  bool avx2 = false, fma = false, f16c = false, avx_vnni = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false;
  bool avx512vnni = false, avx512bf16 = false, avx512fp16 = false;
  bool amx_tile = false, amx_int8 = false, amx_bf16 = false;
  // arm64
  bool neon = false, dotprod = false, i8mm = false;
};

// Registers the operating system does not save are reported as absent (AVX-512 and AMX state included).
CpuFeatures detect_cpu_features();
// Asks the operating system to save AMX tiles for this process, which it does not do unasked. Quick when asked again.
bool allow_tiles();
// The names of those found, as `baton units` prints them.
std::vector<std::string> feature_names(const CpuFeatures& features);

}  // namespace baton::host

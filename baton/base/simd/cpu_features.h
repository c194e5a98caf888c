// What the processor and the operating system offer, found once at run time, and which files compiled for an
// instruction set may therefore be entered. What runs is chosen by whoever has several implementations, from what
// runs() says and what its caller asks for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton {

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
const CpuFeatures& cpu_features();
// Asks the operating system to save AMX tiles for this process, which it does not do unasked. Quick when asked again.
bool allow_tiles();
// The names of those found, as `baton units` prints them.
std::vector<std::string> feature_names(const CpuFeatures& features);

// The sets of this processor that files are compiled for (baton_kernels() in cmake/kernels.cmake), best first.
enum class InstructionSet : uint8_t {
#define BATON_INSTRUCTION_SET(set, needed, options) set,
#include "baton/base/simd/instruction_sets.inc"
#undef BATON_INSTRUCTION_SET
};
// Whether this process can run what was compiled for `set`.
bool runs(InstructionSet set);

}  // namespace baton

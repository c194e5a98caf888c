// Loops of reads and of independent multiply-adds for x86-64 and arm64.
#include "baton/bench/limits_loops.h"

#include <fmt/format.h>

#include <cstring>

#include "baton/base/simd/cpu_features.h"

// Repeats of a line with a register number.
#define BATON_8(line, a, b, c, d, e, f, g, h) line(a) line(b) line(c) line(d) line(e) line(f) line(g) line(h)
#define BATON_24(line)                                        \
  BATON_8(line, "0", "1", "2", "3", "4", "5", "6", "7")       \
  BATON_8(line, "8", "9", "10", "11", "12", "13", "14", "15") \
  BATON_8(line, "16", "17", "18", "19", "20", "21", "22", "23")

namespace baton {
namespace {

uint64_t read_plain(const unsigned char* data, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i < bytes; i += 64) {
    uint64_t words[8];
    std::memcpy(words, data + i, sizeof(words));
    for (int j = 0; j < 8; ++j) sums[j] ^= words[j];
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum ^= part;
  return sum;
}

#if defined(__x86_64__)

#define BATON_ZMM_CLOBBERS                                                                                            \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31"
#define BATON_YMM_CLOBBERS                                                                                            \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15"

#define BATON_XOR_ZMM(n) "vpxorq 64*" n "(%[at]), %%zmm" n ", %%zmm" n "\n"
#define BATON_CLEAR_ZMM(n) "vpxorq %%zmm" n ", %%zmm" n ", %%zmm" n "\n"
#define BATON_CLEAR_YMM(n) "vpxor %%ymm" n ", %%ymm" n ", %%ymm" n "\n"
#define BATON_EIGHT(line) BATON_8(line, "0", "1", "2", "3", "4", "5", "6", "7")

__attribute__((target("avx512f"))) uint64_t read_avx512(const unsigned char* data, size_t bytes) {
  const unsigned char* at = data;
  const unsigned char* const end = data + bytes;
  uint64_t words[64];
  // clang-format off
  __asm__ volatile(
      BATON_EIGHT(BATON_CLEAR_ZMM)
      "1:\n"
      BATON_EIGHT(BATON_XOR_ZMM)
      "add $512, %[at]\n"
      "cmp %[end], %[at]\n"
      "jb 1b\n"
      "vmovdqu64 %%zmm0, (%[to])\n" "vmovdqu64 %%zmm1, 64(%[to])\n" "vmovdqu64 %%zmm2, 128(%[to])\n"
      "vmovdqu64 %%zmm3, 192(%[to])\n" "vmovdqu64 %%zmm4, 256(%[to])\n" "vmovdqu64 %%zmm5, 320(%[to])\n"
      "vmovdqu64 %%zmm6, 384(%[to])\n" "vmovdqu64 %%zmm7, 448(%[to])\n"
      "vzeroupper\n"
      : [at] "+r"(at)
      : [end] "r"(end), [to] "r"(words)
      : "memory", "cc", BATON_ZMM_CLOBBERS);
  // clang-format on
  uint64_t sum = 0;
  for (const uint64_t word : words) sum ^= word;
  return sum;
}

#define BATON_XOR_YMM(n) "vpxor 32*" n "(%[at]), %%ymm" n ", %%ymm" n "\n"
#define BATON_XOR_YMM_HIGH(n) "vpxor 256+32*" n "(%[at]), %%ymm" n ", %%ymm" n "\n"

__attribute__((target("avx2"))) uint64_t read_avx2(const unsigned char* data, size_t bytes) {
  const unsigned char* at = data;
  const unsigned char* const end = data + bytes;
  uint64_t words[32];
  // clang-format off
  __asm__ volatile(
      BATON_EIGHT(BATON_CLEAR_YMM)
      "1:\n"
      BATON_EIGHT(BATON_XOR_YMM)
      BATON_EIGHT(BATON_XOR_YMM_HIGH)
      "add $512, %[at]\n"
      "cmp %[end], %[at]\n"
      "jb 1b\n"
      "vmovdqu %%ymm0, (%[to])\n" "vmovdqu %%ymm1, 32(%[to])\n" "vmovdqu %%ymm2, 64(%[to])\n"
      "vmovdqu %%ymm3, 96(%[to])\n" "vmovdqu %%ymm4, 128(%[to])\n" "vmovdqu %%ymm5, 160(%[to])\n"
      "vmovdqu %%ymm6, 192(%[to])\n" "vmovdqu %%ymm7, 224(%[to])\n"
      "vzeroupper\n"
      : [at] "+r"(at)
      : [end] "r"(end), [to] "r"(words)
      : "memory", "cc", BATON_YMM_CLOBBERS);
  // clang-format on
  uint64_t sum = 0;
  for (const uint64_t word : words) sum ^= word;
  return sum;
}

// 24 sums in zmm0-23 from the factors in zmm30 and zmm31, which hold 0x00, 0x01 or 0x3c bytes: small numbers in every
// type, so that no sum overflows or becomes subnormal.
#define BATON_ZMM_LOOP(function, feature, instruction)                            \
  __attribute__((target(feature))) void function(uint64_t rounds) {               \
    __asm__ volatile(BATON_24(BATON_CLEAR_ZMM)                                  \
                     "mov $0x3c013c01, %%eax\n"                                 \
                     "vpbroadcastd %%eax, %%zmm30\n"                            \
                     "vpbroadcastd %%eax, %%zmm31\n"                            \
                     "1:\n" BATON_24(instruction) "dec %[rounds]\n"             \
                     "jnz 1b\n"                                                 \
                     "vzeroupper\n"                                             \
                     : [rounds] "+r"(rounds)                                    \
                     :                                                          \
                     : "rax", "cc", BATON_ZMM_CLOBBERS); \
  }
#define BATON_DPBUSD(n) "vpdpbusd %%zmm30, %%zmm31, %%zmm" n "\n"
#define BATON_FMA_PS(n) "vfmadd231ps %%zmm30, %%zmm31, %%zmm" n "\n"
#define BATON_FMA_PH(n) "vfmadd231ph %%zmm30, %%zmm31, %%zmm" n "\n"
#define BATON_DPBF16(n) "vdpbf16ps %%zmm30, %%zmm31, %%zmm" n "\n"
BATON_ZMM_LOOP(run_int8_avx512, "avx512f", BATON_DPBUSD)
BATON_ZMM_LOOP(run_f32_avx512, "avx512f", BATON_FMA_PS)
BATON_ZMM_LOOP(run_f16_avx512, "avx512f", BATON_FMA_PH)
BATON_ZMM_LOOP(run_bf16_avx512, "avx512f", BATON_DPBF16)

// 12 sums in ymm0-11.
#define BATON_12(line) \
  BATON_EIGHT(line)    \
  line("8") line("9") line("10") line("11")
#define BATON_FMA_YMM(n) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" n "\n"
#define BATON_MADD_YMM(n)                  \
  "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n" \
  "vpmaddwd %%ymm13, %%ymm12, %%ymm12\n"   \
  "vpaddd %%ymm12, %%ymm" n ", %%ymm" n "\n"
#define BATON_YMM_LOOP(function, instruction)                                                     \
  __attribute__((target("avx2"))) void function(uint64_t rounds) {                                \
    __asm__ volatile(BATON_12(BATON_CLEAR_YMM)                                                  \
                     "mov $0x3c013c01, %%eax\n"                                                 \
                     "vmovd %%eax, %%xmm15\n"                                                   \
                     "vpbroadcastd %%xmm15, %%ymm15\n"                                          \
                     "vmovdqa %%ymm15, %%ymm14\n"                                               \
                     "vmovdqa %%ymm15, %%ymm13\n"                                               \
                     "1:\n" BATON_12(instruction) "dec %[rounds]\n"                             \
                     "jnz 1b\n"                                                                 \
                     "vzeroupper\n"                                                             \
                     : [rounds] "+r"(rounds)                                                    \
                     :                                                                          \
                     : "rax", "cc", BATON_YMM_CLOBBERS); \
  }
BATON_YMM_LOOP(run_f32_avx2, BATON_FMA_YMM)
BATON_YMM_LOOP(run_int8_avx2, BATON_MADD_YMM)

// Four sums of 16 x 16 from two tiles on each side.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);

#define BATON_TILE_LOOP(function, instruction)                                                             \
  void function(uint64_t rounds) {                                                                         \
    const TileShapes shapes;                                                                               \
    alignas(64) uint8_t ones[1024];                                                                        \
    std::memset(ones, 1, sizeof(ones));                                                                    \
    __asm__ volatile(                                                                                      \
        "ldtilecfg (%[shapes])\n"                                                                          \
        "mov $64, %%eax\n"                                                                                 \
        "tilezero %%tmm0\ntilezero %%tmm1\ntilezero %%tmm2\ntilezero %%tmm3\n"                             \
        "tileloadd (%[ones],%%rax,1), %%tmm4\ntileloadd (%[ones],%%rax,1), %%tmm5\n"                       \
        "tileloadd (%[ones],%%rax,1), %%tmm6\ntileloadd (%[ones],%%rax,1), %%tmm7\n"                       \
        "1:\n" instruction " %%tmm6, %%tmm4, %%tmm0\n" instruction " %%tmm7, %%tmm4, %%tmm1\n" instruction \
        " %%tmm6, %%tmm5, %%tmm2\n" instruction                                                            \
        " %%tmm7, %%tmm5, %%tmm3\n"                                                                        \
        "dec %[rounds]\n"                                                                                  \
        "jnz 1b\n"                                                                                         \
        "tilerelease\n"                                                                                    \
        : [rounds] "+r"(rounds)                                                                            \
        : [shapes] "r"(&shapes), [ones] "r"(ones)                                                          \
        : "rax", "cc", "memory");                                                                          \
  }
BATON_TILE_LOOP(run_int8_amx, "tdpbusd")
BATON_TILE_LOOP(run_bf16_amx, "tdpbf16ps")

#elif defined(__aarch64__)

#define BATON_CLEAR_V(n) "movi v" n ".16b, #0\n"
#define BATON_FMLA(n) "fmla v" n ".4s, v30.4s, v31.4s\n"
#define BATON_SDOT(n) ".inst 0x4e9f97c0 + " n "\n"   // sdot v<n>.4s, v30.16b, v31.16b
#define BATON_SMMLA(n) ".inst 0x4e9fa7c0 + " n "\n"  // smmla v<n>.4s, v30.16b, v31.16b
#define BATON_NEON_LOOP(function, instruction)                                                                        \
  void function(uint64_t rounds) {                                                                                    \
    __asm__ volatile(BATON_24(BATON_CLEAR_V)                                                                        \
                     "movi v30.16b, #1\n"                                                                           \
                     "movi v31.16b, #1\n"                                                                           \
                     "1:\n" BATON_24(instruction) "subs %[rounds], %[rounds], #1\n"                                 \
                     "b.ne 1b\n"                                                                                    \
                     : [rounds] "+r"(rounds)                                                                        \
                     :                                                                                              \
                     : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", \
                       "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v30", "v31"); \
  }
BATON_NEON_LOOP(run_f32_neon, BATON_FMLA)
BATON_NEON_LOOP(run_int8_neon, BATON_SDOT)
BATON_NEON_LOOP(run_int8_i8mm, BATON_SMMLA)

uint64_t read_neon(const unsigned char* data, size_t bytes) {
  using Vector = uint64_t __attribute__((vector_size(16)));
  Vector sums[8] = {};
  for (size_t i = 0; i < bytes; i += 128) {
    Vector words[8];
    std::memcpy(words, data + i, sizeof(words));
    for (int j = 0; j < 8; ++j) sums[j] ^= words[j];
  }
  Vector sum{};
  for (const Vector& part : sums) sum ^= part;
  return sum[0] ^ sum[1];
}

#endif

}  // namespace

ReadLoop best_read_loop() {
  [[maybe_unused]] const CpuFeatures& features = cpu_features();
#if defined(__x86_64__)
  if (features.avx512f) return read_avx512;
  if (features.avx2) return read_avx2;
#elif defined(__aarch64__)
  return read_neon;
#endif
  return read_plain;
}

Result<ArithmeticLoop> arithmetic_loop(Arithmetic which) {
  [[maybe_unused]] const CpuFeatures& f = cpu_features();
  switch (which) {
#if defined(__x86_64__)
    case Arithmetic::kF32Avx512:
      if (f.avx512f) return ArithmeticLoop{"f32 vfmadd231ps zmm", 24 * 32, run_f32_avx512};
      break;
    case Arithmetic::kF16Avx512:
      if (f.avx512fp16) return ArithmeticLoop{"f16 vfmadd231ph zmm", 24 * 64, run_f16_avx512};
      break;
    case Arithmetic::kBF16Avx512:
      if (f.avx512bf16) return ArithmeticLoop{"bf16 vdpbf16ps zmm", 24 * 64, run_bf16_avx512};
      break;
    case Arithmetic::kInt8Avx512:
      if (f.avx512vnni) return ArithmeticLoop{"int8 vpdpbusd zmm", 24 * 128, run_int8_avx512};
      break;
    case Arithmetic::kF32Avx2:
      if (f.avx2 && f.fma) return ArithmeticLoop{"f32 vfmadd231ps ymm", 12 * 16, run_f32_avx2};
      break;
    case Arithmetic::kInt8Avx2:
      if (f.avx2) return ArithmeticLoop{"int8 vpmaddubsw+vpmaddwd ymm", 12 * 64, run_int8_avx2};
      break;
    case Arithmetic::kInt8Amx:
      if (f.amx_int8 && allow_tiles()) return ArithmeticLoop{"int8 tdpbusd", 4.0 * 2 * 16 * 16 * 64, run_int8_amx};
      break;
    case Arithmetic::kBF16Amx:
      if (f.amx_bf16 && allow_tiles()) return ArithmeticLoop{"bf16 tdpbf16ps", 4.0 * 2 * 16 * 16 * 32, run_bf16_amx};
      break;
#elif defined(__aarch64__)
    case Arithmetic::kF32Neon:
      return ArithmeticLoop{"f32 fmla 4s", 24 * 8, run_f32_neon};
    case Arithmetic::kInt8Neon:
      if (f.dotprod) return ArithmeticLoop{"int8 sdot 4s", 24 * 32, run_int8_neon};
      break;
    case Arithmetic::kInt8I8mm:
      if (f.i8mm) return ArithmeticLoop{"int8 smmla 4s", 24 * 64, run_int8_i8mm};
      break;
#endif
    case Arithmetic::kCompiler:
      return fail(Code::kUnsupported, "the peak of what a compiler chooses is not known");
    default:
      break;
  }
  return fail(Code::kUnsupported, "this processor has not got that arithmetic");
}

}  // namespace baton

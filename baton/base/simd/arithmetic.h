// The instructions that products are made of: what kernels say they use, and what the bench measures the peak of.
#pragma once

#include <cstdint>

namespace baton {

enum class Arithmetic : uint8_t {
  kCompiler,    // whatever it chose: nothing to compare with
  kF32Avx512,   // vfmadd231ps zmm
  kF32Avx2,     // vfmadd231ps ymm
  kF32Neon,     // fmla 4s
  kF16Avx512,   // vfmadd231ph zmm
  kBF16Avx512,  // vdpbf16ps zmm
  kInt8Avx512,  // vpdpbusd zmm
  kInt8Avx2,    // vpmaddubsw, vpmaddwd, vpaddd ymm
  kInt8Neon,    // sdot 4s
  kInt8I8mm,    // smmla 4s
  kInt8Amx,     // tdpbusd
  kBF16Amx,     // tdpbf16ps
};

// Of a kernel set: products of f32, of 16-bit and of integer weights.
struct ProductArithmetic {
  Arithmetic f32, f16, integers;
};

}  // namespace baton

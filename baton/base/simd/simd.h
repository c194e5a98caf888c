// The words that code for vectors is written in, of which each instruction set has one header (scalar.h, avx2.h,
// avx512.h, neon.h). A file compiled for a set (cmake/kernels.cmake) includes that header first, then what it shares
// with others: text that knows no instruction set. All of it is in unnamed namespaces, so that nothing compiled with
// a set's flags can be linked into common code; for the same reason it calls no inline function of the standard
// library.
//
//   F, I, B   16 lanes of f32, of int32 and of four bytes each; F{} and so on are zeros. M: a mask of 16 lanes.
//   + - * /   of F;  + - & << >> of I (>> keeps the sign);  < and != of F, < of I: M;  & of M
//   all(x)                  x in every lane
//   load, store             (p), or (p, n) for the first n lanes: the others are 0, or stay as they are in memory
//   load_f16, store_f16     likewise, 16-bit values at p
//   load_bf16               16 bf16 values at p;  all_f16: one half at p, in every lane
//   load_bf16_pairs         32 bf16 values at p: the even ones and the odd ones
//   load_u8, load_i8        16 bytes at p as I
//   fma(a, b, c)            a * b + c, rounded once (scalar: twice)
//   min, max, abs, sqrt, round (to even; scalar: |a| < 2^22), select(m, yes, no), any(m)
//   scale_by_power(a, n)    a * 2^n
//   sum_of, highest_of      over the lanes; sum4 stores the sums of four vectors
//   to_float, to_int        the latter to even;  bits_of, float_of: the same bits
//   store_narrow            I as 16 int8
//   transpose               16 x 16 floats in memory
//   load_bytes, store_bytes, add_bytes(b, x), look_up(b, table): 64 bytes; a table of 16, indexed by bytes below 16
//   field<S>(b, mask)       of each byte, (b >> S) & mask
//   field_into<S>(low, b, mask)  low | the same; a negative S shifts left
//   dot(sum, w, a)          sum + the four bytes of each lane of w, below 64, times a[0 .. 3]
//   dot_biased              the same where w holds q + 128; with kDotKeepsBias the caller adds -128 * (a[0] + ... a[3])
#pragma once

#include <cstddef>
#include <cstdint>

#define BATON_INLINE inline __attribute__((always_inline))
#define BATON_NOINLINE __attribute__((noinline))
#define BATON_LAMBDA __attribute__((always_inline))

namespace baton::simd {

inline constexpr int kLanes = 16;

namespace {

// Within this scope subnormal numbers, for each of which Intel's processors take some 150 cycles, are 0. Arm processors
// need no such help. The scope must surround a call that is not inlined: compilers move arithmetic across it.
class SubnormalsAreZero {
#if defined(__x86_64__)
 public:
  SubnormalsAreZero() { __builtin_ia32_ldmxcsr(saved_ | 0x8040); }  // flush results, and inputs
  ~SubnormalsAreZero() { __builtin_ia32_ldmxcsr(saved_); }

 private:
  const unsigned saved_ = __builtin_ia32_stmxcsr();
#else
 public:
  SubnormalsAreZero() {}
#endif
};

}  // namespace
}  // namespace baton::simd

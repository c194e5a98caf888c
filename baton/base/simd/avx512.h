// Sixteen lanes as one AVX-512 register: F, BW, DQ, VL and VNNI. The words are explained in simd.h.
#pragma once

#include <immintrin.h>

#include "baton/base/simd/simd.h"

#ifdef BATON_SIMD
#error "one instruction set a file"
#endif
#define BATON_SIMD

namespace baton::simd {
namespace {

struct F {
  __m512 v;
};
struct I {
  __m512i v;
};
struct B {
  __m512i v;
};
struct M {
  __mmask16 v;
};

// ---- Floats ----

BATON_INLINE __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
BATON_INLINE F all(float x) { return {_mm512_set1_ps(x)}; }
BATON_INLINE F load(const float* from) { return {_mm512_loadu_ps(from)}; }
BATON_INLINE F load(const float* from, int n) {
  return n == kLanes ? load(from) : F{_mm512_maskz_loadu_ps(first(n), from)};
}
BATON_INLINE void store(float* to, F a) { _mm512_storeu_ps(to, a.v); }
BATON_INLINE void store(float* to, F a, int n) {
  if (n == kLanes) return store(to, a);
  _mm512_mask_storeu_ps(to, first(n), a.v);
}
BATON_INLINE F operator+(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
BATON_INLINE F operator-(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
BATON_INLINE F operator*(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
BATON_INLINE F operator/(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
BATON_INLINE F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
BATON_INLINE F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
BATON_INLINE F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
BATON_INLINE F abs(F a) { return {_mm512_abs_ps(a.v)}; }
BATON_INLINE F sqrt(F a) { return {_mm512_sqrt_ps(a.v)}; }
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
BATON_INLINE F round(F a) { return {_mm512_roundscale_ps(a.v, kNearest)}; }
BATON_INLINE M operator<(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
BATON_INLINE M operator!=(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NEQ_UQ)}; }
BATON_INLINE M operator&(M a, M b) { return {_kand_mask16(a.v, b.v)}; }
BATON_INLINE bool any(M m) { return m.v != 0; }
BATON_INLINE F select(M m, F yes, F no) { return {_mm512_mask_mov_ps(no.v, m.v, yes.v)}; }
BATON_INLINE float sum_of(F a) { return _mm512_reduce_add_ps(a.v); }
BATON_INLINE float highest_of(F a) { return _mm512_reduce_max_ps(a.v); }
BATON_INLINE __m256 fold(F a) { return _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1)); }
BATON_INLINE void sum4(F a, F b, F c, F d, float* to) {
  const __m256 ab = _mm256_hadd_ps(fold(a), fold(b)), cd = _mm256_hadd_ps(fold(c), fold(d));
  const __m256 all_four = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(all_four), _mm256_extractf128_ps(all_four, 1)));
}
BATON_INLINE F scale_by_power(F a, F n) { return {_mm512_scalef_ps(a.v, n.v)}; }

BATON_INLINE F load_f16(const void* from) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from)))};
}
BATON_INLINE F load_f16(const void* from, int n) {
  return n == kLanes ? load_f16(from) : F{_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), from))};
}
BATON_INLINE __m256i narrow(F a) { return _mm512_cvtps_ph(a.v, kNearest); }
BATON_INLINE void store_f16(uint16_t* to, F a) {
  _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to)), narrow(a));
}
BATON_INLINE void store_f16(uint16_t* to, F a, int n) {
  if (n == kLanes) return store_f16(to, a);
  _mm256_mask_storeu_epi16(to, first(n), narrow(a));
}
BATON_INLINE F load_bf16(const void* from) {
  const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(from));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
BATON_INLINE F load_bf16(const void* from, int n) {
  if (n == kLanes) return load_bf16(from);
  const __m256i bits = _mm256_maskz_loadu_epi16(first(n), from);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
BATON_INLINE F all_f16(const void* from) {
  int16_t bits;
  __builtin_memcpy(&bits, from, 2);
  return {_mm512_cvtph_ps(_mm256_set1_epi16(bits))};
}
BATON_INLINE void load_bf16_pairs(const unsigned char* from, F& even, F& odd) {
  const __m512i pairs = _mm512_loadu_si512(from);
  even.v = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  odd.v = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
// Pairs, quads and halves of 128-bit parts, then the parts themselves.
inline void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  __m512 r[16], s[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(from + i * from_stride);
  for (int i = 0; i < 8; ++i) {
    s[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    s[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(s[4 * i]), b = _mm512_castps_pd(s[4 * i + 1]);
    const __m512d c = _mm512_castps_pd(s[4 * i + 2]), d = _mm512_castps_pd(s[4 * i + 3]);
    r[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    r[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  // r[4i + j]: column j of rows 4i .. 4i + 3 in each 128-bit part; part p is columns 4p + j.
  for (int j = 0; j < 4; ++j) {
    const __m512 low01 = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x44),
                 high01 = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xee);
    const __m512 low23 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x44);
    const __m512 high23 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xee);
    _mm512_storeu_ps(to + j * to_stride, _mm512_shuffle_f32x4(low01, low23, 0x88));
    _mm512_storeu_ps(to + (4 + j) * to_stride, _mm512_shuffle_f32x4(low01, low23, 0xdd));
    _mm512_storeu_ps(to + (8 + j) * to_stride, _mm512_shuffle_f32x4(high01, high23, 0x88));
    _mm512_storeu_ps(to + (12 + j) * to_stride, _mm512_shuffle_f32x4(high01, high23, 0xdd));
  }
}

// ---- Integers ----

BATON_INLINE __m128i load_128(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
BATON_INLINE I all(int32_t x) { return {_mm512_set1_epi32(x)}; }
BATON_INLINE I load_u8(const void* from) { return {_mm512_cvtepu8_epi32(load_128(from))}; }
BATON_INLINE I load_i8(const void* from) { return {_mm512_cvtepi8_epi32(load_128(from))}; }
BATON_INLINE I operator+(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
BATON_INLINE I operator-(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
BATON_INLINE I operator&(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
BATON_INLINE I operator<<(I a, int n) { return {_mm512_slli_epi32(a.v, static_cast<unsigned>(n))}; }
BATON_INLINE I operator>>(I a, int n) { return {_mm512_srai_epi32(a.v, static_cast<unsigned>(n))}; }
BATON_INLINE I min(I a, I b) { return {_mm512_min_epi32(a.v, b.v)}; }
BATON_INLINE I max(I a, I b) { return {_mm512_max_epi32(a.v, b.v)}; }
BATON_INLINE F to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
BATON_INLINE I to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; }
BATON_INLINE F float_of(I a) { return {_mm512_castsi512_ps(a.v)}; }
BATON_INLINE I bits_of(F a) { return {_mm512_castps_si512(a.v)}; }
BATON_INLINE int32_t sum_of(I a) { return _mm512_reduce_add_epi32(a.v); }
BATON_INLINE void store_narrow(int8_t* to, I a) {
  _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(to)), _mm512_cvtepi32_epi8(a.v));
}

// ---- Bytes ----

BATON_INLINE B load_bytes(const unsigned char* from) { return {_mm512_loadu_si512(from)}; }
BATON_INLINE void store_bytes(unsigned char* to, B a) { _mm512_storeu_si512(to, a.v); }
// Bits cross from byte to byte: the mask is what makes them fields.
template <int Shift>
BATON_INLINE __m512i moved(B b) {
  if constexpr (Shift > 0) return _mm512_srli_epi16(b.v, Shift);
  if constexpr (Shift < 0) return _mm512_slli_epi16(b.v, -Shift);
  return b.v;
}
template <int Shift>
BATON_INLINE B field(B b, int mask) {
  return {_mm512_and_si512(moved<Shift>(b), _mm512_set1_epi8(static_cast<char>(mask)))};
}
// low | (moved & mask): one ternary-logic instruction.
template <int Shift>
BATON_INLINE B field_into(B low, B b, int mask) {
  return {_mm512_ternarylogic_epi32(low.v, moved<Shift>(b), _mm512_set1_epi8(static_cast<char>(mask)), 0xf8)};
}
BATON_INLINE B look_up(B codes, const unsigned char* table) {
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_128(table)), codes.v)};
}
BATON_INLINE B add_bytes(B a, int x) { return {_mm512_add_epi8(a.v, _mm512_set1_epi8(static_cast<char>(x)))}; }
// The products are of unsigned by signed bytes.
constexpr bool kDotKeepsBias = true;
BATON_INLINE I dot(I sum, B w, const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, 4);
  return {_mm512_dpbusd_epi32(sum.v, w.v, _mm512_set1_epi32(four))};
}
BATON_INLINE I dot_biased(I sum, B w, const int8_t* a) { return dot(sum, w, a); }

}  // namespace
}  // namespace baton::simd

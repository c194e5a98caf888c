// Sixteen lanes as two AVX2 registers: AVX2, FMA and F16C. The words are explained in simd.h.
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
  __m256 low, high;
};
struct I {
  __m256i low, high;
};
struct B {
  __m256i low, high;
};
struct M {
  __m256 low, high;
};

// ---- Floats ----

BATON_INLINE F all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
BATON_INLINE F load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
BATON_INLINE void store(float* to, F a) {
  _mm256_storeu_ps(to, a.low);
  _mm256_storeu_ps(to + 8, a.high);
}
// Lanes [8 half, 8 half + 8) below n.
BATON_INLINE __m256i first(int n, int half) {
  const __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(8 * half));
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}
BATON_INLINE F load(const float* from, int n) {
  if (n == kLanes) return load(from);
  const __m256 low = _mm256_maskload_ps(from, first(n, 0));
  return {low, n > 8 ? _mm256_maskload_ps(from + 8, first(n, 1)) : _mm256_setzero_ps()};
}
BATON_INLINE void store(float* to, F a, int n) {
  if (n == kLanes) return store(to, a);
  _mm256_maskstore_ps(to, first(n, 0), a.low);
  if (n > 8) _mm256_maskstore_ps(to + 8, first(n, 1), a.high);
}
BATON_INLINE F operator+(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
BATON_INLINE F operator-(F a, F b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
BATON_INLINE F operator*(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
BATON_INLINE F operator/(F a, F b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
BATON_INLINE F fma(F a, F b, F c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
BATON_INLINE F min(F a, F b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
BATON_INLINE F max(F a, F b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
BATON_INLINE F abs(F a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
BATON_INLINE F sqrt(F a) { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
BATON_INLINE F round(F a) { return {_mm256_round_ps(a.low, kNearest), _mm256_round_ps(a.high, kNearest)}; }
BATON_INLINE M operator<(F a, F b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
BATON_INLINE M operator!=(F a, F b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_NEQ_UQ), _mm256_cmp_ps(a.high, b.high, _CMP_NEQ_UQ)};
}
BATON_INLINE M operator&(M a, M b) { return {_mm256_and_ps(a.low, b.low), _mm256_and_ps(a.high, b.high)}; }
BATON_INLINE bool any(M m) { return _mm256_movemask_ps(_mm256_or_ps(m.low, m.high)) != 0; }
BATON_INLINE F select(M m, F yes, F no) {
  return {_mm256_blendv_ps(no.low, yes.low, m.low), _mm256_blendv_ps(no.high, yes.high, m.high)};
}
BATON_INLINE __m128 fold(__m256 a) { return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); }
BATON_INLINE float sum_of(F a) {
  __m128 s = fold(_mm256_add_ps(a.low, a.high));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
BATON_INLINE float highest_of(F a) {
  const __m256 m = _mm256_max_ps(a.low, a.high);
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
BATON_INLINE void sum4(F a, F b, F c, F d, float* to) {
  const __m256 ab = _mm256_hadd_ps(_mm256_add_ps(a.low, a.high), _mm256_add_ps(b.low, b.high));
  const __m256 cd = _mm256_hadd_ps(_mm256_add_ps(c.low, c.high), _mm256_add_ps(d.low, d.high));
  _mm_storeu_ps(to, fold(_mm256_hadd_ps(ab, cd)));
}
BATON_INLINE __m256 power_of_two(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
BATON_INLINE F scale_by_power(F a, F n) {
  return {_mm256_mul_ps(a.low, power_of_two(n.low)), _mm256_mul_ps(a.high, power_of_two(n.high))};
}

BATON_INLINE __m128i load_128(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
BATON_INLINE void store_128(void* to, __m128i bits) { _mm_storeu_si128(static_cast<__m128i*>(to), bits); }
BATON_INLINE F load_f16(const void* from) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  return {_mm256_cvtph_ps(load_128(bytes)), _mm256_cvtph_ps(load_128(bytes + 16))};
}
BATON_INLINE F load_f16(const void* from, int n) {
  if (n == kLanes) return load_f16(from);
  uint16_t bits[16] = {};
  for (int i = 0; i < n; ++i) bits[i] = static_cast<const uint16_t*>(from)[i];
  return load_f16(bits);
}
BATON_INLINE void store_f16(uint16_t* to, F a) {
  store_128(to, _mm256_cvtps_ph(a.low, kNearest));
  store_128(to + 8, _mm256_cvtps_ph(a.high, kNearest));
}
BATON_INLINE void store_f16(uint16_t* to, F a, int n) {
  if (n == kLanes) return store_f16(to, a);
  uint16_t bits[16];
  store_f16(bits, a);
  for (int i = 0; i < n; ++i) to[i] = bits[i];
}
BATON_INLINE __m256i load_256(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
BATON_INLINE __m256 widen_bf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
BATON_INLINE F load_bf16(const void* from) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  return {widen_bf16(load_128(bytes)), widen_bf16(load_128(bytes + 16))};
}
BATON_INLINE F load_bf16(const void* from, int n) {
  if (n == kLanes) return load_bf16(from);
  uint16_t bits[16] = {};
  __builtin_memcpy(bits, from, static_cast<size_t>(n) * 2);
  return load_bf16(bits);
}
BATON_INLINE F all_f16(const void* from) {
  int16_t bits;
  __builtin_memcpy(&bits, from, 2);
  const __m256 value = _mm256_cvtph_ps(_mm_set1_epi16(bits));
  return {value, value};
}
BATON_INLINE void load_bf16_pairs(const unsigned char* from, F& even, F& odd) {
  const __m256i low = load_256(from), high = load_256(from + 32);
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  even = {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
  odd = {_mm256_castsi256_ps(_mm256_and_si256(low, upper)), _mm256_castsi256_ps(_mm256_and_si256(high, upper))};
}
// 8 x 8 at a time: rows i and i + 4 share a register, so that 4 x 4 are turned in each half.
inline void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  for (int i = 0; i < 16; i += 8) {
    for (int j = 0; j < 16; j += 4) {
      __m256 r[4];
      for (int k = 0; k < 4; ++k) {
        const float* at = from + (i + k) * from_stride + j;
        r[k] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(at)), _mm_loadu_ps(at + 4 * from_stride), 1);
      }
      const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(r[0], r[1]));
      const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(r[2], r[3]));
      const __m256d high01 = _mm256_castps_pd(_mm256_unpackhi_ps(r[0], r[1]));
      const __m256d high23 = _mm256_castps_pd(_mm256_unpackhi_ps(r[2], r[3]));
      float* out = to + j * to_stride + i;
      _mm256_storeu_ps(out, _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23)));
      _mm256_storeu_ps(out + to_stride, _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23)));
      _mm256_storeu_ps(out + 2 * to_stride, _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23)));
      _mm256_storeu_ps(out + 3 * to_stride, _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23)));
    }
  }
}

// ---- Integers ----

BATON_INLINE I all(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
BATON_INLINE I load_u8(const void* from) {
  const __m128i bytes = load_128(from);
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
BATON_INLINE I load_i8(const void* from) {
  const __m128i bytes = load_128(from);
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
BATON_INLINE I operator+(I a, I b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
BATON_INLINE I operator-(I a, I b) { return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)}; }
BATON_INLINE I operator&(I a, I b) { return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)}; }
BATON_INLINE I operator<<(I a, int n) { return {_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)}; }
BATON_INLINE I operator>>(I a, int n) { return {_mm256_srai_epi32(a.low, n), _mm256_srai_epi32(a.high, n)}; }
BATON_INLINE I min(I a, I b) { return {_mm256_min_epi32(a.low, b.low), _mm256_min_epi32(a.high, b.high)}; }
BATON_INLINE I max(I a, I b) { return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)}; }
BATON_INLINE F to_float(I a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
BATON_INLINE I to_int(F a) { return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)}; }
BATON_INLINE F float_of(I a) { return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}; }
BATON_INLINE I bits_of(F a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }
BATON_INLINE int32_t sum_of(I a) {
  const __m256i halves = _mm256_add_epi32(a.low, a.high);
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
BATON_INLINE void store_narrow(int8_t* to, I a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
  store_128(to, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

// ---- Bytes ----

BATON_INLINE B load_bytes(const unsigned char* from) { return {load_256(from), load_256(from + 32)}; }
BATON_INLINE void store_bytes(unsigned char* to, B a) {
  _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to)), a.low);
  _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to + 32)), a.high);
}
// Bits cross from byte to byte: the mask is what makes them fields.
template <int Shift>
BATON_INLINE __m256i field(__m256i b, int mask) {
  if constexpr (Shift > 0) b = _mm256_srli_epi16(b, Shift);
  if constexpr (Shift < 0) b = _mm256_slli_epi16(b, -Shift);
  return _mm256_and_si256(b, _mm256_set1_epi8(static_cast<char>(mask)));
}
template <int Shift>
BATON_INLINE B field(B b, int mask) {
  return {field<Shift>(b.low, mask), field<Shift>(b.high, mask)};
}
template <int Shift>
BATON_INLINE B field_into(B low, B b, int mask) {
  return {_mm256_or_si256(low.low, field<Shift>(b.low, mask)), _mm256_or_si256(low.high, field<Shift>(b.high, mask))};
}
BATON_INLINE B look_up(B codes, const unsigned char* table) {
  const __m256i values = _mm256_broadcastsi128_si256(load_128(table));
  return {_mm256_shuffle_epi8(values, codes.low), _mm256_shuffle_epi8(values, codes.high)};
}
BATON_INLINE B add_bytes(B a, int x) {
  const __m256i bytes = _mm256_set1_epi8(static_cast<char>(x));
  return {_mm256_add_epi8(a.low, bytes), _mm256_add_epi8(a.high, bytes)};
}
constexpr bool kDotKeepsBias = false;
BATON_INLINE __m256i four(const int8_t* a) {
  int32_t bytes;
  __builtin_memcpy(&bytes, a, 4);
  return _mm256_set1_epi32(bytes);
}
BATON_INLINE __m256i widen_add(__m256i sum, __m256i pairs) {
  __m256i made = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  __asm__("" : "+x"(made));
  return made;
}
// Below 64: a pair of products fits 16 bits.
BATON_INLINE I dot(I sum, B w, const int8_t* a) {
  const __m256i x = four(a);
  return {widen_add(sum.low, _mm256_maddubs_epi16(w.low, x)), widen_add(sum.high, _mm256_maddubs_epi16(w.high, x))};
}
// |w| <= 128 and |a| <= 127: 2 * 128 * 127 fits 16 bits.
BATON_INLINE __m256i dot_half(__m256i sum, __m256i w, __m256i x) {
  const __m256i centred = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
  return widen_add(sum, _mm256_maddubs_epi16(_mm256_abs_epi8(centred), _mm256_sign_epi8(x, centred)));
}
BATON_INLINE I dot_biased(I sum, B w, const int8_t* a) {
  const __m256i x = four(a);
  return {dot_half(sum.low, w.low, x), dot_half(sum.high, w.high, x)};
}

}  // namespace
}  // namespace baton::simd

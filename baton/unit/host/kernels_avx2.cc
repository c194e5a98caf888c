// Sixteen lanes as two AVX2 registers. Needs AVX2, FMA and F16C; this file alone is compiled for them.
#include "baton/unit/host/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace baton::host {
namespace {

#include "baton/unit/host/kernels_loops.inl.h"

struct Lanes {
  struct F {
    __m256 low, high;
  };
  struct I {
    __m256i low, high;
  };
  struct B {
    __m256i low, high;
  };
  // 16 registers: 4 + 4 accumulators for integers (and |w|, the activations, a product), 12 for floats.
  static constexpr int kIntegerPanels = 1, kIntegerTokens = 2, kFloatPanels = 1, kFloatTokens = 6;
  static constexpr int kDirectTokens = 4;  // up to here weights are unpacked in registers, once for all tokens

  static BATON_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static BATON_INLINE F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static BATON_INLINE F load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static BATON_INLINE void store(float* to, F a) {
    _mm256_storeu_ps(to, a.low);
    _mm256_storeu_ps(to + 8, a.high);
  }
  // Lanes [8 half, 8 half + 8) below n.
  static BATON_INLINE __m256i first(int n, int half) {
    const __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(8 * half));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
  }
  static BATON_INLINE F load_n(const float* from, int n) {
    const __m256 low = _mm256_maskload_ps(from, first(n, 0));
    return {low, n > 8 ? _mm256_maskload_ps(from + 8, first(n, 1)) : _mm256_setzero_ps()};
  }
  static BATON_INLINE void store_n(float* to, F a, int n) {
    _mm256_maskstore_ps(to, first(n, 0), a.low);
    if (n > 8) _mm256_maskstore_ps(to + 8, first(n, 1), a.high);
  }
  static BATON_INLINE F add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static BATON_INLINE F sub(F a, F b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  static BATON_INLINE F mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static BATON_INLINE F div(F a, F b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static BATON_INLINE F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static BATON_INLINE F min(F a, F b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
  static BATON_INLINE F max(F a, F b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static BATON_INLINE F abs(F a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
  }
  static BATON_INLINE F round(F a) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.low, kNearest), _mm256_round_ps(a.high, kNearest)};
  }
  static BATON_INLINE __m128 fold(__m256 a) {
    return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  }
  static BATON_INLINE float sum(F a) {
    __m128 s = fold(_mm256_add_ps(a.low, a.high));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static BATON_INLINE float highest(F a) {
    const __m256 m = _mm256_max_ps(a.low, a.high);
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }
  static BATON_INLINE void sum4(F a, F b, F c, F d, float* to) {
    const __m256 ab = _mm256_hadd_ps(_mm256_add_ps(a.low, a.high), _mm256_add_ps(b.low, b.high));
    const __m256 cd = _mm256_hadd_ps(_mm256_add_ps(c.low, c.high), _mm256_add_ps(d.low, d.high));
    _mm_storeu_ps(to, fold(_mm256_hadd_ps(ab, cd)));
  }
  static BATON_INLINE __m256 power_of_two(__m256 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static BATON_INLINE F scale_by_power(F a, F n) {
    return {_mm256_mul_ps(a.low, power_of_two(n.low)), _mm256_mul_ps(a.high, power_of_two(n.high))};
  }
  static BATON_INLINE __m256 limit(__m256 y, __m256 x) {
    y = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-87.3f), _CMP_LT_OQ), y);
    y = _mm256_blendv_ps(y, _mm256_set1_ps(__builtin_inff()), _mm256_cmp_ps(x, _mm256_set1_ps(88.37f), _CMP_GT_OQ));
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }
  static BATON_INLINE F exp_limits(F y, F x) { return {limit(y.low, x.low), limit(y.high, x.high)}; }

  static BATON_INLINE __m128i load_128(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
  static BATON_INLINE F load_f16(const void* from) {
    const auto* bytes = static_cast<const unsigned char*>(from);
    return {_mm256_cvtph_ps(load_128(bytes)), _mm256_cvtph_ps(load_128(bytes + 16))};
  }
  static BATON_INLINE F load_f16_n(const uint16_t* from, int n) {
    uint16_t bits[16] = {};
    for (int i = 0; i < n; ++i) bits[i] = from[i];
    return load_f16(bits);
  }
  static BATON_INLINE void store_f16(uint16_t* to, F a) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(to)), _mm256_cvtps_ph(a.low, kNearest));
    _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(to + 8)), _mm256_cvtps_ph(a.high, kNearest));
  }
  static BATON_INLINE void store_f16_n(uint16_t* to, F a, int n) {
    uint16_t bits[16];
    store_f16(bits, a);
    for (int i = 0; i < n; ++i) to[i] = bits[i];
  }
  static BATON_INLINE void load_bf16_pairs(const void* from, F& even, F& odd) {
    const B pairs = load_bytes(static_cast<const unsigned char*>(from));
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(pairs.low, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(pairs.high, 16))};
    odd = {_mm256_castsi256_ps(_mm256_and_si256(pairs.low, upper)),
           _mm256_castsi256_ps(_mm256_and_si256(pairs.high, upper))};
  }
  static BATON_INLINE F load_u8(const unsigned char* from) {
    const __m128i bytes = load_128(from);
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
  }
  static BATON_INLINE F load_i8(const unsigned char* from) {
    const __m128i bytes = load_128(from);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
  }
  static BATON_INLINE I wide_u8(const unsigned char* from) {
    const __m128i bytes = load_128(from);
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static BATON_INLINE F load_low_nibbles(const unsigned char* from) {
    const I wide = wide_u8(from);
    const __m256i mask = _mm256_set1_epi32(15);
    return {_mm256_cvtepi32_ps(_mm256_and_si256(wide.low, mask)),
            _mm256_cvtepi32_ps(_mm256_and_si256(wide.high, mask))};
  }
  static BATON_INLINE F load_high_nibbles(const unsigned char* from) {
    const I wide = wide_u8(from);
    return {_mm256_cvtepi32_ps(_mm256_srli_epi32(wide.low, 4)), _mm256_cvtepi32_ps(_mm256_srli_epi32(wide.high, 4))};
  }
  // 2^(e - 128); the first two are denormal: 1 << 21 and 2 << 21.
  static BATON_INLINE __m256 half_power(__m256i e) {
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i denormal = _mm256_slli_epi32(_mm256_add_epi32(_mm256_min_epi32(e, one), one), 21);
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_slli_epi32(_mm256_sub_epi32(e, one), 23), denormal));
  }
  static BATON_INLINE F load_half_powers(const unsigned char* from) {
    const I e = wide_u8(from);
    return {half_power(e.low), half_power(e.high)};
  }
  static void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    for (int i = 0; i < 16; i += 4) {
      for (int j = 0; j < 16; j += 4) {
        const float* at = from + i * from_stride + j;
        __m128 a = _mm_loadu_ps(at), b = _mm_loadu_ps(at + from_stride);
        __m128 c = _mm_loadu_ps(at + 2 * from_stride), d = _mm_loadu_ps(at + 3 * from_stride);
        _MM_TRANSPOSE4_PS(a, b, c, d);
        float* out = to + j * to_stride + i;
        _mm_storeu_ps(out, a);
        _mm_storeu_ps(out + to_stride, b);
        _mm_storeu_ps(out + 2 * to_stride, c);
        _mm_storeu_ps(out + 3 * to_stride, d);
      }
    }
  }

  static BATON_INLINE __m256i load_256(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  static BATON_INLINE B load_bytes(const unsigned char* from) { return {load_256(from), load_256(from + 32)}; }
  static BATON_INLINE void store_bytes(unsigned char* to, B a) {
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to)), a.low);
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to + 32)), a.high);
  }
  static BATON_INLINE B masked(B a, int mask) {
    const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
    return {_mm256_and_si256(a.low, m), _mm256_and_si256(a.high, m)};
  }
  template <int Bits>
  static BATON_INLINE B shifted(B a) {  // right when positive; bits cross bytes, the caller masks
    if constexpr (Bits > 0) return {_mm256_srli_epi16(a.low, Bits), _mm256_srli_epi16(a.high, Bits)};
    return {_mm256_slli_epi16(a.low, -Bits), _mm256_slli_epi16(a.high, -Bits)};
  }
  static BATON_INLINE B either(B a, B b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }
  static BATON_INLINE B low_nibbles(B a) { return masked(a, 15); }
  static BATON_INLINE B high_nibbles(B a) { return masked(shifted<4>(a), 15); }
  template <int Bit>
  static BATON_INLINE B with_bit4(B low, B high) {
    return either(low, masked(shifted<Bit - 4>(high), 16));
  }
  template <int Pair>
  static BATON_INLINE B with_bits45(B low, B high) {
    return either(low, masked(shifted<2 * Pair - 4>(high), 48));
  }
  template <int Pair>
  static BATON_INLINE B bit_pairs(B a) {
    return masked(shifted<2 * Pair>(a), 3);
  }
  template <int Bit>
  static BATON_INLINE B with_bit2(B low, B high) {
    return either(low, masked(shifted<Bit - 2>(high), 4));
  }
  static BATON_INLINE B look_up(B codes, const unsigned char* table) {
    const __m256i all = _mm256_broadcastsi128_si256(load_128(table));
    return {_mm256_shuffle_epi8(all, codes.low), _mm256_shuffle_epi8(all, codes.high)};
  }
  static BATON_INLINE B add_bytes(B a, int x) {
    const __m256i all = _mm256_set1_epi8(static_cast<char>(x));
    return {_mm256_add_epi8(a.low, all), _mm256_add_epi8(a.high, all)};
  }
  static BATON_INLINE I zero_int() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static BATON_INLINE I start_biased(const int32_t*) { return zero_int(); }
  static BATON_INLINE __m256i four(const int8_t* a) {
    int32_t bytes;
    __builtin_memcpy(&bytes, a, 4);
    return _mm256_set1_epi32(bytes);
  }
  static BATON_INLINE __m256i widen_add(__m256i sum, __m256i pairs) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  // Plain values stay below 64, so a pair of products fits 16 bits.
  static BATON_INLINE I dot_plain(I sum, B w, const int8_t* a) {
    const __m256i x = four(a);
    return {widen_add(sum.low, _mm256_maddubs_epi16(w.low, x)), widen_add(sum.high, _mm256_maddubs_epi16(w.high, x))};
  }
  // |w| <= 128 and |a| <= 127: 2 * 128 * 127 fits 16 bits.
  static BATON_INLINE __m256i dot_half(__m256i sum, __m256i w, __m256i x) {
    const __m256i centred = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
    return widen_add(sum, _mm256_maddubs_epi16(_mm256_abs_epi8(centred), _mm256_sign_epi8(x, centred)));
  }
  static BATON_INLINE I dot_biased(I sum, B w, const int8_t* a) {
    const __m256i x = four(a);
    return {dot_half(sum.low, w.low, x), dot_half(sum.high, w.high, x)};
  }
  static BATON_INLINE F to_float(I a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
  static BATON_INLINE I times_128(I a) { return {_mm256_slli_epi32(a.low, 7), _mm256_slli_epi32(a.high, 7)}; }
  static BATON_INLINE void store_narrow(int8_t* to, I a) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(to)), bytes);
  }
  static BATON_INLINE I to_int(F a) { return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)}; }
  static BATON_INLINE __m256i divide_half(__m256i a) {
    return _mm256_srai_epi32(_mm256_add_epi32(a, _mm256_set1_epi32(64)), 7);
  }
  static BATON_INLINE I divide_128(I a) { return {divide_half(a.low), divide_half(a.high)}; }
  static BATON_INLINE I sub_int(I a, I b) { return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)}; }
  static BATON_INLINE int32_t sum_int(I a) {
    const __m256i all = _mm256_add_epi32(a.low, a.high);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
  }
};

#include "baton/unit/host/kernels_table.inl.h"

}  // namespace

const Kernels& kernels_avx2();
const Kernels& kernels_avx2() {
  static constexpr Kernels kKernels = make_kernels("avx2", "avx2-fma");
  return kKernels;
}

}  // namespace baton::host

#endif

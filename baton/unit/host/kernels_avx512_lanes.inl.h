// Sixteen lanes as one AVX-512 register: F, BW, DQ, VL and VNNI. Included as kernels_loops.inl.h is, after it.

struct Lanes {
  using F = __m512;
  using I = __m512i;
  using B = __m512i;
  // 12 + 12 accumulators for integers, 24 for floats, of 32 registers.
  static constexpr int kIntegerPanels = 2, kIntegerTokens = 6, kFloatPanels = 2, kFloatTokens = 12;
  static constexpr int kDirectTokens = 8;  // up to here weights are unpacked in registers, once for all tokens

  static BATON_INLINE __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

  static BATON_INLINE F zero() { return _mm512_setzero_ps(); }
  static BATON_INLINE F set1(float x) { return _mm512_set1_ps(x); }
  static BATON_INLINE F load(const float* from) { return _mm512_loadu_ps(from); }
  static BATON_INLINE F load_n(const float* from, int n) { return _mm512_maskz_loadu_ps(first(n), from); }
  static BATON_INLINE void store(float* to, F a) { _mm512_storeu_ps(to, a); }
  static BATON_INLINE void store_n(float* to, F a, int n) { _mm512_mask_storeu_ps(to, first(n), a); }
  static BATON_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  static BATON_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static BATON_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static BATON_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
  static BATON_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static BATON_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
  static BATON_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
  static BATON_INLINE F abs(F a) { return _mm512_abs_ps(a); }
  static BATON_INLINE F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static BATON_INLINE float sum(F a) { return _mm512_reduce_add_ps(a); }
  static BATON_INLINE float highest(F a) { return _mm512_reduce_max_ps(a); }
  static BATON_INLINE __m256 fold(F a) {
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  }
  static BATON_INLINE void sum4(F a, F b, F c, F d, float* to) {
    const __m256 ab = _mm256_hadd_ps(fold(a), fold(b)), cd = _mm256_hadd_ps(fold(c), fold(d));
    const __m256 all = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
  static BATON_INLINE F scale_by_power(F a, F n) { return _mm512_scalef_ps(a, n); }
  static BATON_INLINE F exp_limits(F y, F x) {
    y = _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, set1(-87.3f), _CMP_LT_OQ), zero());
    y = _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, set1(88.37f), _CMP_GT_OQ), set1(__builtin_inff()));
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
  }
  static BATON_INLINE F load_f16(const void* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
  }
  static BATON_INLINE F load_f16_n(const uint16_t* from, int n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), from));
  }
  static BATON_INLINE __m256i narrow(F a) { return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static BATON_INLINE void store_f16(uint16_t* to, F a) {
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to)), narrow(a));
  }
  static BATON_INLINE void store_f16_n(uint16_t* to, F a, int n) { _mm256_mask_storeu_epi16(to, first(n), narrow(a)); }
  static BATON_INLINE void load_bf16_pairs(const void* from, F& even, F& odd) {
    const __m512i pairs = _mm512_loadu_si512(from);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static BATON_INLINE __m128i load_128(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
  static BATON_INLINE F load_u8(const unsigned char* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_128(from)));
  }
  static BATON_INLINE F load_i8(const unsigned char* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_128(from)));
  }
  static BATON_INLINE F load_low_nibbles(const unsigned char* from) {
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_cvtepu8_epi32(load_128(from)), _mm512_set1_epi32(15)));
  }
  static BATON_INLINE F load_high_nibbles(const unsigned char* from) {
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_cvtepu8_epi32(load_128(from)), 4));
  }
  // 2^(e - 128); the first two are denormal: 1 << 21 and 2 << 21.
  static BATON_INLINE F load_half_powers(const unsigned char* from) {
    const __m512i e = _mm512_cvtepu8_epi32(load_128(from)), one = _mm512_set1_epi32(1);
    const __m512i denormal = _mm512_slli_epi32(_mm512_add_epi32(_mm512_min_epi32(e, one), one), 21);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
    return _mm512_castsi512_ps(_mm512_max_epi32(normal, denormal));
  }
  // 16 x 16: pairs, quads and halves of 128-bit parts, then the parts themselves.
  static void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    __m512 r[16], s[16];
    for (int i = 0; i < 16; ++i) r[i] = load(from + i * from_stride);
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
      store(to + j * to_stride, _mm512_shuffle_f32x4(low01, low23, 0x88));
      store(to + (4 + j) * to_stride, _mm512_shuffle_f32x4(low01, low23, 0xdd));
      store(to + (8 + j) * to_stride, _mm512_shuffle_f32x4(high01, high23, 0x88));
      store(to + (12 + j) * to_stride, _mm512_shuffle_f32x4(high01, high23, 0xdd));
    }
  }

  static BATON_INLINE B load_bytes(const unsigned char* from) { return _mm512_loadu_si512(from); }
  static BATON_INLINE void store_bytes(unsigned char* to, B a) { _mm512_storeu_si512(to, a); }
  static BATON_INLINE B low_nibbles(B a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
  static BATON_INLINE B high_nibbles(B a) { return low_nibbles(_mm512_srli_epi16(a, 4)); }
  // low | (high & mask), one ternary-logic instruction.
  static BATON_INLINE B merge(B low, B high, B mask) { return _mm512_ternarylogic_epi32(low, high, mask, 0xf8); }
  template <int Bit>
  static BATON_INLINE B with_bit4(B low, B high) {
    if constexpr (Bit < 4) return merge(low, _mm512_slli_epi16(high, 4 - Bit), _mm512_set1_epi8(16));
    return merge(low, _mm512_srli_epi16(high, Bit - 4), _mm512_set1_epi8(16));
  }
  template <int Pair>
  static BATON_INLINE B with_bits45(B low, B high) {
    if constexpr (Pair < 2) return merge(low, _mm512_slli_epi16(high, 4 - 2 * Pair), _mm512_set1_epi8(48));
    return merge(low, _mm512_srli_epi16(high, 2 * Pair - 4), _mm512_set1_epi8(48));
  }
  template <int Pair>
  static BATON_INLINE B bit_pairs(B a) {
    if constexpr (Pair == 0) return _mm512_and_si512(a, _mm512_set1_epi8(3));
    return _mm512_and_si512(_mm512_srli_epi16(a, 2 * Pair), _mm512_set1_epi8(3));
  }
  template <int Bit>
  static BATON_INLINE B with_bit2(B low, B high) {
    if constexpr (Bit < 2) return merge(low, _mm512_slli_epi16(high, 2 - Bit), _mm512_set1_epi8(4));
    return merge(low, _mm512_srli_epi16(high, Bit - 2), _mm512_set1_epi8(4));
  }
  static BATON_INLINE B look_up(B codes, const unsigned char* table) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_128(table)), codes);
  }
  static BATON_INLINE B add_bytes(B a, int x) { return _mm512_add_epi8(a, _mm512_set1_epi8(static_cast<char>(x))); }
  static BATON_INLINE I zero_int() { return _mm512_setzero_si512(); }
  static BATON_INLINE I start_biased(const int32_t* bias) { return _mm512_set1_epi32(*bias); }
  static BATON_INLINE I dot_plain(I sum, B w, const int8_t* a) {
    int32_t four;
    __builtin_memcpy(&four, a, 4);
    return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
  }
  static BATON_INLINE I dot_biased(I sum, B w, const int8_t* a) { return dot_plain(sum, w, a); }
  static BATON_INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  static BATON_INLINE I times_128(I a) { return _mm512_slli_epi32(a, 7); }
  static BATON_INLINE I to_int(F a) { return _mm512_cvtps_epi32(a); }
  static BATON_INLINE I divide_128(I a) { return _mm512_srai_epi32(_mm512_add_epi32(a, _mm512_set1_epi32(64)), 7); }
  static BATON_INLINE I sub_int(I a, I b) { return _mm512_sub_epi32(a, b); }
  static BATON_INLINE int32_t sum_int(I a) { return _mm512_reduce_add_epi32(a); }
  static BATON_INLINE void store_narrow(int8_t* to, I a) {
    _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(to)), _mm512_cvtepi32_epi8(a));
  }
};

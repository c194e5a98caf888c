// Between f32 and the bf16 of matrix tiles. Included as kernels_loops.inl.h is, after the lanes of AVX-512, by files
// compiled for AVX512-BF16.

constexpr int64_t kTile = 512;  // bf16 values of a tile: 16 rows of 32, or 16 pairs of k by 16 rows

// bf16 of [16 rows] for k and for k + 1, as pairs.
BATON_INLINE void store_pairs(uint16_t* to, __m512 even, __m512 odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m512bh both = _mm512_cvtne2ps_pbh(odd, even);
  __m512i bits;
  __builtin_memcpy(&bits, &both, sizeof(bits));
  _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, bits));
}

// x as the sum of two bf16.
BATON_INLINE __m512 upper_part(__m512 x) {
  const __m256bh rounded = _mm512_cvtneps_pbh(x);
  __m256i bits;
  __builtin_memcpy(&bits, &rounded, sizeof(bits));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

void to_tiles(const float* x, int64_t n, uint16_t* high, uint16_t* low) {
  for (int64_t k = 0; k < n; k += 32) {
    const __m512 first = Lanes::load(x + k), second = Lanes::load(x + k + 16);
    const auto store = [&](uint16_t* to, __m512 a, __m512 b) BATON_LAMBDA {
      const __m512bh both = _mm512_cvtne2ps_pbh(b, a);
      __builtin_memcpy(to + k / 32 * kTile, &both, 64);
    };
    store(high, first, second);
    if (low != nullptr) {
      store(low, Lanes::sub(first, upper_part(first)), Lanes::sub(second, upper_part(second)));
    }
  }
}

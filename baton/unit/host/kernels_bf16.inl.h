// Between f32 and the bf16 of matrix tiles, for files compiled for AVX-512 with AVX512-BF16.
#pragma once

#include "baton/base/simd/avx512.h"
#include "baton/unit/host/kernels_loops.inl.h"

namespace baton::host {
namespace {

constexpr int64_t kTile = 512;  // bf16 values of a tile: 16 rows of 32, or 16 pairs of k by 16 rows

// bf16 of [16 rows] for k and for k + 1, as pairs.
BATON_INLINE __m512bh pairs_of(F even, F odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m512bh both = _mm512_cvtne2ps_pbh(odd.v, even.v);
  __m512i bits;
  __builtin_memcpy(&bits, &both, sizeof(bits));
  bits = _mm512_permutexvar_epi16(order, bits);
  __builtin_memcpy(&both, &bits, sizeof(both));
  return both;
}
BATON_INLINE void store_pairs(uint16_t* to, F even, F odd) {
  const __m512bh pairs = pairs_of(even, odd);
  __builtin_memcpy(to, &pairs, sizeof(pairs));
}

// x as the sum of two bf16.
BATON_INLINE F upper_part(F x) {
  const __m256bh rounded = _mm512_cvtneps_pbh(x.v);
  __m256i bits;
  __builtin_memcpy(&bits, &rounded, sizeof(bits));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}

void to_tiles(const float* x, int64_t n, uint16_t* high, uint16_t* low) {
  const auto store_row = [](uint16_t* to, F a, F b) BATON_LAMBDA {
    const __m512bh both = _mm512_cvtne2ps_pbh(b.v, a.v);
    __builtin_memcpy(to, &both, 64);
  };
  for (int64_t k = 0; k < n; k += 32) {
    const F first_half = load(x + k), second = load(x + k + kLanes);
    store_row(high + k / 32 * kTile, first_half, second);
    if (low == nullptr) continue;
    store_row(low + k / 32 * kTile, first_half - upper_part(first_half), second - upper_part(second));
  }
}

}  // namespace
}  // namespace baton::host

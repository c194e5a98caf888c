// Products of 16-bit weights with the bf16 products of AVX-512, which Zen 4 does at twice the rate of f32 (Intel's
// processors do not). Activations are rounded to bf16, F16 weights as well: 8 bits, relative to each value. docs/cpu.md
// has what that costs. Needs AVX512-BF16 beside what kernels_avx512.cc needs.
#if defined(__x86_64__)

#include "baton/unit/host/kernels_bf16.inl.h"

namespace baton::host {
namespace {

constexpr int kTokens = 8;  // by two panels: 16 sums, of 32 registers

BATON_INLINE __m512bh pairs_of(const uint16_t* from) {
  const __m512i bits = _mm512_loadu_si512(from);
  __m512bh out;
  __builtin_memcpy(&out, &bits, sizeof(out));
  return out;
}

BATON_INLINE __m512bh pair_everywhere(const uint16_t* from) {
  int32_t pair;
  __builtin_memcpy(&pair, from, sizeof(pair));
  const __m512i bits = _mm512_set1_epi32(pair);
  __m512bh out;
  __builtin_memcpy(&out, &bits, sizeof(out));
  return out;
}

// Half a group of 16 tokens against P panels of pairs [columns / 2][16 rows][2]. Sums of absent tokens are not written.
template <int P>
void bf16_tile(const uint16_t* const (&w)[P], const uint16_t* a, int64_t columns, int64_t tokens, float* out,
               int64_t out_stride, const int (&rows)[P], bool add) {
  F sum[P][kTokens] = {};
  for (int64_t b = 0; b < columns / kBlock; ++b, a += kTile) {
    for (int64_t pair = 0; pair < 16; ++pair) {
      __m512bh v[P];
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) v[p] = pairs_of(w[p] + b * kTile + 32 * pair);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const __m512bh x = pair_everywhere(a + 32 * t + 2 * pair);
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) sum[p][t].v = _mm512_dpbf16_ps(sum[p][t].v, v[p], x);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    if (t >= tokens) break;
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) write_rows(out + t * out_stride + kLanes * p, sum[p][t], rows[p], add);
  }
}

// unpack(panel's bytes, scratch): its pairs.
template <class Unpack>
void bf16_matmul(const Multiply& m, const Unpack& unpack) {
  const Matrix& w = *m.w;
  each_panel_group<2>(m.panel_begin, m.panel_end, [&](auto count, int64_t panel) BATON_LAMBDA {
    constexpr int kCount = decltype(count)::value;
    const uint16_t* pairs[kCount];
    int rows[kCount];
    for (int p = 0; p < kCount; ++p) {
      auto* const to = reinterpret_cast<uint16_t*>(m.scratch) + p * kLanes * w.columns;
      pairs[p] = unpack(w.data + (panel + p) * w.panel_bytes, to);
      rows[p] = rows_of(w, panel + p);
    }
    for (int64_t t = 0; t < m.tokens; t += kTokens) {
      const uint16_t* const x = m.x.high_tiles + t / kTileTokens * kTileTokens * w.columns + t % kTileTokens * kBlock;
      bf16_tile<kCount>(pairs, x, w.columns, m.tokens - t, m.out + t * m.out_stride + kLanes * panel, m.out_stride,
                        rows, m.add);
    }
  });
}

void bf16_weights(const Multiply& m) {
  bf16_matmul(m, [](const unsigned char* panel, uint16_t*) { return reinterpret_cast<const uint16_t*>(panel); });
}

void f16_weights(const Multiply& m) {
  bf16_matmul(m, [&](const unsigned char* panel, uint16_t* to) {
    for (int64_t k = 0; k < m.w->columns; k += 2) {
      store_pairs(to + kLanes * k, load_f16(panel + 32 * k), load_f16(panel + 32 * k + 32));
    }
    return static_cast<const uint16_t*>(to);
  });
}

}  // namespace

const Kernels& kernels_avx512();
// Quicker than AVX-512 with F32 and less exact: below it in the list, for who asks for it by name.
const Kernels& kernels_avx512bf16();
const Kernels& kernels_avx512bf16() {
  static const Kernels kernels = [] {
    Kernels k = kernels_avx512();
    k.name = "avx512bf16";
    k.description = "avx512bf16 and avx512-vnni";
    k.arithmetic.f16 = Arithmetic::kBF16Avx512;
    k.tile_matmul[static_cast<int>(Packing::kF16)] = f16_weights;
    k.tile_matmul[static_cast<int>(Packing::kBF16)] = bf16_weights;
    k.to_tiles = to_tiles;
    k.tile_tokens_min = 16;
    return k;
  }();
  return kernels;
}

}  // namespace baton::host

#endif

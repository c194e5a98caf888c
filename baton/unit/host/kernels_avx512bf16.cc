// Products of 16-bit weights with the bf16 products of AVX-512, which Zen 4 does at twice the rate of f32 (Intel's
// processors do not). Activations are rounded to bf16, F16 weights as well: 8 bits, relative to each value. docs/cpu.md
// has what that costs. Needs AVX512-BF16 beside what kernels_avx512.cc needs.
#if defined(__x86_64__)

#include "baton/unit/host/kernels_bf16.inl.h"

namespace baton::host {
namespace {

constexpr int kTokens = 8;  // by two panels: 16 sums, of 32 registers
static_assert(kTileTokens % kTokens == 0);

BATON_INLINE __m512bh pair_everywhere(const uint16_t* from) {
  int32_t pair;
  __builtin_memcpy(&pair, from, sizeof(pair));
  const __m512i bits = _mm512_set1_epi32(pair);
  __m512bh out;
  __builtin_memcpy(&out, &bits, sizeof(out));
  return out;
}

// Panels as [columns / 2][16 rows][2]: those of columns k and k + 1.
struct PairsBF16 {
  const uint16_t* panel;
  BATON_INLINE __m512bh at(int64_t k) const {
    const __m512i bits = _mm512_loadu_si512(panel + kLanes * k);
    __m512bh out;
    __builtin_memcpy(&out, &bits, sizeof(out));
    return out;
  }
};
struct PairsF16 {
  const unsigned char* panel;
  BATON_INLINE __m512bh at(int64_t k) const {
    return pairs_of(load_f16(panel + 32 * k), load_f16(panel + 32 * k + 32));
  }
};

// T tokens of a group of 16 against P panels. Sums of absent tokens are not written.
template <int P, int T, class Pairs>
void bf16_tile(const Pairs (&w)[P], const uint16_t* a, int64_t columns, int64_t tokens, float* out, int64_t out_stride,
               const int (&rows)[P], bool add) {
  F sum[P][T] = {};
  for (int64_t block = 0; block < columns; block += kBlock, a += kTile) {
    for (int64_t k = 0; k < kBlock; k += 2) {
      __m512bh v[P];
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) v[p] = w[p].at(block + k);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const __m512bh x = pair_everywhere(a + kBlock * t + k);
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) sum[p][t].v = _mm512_dpbf16_ps(sum[p][t].v, v[p], x);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    if (t >= tokens) break;
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) write_rows(out + t * out_stride + kLanes * p, sum[p][t], rows[p], add);
  }
}

// All tokens against P panels from `panel` on: the last of them by the smallest tile that takes them.
template <int P, class Pairs>
void bf16_panels(const Multiply& m, int64_t panel, const Pairs (&w)[P]) {
  int rows[P];
  for (int p = 0; p < P; ++p) rows[p] = rows_of(*m.w, panel + p);
  const int64_t columns = m.w->columns;
  const auto tile = [&](auto count, int64_t t) BATON_LAMBDA {
    const uint16_t* const x = m.x.high_tiles + t / kTileTokens * kTileTokens * columns + t % kTileTokens * kBlock;
    bf16_tile<P, decltype(count)::value>(w, x, columns, m.tokens - t, m.out + t * m.out_stride + kLanes * panel,
                                         m.out_stride, rows, m.add);
  };
  for (int64_t t = 0; t < m.tokens; t += kTokens) {
    const int64_t left = m.tokens - t;
    if (left > 4) {
      tile(Constant<kTokens>{}, t);
    } else if (left > 2) {
      tile(Constant<4>{}, t);
    } else if (left == 2) {
      tile(Constant<2>{}, t);
    } else {
      tile(Constant<1>{}, t);
    }
  }
}

void bf16_weights(const Multiply& m) {
  each_panel_group<2>(m.panel_begin, m.panel_end, [&](auto count, int64_t panel) BATON_LAMBDA {
    constexpr int P = decltype(count)::value;
    PairsBF16 w[P];
    for (int p = 0; p < P; ++p) {
      w[p].panel = reinterpret_cast<const uint16_t*>(m.w->data + (panel + p) * m.w->panel_bytes);
    }
    bf16_panels(m, panel, w);
  });
}

// Few tokens: rounded in registers.
void f16_weights(const Multiply& m) {
  const Matrix& w = *m.w;
  each_panel_group<2>(m.panel_begin, m.panel_end, [&](auto count, int64_t panel) BATON_LAMBDA {
    constexpr int P = decltype(count)::value;
    PairsF16 stored[P];
    for (int p = 0; p < P; ++p) stored[p].panel = w.data + (panel + p) * w.panel_bytes;
    if (m.tokens <= kTokens) return bf16_panels(m, panel, stored);
    PairsBF16 rounded[P];
    for (int p = 0; p < P; ++p) {
      auto* const to = reinterpret_cast<uint16_t*>(m.scratch) + p * kLanes * w.columns;
      for (int64_t k = 0; k < w.columns; k += 2) {
        const __m512bh pairs = stored[p].at(k);
        __builtin_memcpy(to + kLanes * k, &pairs, sizeof(pairs));
      }
      rounded[p].panel = to;
    }
    bf16_panels(m, panel, rounded);
  });
}

}  // namespace

const Kernels& kernels_avx512();
const Kernels& kernels_avx512bf16();
const Kernels& kernels_avx512bf16() {
  static const Kernels kernels = [] {
    Kernels k = kernels_avx512();
    k.ahead_from = 3;  // Zen 4 lost a third of its speed at two tokens
    k.name = "avx512bf16";
    k.description = "avx512bf16 and avx512-vnni";
    k.arithmetic.f16 = Arithmetic::kBF16Avx512;
    k.tile_matmul[static_cast<int>(Packing::kF16)] = f16_weights;
    k.tile_matmul[static_cast<int>(Packing::kBF16)] = bf16_weights;
    k.to_tiles = to_tiles;
    return k;
  }();
  return kernels;
}

}  // namespace baton::host

#endif

// Products of 16-bit weights with the bf16 products of AVX-512, which Zen 4 does at twice the rate of f32 (Intel's
// processors do not). Activations are rounded to bf16, F16 weights as well: 8 bits, relative to each value. docs/cpu.md
// has what that costs. Needs AVX512-BF16 beside what kernels_avx512.cc needs.
#include "baton/unit/host/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace baton::host {
namespace {

// In this order: each needs those before it.
// clang-format off
#include "baton/unit/host/kernels_loops.inl.h"
#include "baton/unit/host/kernels_avx512_lanes.inl.h"
#include "baton/unit/host/kernels_bf16.inl.h"
// clang-format on

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
  __m512 sum[P][kTokens];
  unroll<P * kTokens>([&](auto i) BATON_LAMBDA { sum[i.value / kTokens][i.value % kTokens] = Lanes::zero(); });
  for (int64_t b = 0; b < columns / kBlock; ++b, a += kTile) {
    for (int64_t pair = 0; pair < 16; ++pair) {
      __m512bh v[P];
      unroll<P>([&](auto p) BATON_LAMBDA { v[p.value] = pairs_of(w[p.value] + b * kTile + 32 * pair); });
      unroll<kTokens>([&](auto t) BATON_LAMBDA {
        const __m512bh x = pair_everywhere(a + 32 * t.value + 2 * pair);
        unroll<P>([&](auto p)
                      BATON_LAMBDA { sum[p.value][t.value] = _mm512_dpbf16_ps(sum[p.value][t.value], v[p.value], x); });
      });
    }
  }
  unroll<kTokens>([&](auto t) BATON_LAMBDA {
    if (t.value >= tokens) return;
    unroll<P>([&](auto p) BATON_LAMBDA {
      write_rows<Lanes>(out + t.value * out_stride + 16 * p.value, sum[p.value][t.value], rows[p.value], add);
    });
  });
}

// unpack(panel's bytes, scratch): its pairs.
template <class Unpack>
void bf16_matmul(const Matrix& w, int64_t panel_begin, int64_t panel_end, const Activations& a, int64_t tokens,
                 float* out, int64_t out_stride, bool add, unsigned char* scratch, const Unpack& unpack) {
  const auto run = [&](auto count, int64_t panel) BATON_LAMBDA {
    constexpr int kCount = decltype(count)::value;
    const uint16_t* pairs[kCount];
    int rows[kCount];
    for (int p = 0; p < kCount; ++p) {
      pairs[p] =
          unpack(w.data + (panel + p) * w.panel_bytes, reinterpret_cast<uint16_t*>(scratch) + p * kLanes * w.columns);
      const int64_t left = w.rows - kLanes * (panel + p);
      rows[p] = left < kLanes ? static_cast<int>(left) : kLanes;
    }
    for (int64_t t = 0; t < tokens; t += kTokens) {
      const uint16_t* const x = a.high_tiles + t / kTileTokens * kTileTokens * w.columns + t % kTileTokens * kBlock;
      bf16_tile<kCount>(pairs, x, w.columns, tokens - t, out + t * out_stride + kLanes * panel, out_stride, rows, add);
    }
  };
  int64_t panel = panel_begin;
  for (; panel + 2 <= panel_end; panel += 2) run(Constant<2>{}, panel);
  if (panel < panel_end) run(Constant<1>{}, panel);
}

void bf16_weights(const Matrix& w, int64_t panel_begin, int64_t panel_end, const Activations& a, int64_t tokens,
                  float* out, int64_t out_stride, bool add, unsigned char* scratch) {
  bf16_matmul(w, panel_begin, panel_end, a, tokens, out, out_stride, add, scratch,
              [](const unsigned char* panel, uint16_t*) { return reinterpret_cast<const uint16_t*>(panel); });
}

void f16_weights(const Matrix& w, int64_t panel_begin, int64_t panel_end, const Activations& a, int64_t tokens,
                 float* out, int64_t out_stride, bool add, unsigned char* scratch) {
  bf16_matmul(w, panel_begin, panel_end, a, tokens, out, out_stride, add, scratch,
              [&](const unsigned char* panel, uint16_t* to) {
                for (int64_t k = 0; k < w.columns; k += 2) {
                  store_pairs(to + 16 * k, Lanes::load_f16(panel + 32 * k), Lanes::load_f16(panel + 32 * k + 32));
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
    k.tile_matmul[static_cast<int>(Packing::kF16)] = f16_weights;
    k.tile_matmul[static_cast<int>(Packing::kBF16)] = bf16_weights;
    k.to_tiles = [](const float* x, int64_t n, uint16_t* high, uint16_t*) { to_tiles(x, n, high, nullptr); };
    k.tile_tokens_min = 16;
    return k;
  }();
  return kernels;
}

}  // namespace baton::host

#endif

// Integer products of many tokens with the matrix instructions of Armv8.6 (SMMLA: 2 x 8 by 8 x 2 bytes, twice the work
// of a dot product); all else is the kernels on NEON. This file alone is compiled for them.
#if defined(__aarch64__)

#include "baton/base/simd/neon.h"
#include "baton/unit/host/kernels_low_planes.inl.h"

namespace baton::host {

const Kernels& kernels_neon();

namespace {

#if defined(__ARM_FEATURE_MATMUL_INT8)

constexpr int kPairs = 2;  // of tokens, by 8 rows: 8 sums of products and 8 of blocks, of 32 registers

// A panel unpacked: per block [scales][16], [minimums][16], then of each half of the rows and each 8 values of k four
// registers of 2 rows by 8 signed bytes.
template <class Block>
struct Turned {
  static constexpr int kScales = Block::kScales, kMinimums = Block::kMinimums;
  static constexpr int64_t kValuesAt = 64 * (kScales + kMinimums), kBytes = kValuesAt + 512;
};

// Two groups of four values of k side by side: rows 4i and 4i + 1, and the two after them.
template <class Block>
BATON_INLINE void store_turned(unsigned char* to, const B& even, const B& odd) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t flip = vdupq_n_u8(Block::kPlain ? 0 : 0x80);
    const uint32x4_t a = vreinterpretq_u32_u8(veorq_u8(even.v[i], flip));
    const uint32x4_t b = vreinterpretq_u32_u8(veorq_u8(odd.v[i], flip));
    unsigned char* half = to + 256 * (i / 2) + 32 * (i % 2);
    vst1q_u8(half, vreinterpretq_u8_u32(vzip1q_u32(a, b)));
    vst1q_u8(half + 16, vreinterpretq_u8_u32(vzip2q_u32(a, b)));
  }
}

template <class Block>
void unpack_turned(const Matrix& w, const unsigned char* panel, unsigned char* to) {
  Block block;
  block.open(w, panel);
  for (int64_t b = 0; b < w.columns / kBlock; ++b, to += Turned<Block>::kBytes) {
    float* scales = reinterpret_cast<float*>(to);
    unroll<Block::kScales>([&](auto s)
                               BATON_LAMBDA { store(scales + kLanes * s.value, block.template scale<s.value>()); });
    if constexpr (Block::kMinimums > 0) {
      scales += kLanes * Block::kScales;
      unroll<Block::kMinimums>(
          [&](auto s) BATON_LAMBDA { store(scales + kLanes * s.value, block.template minimum<s.value>()); });
    }
    unroll<4>([&](auto k) BATON_LAMBDA {
      store_turned<Block>(to + Turned<Block>::kValuesAt + 64 * k.value, block.template value<2 * k.value>(),
                          block.template value<2 * k.value + 1>());
    });
    block.next(b);
  }
}

// The 8 rows of a half times pairs of tokens: sum[token][quarter] over all blocks. `panel`: of the half's first values;
// `scales`: of its first row.
template <class Block, int Pairs>
BATON_INLINE void add_half(const unsigned char* panel, int half, int64_t blocks, const ActivationBlock* const* a,
                           float32x4_t (&sum)[2 * Pairs][2]) {
  constexpr int kScales = Block::kScales, kOctets = 4 / kScales;
  for (int64_t b = 0; b < blocks; ++b, panel += Turned<Block>::kBytes) {
    const float* scales = reinterpret_cast<const float*>(panel) + 8 * half;
    const auto* values = reinterpret_cast<const int8_t*>(panel) + Turned<Block>::kValuesAt + 256 * half;
#pragma GCC unroll 2
    for (int s = 0; s < kScales; ++s) {
      int32x4_t dots[Pairs][4] = {};
#pragma GCC unroll 4
      for (int k = s * kOctets; k < (s + 1) * kOctets; ++k) {
        int8x16_t x[Pairs];
#pragma GCC unroll 4
        for (int p = 0; p < Pairs; ++p) {
          x[p] = vcombine_s8(vld1_s8(a[2 * p][b].high + 8 * k), vld1_s8(a[2 * p + 1][b].high + 8 * k));
        }
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
          const int8x16_t w = vld1q_s8(values + 64 * k + 16 * r);
#pragma GCC unroll 4
          for (int p = 0; p < Pairs; ++p) dots[p][r] = vmmlaq_s32(dots[p][r], w, x[p]);
        }
      }
      const float32x4_t scale[2] = {vld1q_f32(scales + kLanes * s), vld1q_f32(scales + kLanes * s + 4)};
#pragma GCC unroll 4
      for (int p = 0; p < Pairs; ++p) {
        const float first = a[2 * p][b].scale, second = a[2 * p + 1][b].scale;
#pragma GCC unroll 2
        for (int q = 0; q < 2; ++q) {
          const float32x4_t even = vcvtq_f32_s32(vuzp1q_s32(dots[p][2 * q], dots[p][2 * q + 1]));
          const float32x4_t odd = vcvtq_f32_s32(vuzp2q_s32(dots[p][2 * q], dots[p][2 * q + 1]));
          sum[2 * p][q] = vfmaq_f32(sum[2 * p][q], even, vmulq_n_f32(scale[q], first));
          sum[2 * p + 1][q] = vfmaq_f32(sum[2 * p + 1][q], odd, vmulq_n_f32(scale[q], second));
        }
      }
    }
#pragma GCC unroll 2
    for (int s = 0; s < Block::kMinimums; ++s) {
      const float* minimums = scales + kLanes * (kScales + s);
      const float32x4_t minimum[2] = {vld1q_f32(minimums), vld1q_f32(minimums + 4)};
#pragma GCC unroll 8
      for (int t = 0; t < 2 * Pairs; ++t) {
        const float total = a[t][b].scaled_sum[Block::kMinimums == 1 ? 2 : s];
#pragma GCC unroll 2
        for (int q = 0; q < 2; ++q) sum[t][q] = vfmaq_n_f32(sum[t][q], minimum[q], total);
      }
    }
  }
}

// Up to 2 * Pairs tokens against an unpacked panel; a token that is absent repeats the last and is not written.
template <class Block, int Pairs>
void turned_tile(const unsigned char* panel, int64_t blocks, const ActivationBlock* a, int64_t tokens,
                 const float* low_sums, float* out, int64_t out_stride, int rows, bool add) {
  constexpr int kTokens = 2 * Pairs;
  const ActivationBlock* of_token[kTokens];
  for (int t = 0; t < kTokens; ++t) of_token[t] = a + (t < tokens ? t : tokens - 1) * blocks;
  F sums[kTokens];
  for (int half = 0; half < 2; ++half) {
    float32x4_t sum[kTokens][2] = {};
    add_half<Block, Pairs>(panel, half, blocks, of_token, sum);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      sums[t].v[2 * half] = sum[t][0];
      sums[t].v[2 * half + 1] = sum[t][1];
    }
  }
  for (int t = 0; t < kTokens && t < tokens; ++t) {
    if (low_sums != nullptr) sums[t] = sums[t] + load(low_sums + kLanes * t);
    write_rows(out + t * out_stride, sums[t], rows, add);
  }
}

template <Packing P>
void i8mm_matmul(const Multiply& m) {
  using Block = BlockOf<P>;
  if (m.tokens <= kernels_neon().direct_tokens) return kernels_neon().matmul[static_cast<int>(P)](m);
  const Matrix& w = *m.w;
  const int64_t blocks = w.columns / kBlock;
  auto* const low_sums = reinterpret_cast<float*>(m.scratch);
  unsigned char* const unpacked = m.scratch + kPanelsUnpacked * kLanes * kSortedTokens * 4;
  for (int64_t panel = m.panel_begin; panel < m.panel_end; ++panel) {
    const unsigned char* const packed = w.data + panel * w.panel_bytes;
    unpack_turned<Block>(w, packed, unpacked);
    const int rows = rows_of(w, panel);
    const int32_t* starts = m.x.sorted_starts;
    for (int64_t first = 0; first < m.tokens; first += kSortedTokens, starts += blocks + 1) {
      const int64_t count = m.tokens - first < kSortedTokens ? m.tokens - first : kSortedTokens;
      const float* const lows = sum_low_planes<Block, 1>(w, &packed, starts, m.x.sorted_lows, count, low_sums);
      for (int64_t t = 0; t < count; t += 2 * kPairs) {
        turned_tile<Block, kPairs>(unpacked, blocks, m.x.blocks + (first + t) * blocks, count - t,
                                   lows == nullptr ? nullptr : lows + kLanes * t,
                                   m.out + (first + t) * m.out_stride + kLanes * panel, m.out_stride, rows, m.add);
      }
    }
  }
}

#endif

}  // namespace

const Kernels& kernels_neon_i8mm();
const Kernels& kernels_neon_i8mm() {
  static const Kernels kernels = [] {
    Kernels k = kernels_neon();
#if defined(__ARM_FEATURE_MATMUL_INT8)  // not in a cross build for macOS: cmake/kernels.cmake
    k.name = "neon-i8mm";
    k.description = "neon-i8mm";
    k.arithmetic.integers = Arithmetic::kInt8I8mm;
    each_integer_packing([&](auto packing) {
      constexpr auto kPacking = static_cast<Packing>(decltype(packing)::value);
      k.matmul[static_cast<int>(kPacking)] = i8mm_matmul<kPacking>;
    });
#endif
    return k;
  }();
  return kernels;
}

}  // namespace baton::host

#endif

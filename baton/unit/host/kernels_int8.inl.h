// Integer matrix products: the register tile over the blocks of kernels_blocks.inl.h.
#pragma once

#include "baton/unit/host/kernels_low_planes.inl.h"

namespace baton::host {
namespace {

// A panel already unpacked to bytes and f32 scales, per block: [scales][16], [minimums][16], v[8][16][4].
template <bool Plain, int Scales, int Minimums>
struct BlockUnpacked {
  static constexpr bool kPlain = Plain;
  static constexpr int kScales = Scales, kMinimums = Minimums;
  static constexpr int64_t kValuesAt = 64 * (Scales + Minimums);
  static constexpr int64_t kBytes = kValuesAt + 512;
  static constexpr bool kStreamed = false;
  const unsigned char* block;
  BATON_INLINE void open(const Matrix&, const unsigned char* panel) { block = panel; }
  BATON_INLINE void next(int64_t) { block += kBytes; }
  template <int K>
  BATON_INLINE B value() const {
    return load_bytes(block + kValuesAt + 64 * K);
  }
  template <int K>
  BATON_INLINE F scale() const {
    return load(reinterpret_cast<const float*>(block) + kLanes * K);
  }
  template <int K>
  BATON_INLINE F minimum() const {
    return load(reinterpret_cast<const float*>(block) + kLanes * (Scales + K));
  }
};
template <class Block>
using UnpackedFrom = BlockUnpacked<Block::kPlain, Block::kScales, Block::kMinimums>;

template <class Block>
void unpack_panel(const Matrix& w, const unsigned char* panel, unsigned char* to) {
  Block block;
  block.open(w, panel);
  for (int64_t b = 0; b < w.columns / kBlock; ++b) {
    block.prefetch();
    float* scales = reinterpret_cast<float*>(to);
    unroll<Block::kScales>([&](auto i)
                               BATON_LAMBDA { store(scales + kLanes * i.value, block.template scale<i.value>()); });
    if constexpr (Block::kMinimums > 0) {
      float* minimums = scales + kLanes * Block::kScales;
      unroll<Block::kMinimums>(
          [&](auto i) BATON_LAMBDA { store(minimums + kLanes * i.value, block.template minimum<i.value>()); });
    }
    unsigned char* values = to + UnpackedFrom<Block>::kValuesAt;
    unroll<8>([&](auto i) BATON_LAMBDA { store_bytes(values + 64 * i.value, block.template value<i.value>()); });
    to = values + 512;
    block.next(b);
  }
}

// ---- The register tile: P panels by T tokens. ----

// The sums of a block for the T tokens whose blocks are a[0], a[a_stride] ...: products, then minimums.
template <class Block, int P, int T>
BATON_INLINE void add_block(const Block (&block)[P], const ActivationBlock* a, int64_t a_stride, F (&sum)[P][T]) {
  constexpr int kScales = Block::kScales;
  constexpr int kCount = 8 / kScales;
  unroll<kScales>([&](auto s) BATON_LAMBDA {
    I dots[P][T];
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) dots[p][t] = start_of<Block>(a[t * a_stride].high_bias[kScales == 1 ? 2 : s.value]);
    }
    unroll<kCount>([&](auto k) BATON_LAMBDA {
      constexpr int kGroup = decltype(s)::value * kCount + decltype(k)::value;
      B v[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) v[p] = block[p].template value<kGroup>();
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) dots[p][t] = dot_of<Block>(dots[p][t], v[p], a[t * a_stride].high + 4 * kGroup);
      }
    });
    F scale[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) scale[p] = block[p].template scale<s.value>();
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const F factor = all(a[t * a_stride].scale);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sum[p][t] = fma(to_float(dots[p][t]), scale[p] * factor, sum[p][t]);
    }
  });
  if constexpr (Block::kMinimums > 0) {
    unroll<Block::kMinimums>([&](auto s) BATON_LAMBDA {
      F minimum[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) minimum[p] = block[p].template minimum<s.value>();
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const F total = all(a[t * a_stride].scaled_sum[Block::kMinimums == 1 ? 2 : s.value]);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) sum[p][t] = fma(minimum[p], total, sum[p][t]);
      }
    });
  }
}

// `Direct`: low planes are those of the tokens' rows and are added on the way; else `low_sums` [T][P][16] has their
// sums, or is null. `from_memory`: nobody has read these panels just before, and they are fetched ahead.
template <class Block, int P, int T, bool Direct>
void integer_tile(const Matrix& w, const unsigned char* const* panels, const ActivationBlock* a, const LowPlane* lows,
                  const float* low_sums, float* out, int64_t out_stride, const int* rows, bool add, bool from_memory) {
  const int64_t blocks = w.columns / kBlock;
  Block block[P];
  for (int p = 0; p < P; ++p) block[p].open(w, panels[p]);
  F sum[P][T] = {};
  alignas(64) float direct_sums[Direct ? kLanes * P * T : 1] = {};
  for (int64_t b = 0; b < blocks; ++b, ++a) {
    if constexpr (Block::kStreamed && P == 1) {
      if (from_memory) block[0].prefetch();
    }
    add_block<Block, P, T>(block, a, blocks, sum);
    if constexpr (Direct) {
      for (int t = 0; t < T; ++t) {
        const int32_t low = a[t * blocks].low;
        if (low < 0) continue;
        add_low_plane<Block, P>(Opened<Block, P>(block), lows[t * blocks + low], direct_sums + kLanes * P * t);
      }
    }
    for (int p = 0; p < P; ++p) block[p].next(b);
  }
  const float* const sums = Direct ? direct_sums : low_sums;
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      if (sums != nullptr) sum[p][t] = sum[p][t] + load(sums + kLanes * (t * P + p));
      write_rows(out + t * out_stride + kLanes * p, sum[p][t], rows[p], add);
    }
  }
}

// Panels as they lie in memory, unpacked in registers for a few tokens at a time: the first of them bring a panel into
// the second cache.
template <class Block>
void integer_direct(const Multiply& m, int64_t panel) {
  const Matrix& w = *m.w;
  const unsigned char* const data = w.data + panel * w.panel_bytes;
  const int rows = rows_of(w, panel);
  float* const out = m.out + kLanes * panel;
  each_token_tile<true, kDirectTokens>(m.tokens, [&](auto count, int64_t t) BATON_LAMBDA {
    const int64_t at = t * (w.columns / kBlock);
    integer_tile<Block, 1, decltype(count)::value, true>(w, &data, m.x.blocks + at, m.x.lows + at, nullptr,
                                                         out + t * m.out_stride, m.out_stride, &rows, m.add,
                                                         t == 0 && m.ahead);
  });
}

// All tokens against P panels from `panel` on, a batch of sorted low planes at a time. `panels`: their blocks.
template <class Block, int P>
void integer_panels(const Multiply& m, int64_t panel, const unsigned char* const* panels, float* low_sums) {
  constexpr bool kAll = P > 1 || kIntegerTokens <= 4;
  const Matrix& w = *m.w;
  const int64_t blocks = w.columns / kBlock;
  const int32_t* starts = m.x.sorted_starts;
  int rows[P];
  for (int p = 0; p < P; ++p) rows[p] = rows_of(w, panel + p);
  for (int64_t first = 0; first < m.tokens; first += kSortedTokens, starts += blocks + 1) {
    const int64_t count = m.tokens - first < kSortedTokens ? m.tokens - first : kSortedTokens;
    const float* const lows = sum_low_planes<Block, P>(w, panels, starts, m.x.sorted_lows, count, low_sums);
    float* const out = m.out + first * m.out_stride + kLanes * panel;
    each_token_tile<kAll, kIntegerTokens>(count, [&](auto tile, int64_t t) BATON_LAMBDA {
      integer_tile<Block, P, decltype(tile)::value, false>(w, panels, m.x.blocks + (first + t) * blocks, nullptr,
                                                           lows != nullptr ? lows + kLanes * P * t : nullptr,
                                                           out + t * m.out_stride, m.out_stride, rows, m.add, false);
    });
  }
}

template <class Block>
void integer_matmul(const Multiply& m) {
  using Unpacked = UnpackedFrom<Block>;
  constexpr bool kUnpack = !Block::kIsUnpacked;
  using Multiplied = Either<kUnpack, Unpacked, Block>;
  const Matrix& w = *m.w;
  const int64_t unpacked_bytes = w.columns / kBlock * Unpacked::kBytes;
  auto* const low_sums = reinterpret_cast<float*>(m.scratch);
  unsigned char* const unpacked = m.scratch + kPanelsUnpacked * kLanes * kSortedTokens * 4;
  if (m.tokens <= kUnsortedTokens) {
    for (int64_t panel = m.panel_begin; panel < m.panel_end; ++panel) integer_direct<Block>(m, panel);
    return;
  }
  each_panel_group<kIntegerPanels>(m.panel_begin, m.panel_end, [&](auto count, int64_t panel) BATON_LAMBDA {
    constexpr int kCount = decltype(count)::value;
    const unsigned char* panels[kCount];
    for (int p = 0; p < kCount; ++p) {
      panels[p] = w.data + (panel + p) * w.panel_bytes;
      if constexpr (kUnpack) {
        unpack_panel<Block>(w, panels[p], unpacked + p * unpacked_bytes);
        panels[p] = unpacked + p * unpacked_bytes;
      }
    }
    integer_panels<Multiplied, kCount>(m, panel, panels, low_sums);
  });
}

}  // namespace
}  // namespace baton::host

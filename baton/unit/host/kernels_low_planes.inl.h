// What the low planes of activations (multiply.h) add to integer products.
#pragma once

#include "baton/unit/host/kernels_blocks.inl.h"

namespace baton::host {
namespace {

template <class Block>
BATON_INLINE I start_of(const int32_t& bias) {
  return kDotKeepsBias && !Block::kPlain ? all(bias) : I{};
}
template <class Block>
BATON_INLINE I dot_of(const I& sum, const B& w, const int8_t* a) {
  return Block::kPlain ? dot(sum, w, a) : dot_biased(sum, w, a);
}

// The values and scales of a block of P panels.
template <class Block, int P>
struct Opened {
  B values[P][8];
  F scales[P][Block::kScales];
  BATON_INLINE explicit Opened(const Block (&block)[P]) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      unroll<8>([&](auto k) BATON_LAMBDA { values[p][k.value] = block[p].template value<k.value>(); });
      unroll<Block::kScales>([&](auto s) BATON_LAMBDA { scales[p][s.value] = block[p].template scale<s.value>(); });
    }
  }
};

// sums[p][16] += what the low plane of a token's block adds.
template <class Block, int P>
BATON_INLINE void add_low_plane(const Opened<Block, P>& block, const LowPlane& x, float* sums) {
  constexpr int kScales = Block::kScales;
  constexpr int kCount = 8 / kScales;
  const F factor = all(x.scale);
  F sum[P];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) sum[p] = load(sums + kLanes * p);
#pragma GCC unroll 2
  for (int s = 0; s < kScales; ++s) {
    I dots[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) dots[p] = start_of<Block>(x.bias[kScales == 1 ? 2 : s]);
#pragma GCC unroll 8
    for (int k = s * kCount; k < (s + 1) * kCount; ++k) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) dots[p] = dot_of<Block>(dots[p], block.values[p][k], x.low + 4 * k);
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sum[p] = fma(to_float(dots[p]), block.scales[p][s] * factor, sum[p]);
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) store(sums + kLanes * p, sum[p]);
}

// sums[token][p][16]: what the low planes of a batch of `count` tokens add; null: there are none. A block's weights are
// opened once for all tokens that have one there: found tile by tile, they cost twice as much.
template <class Block, int P>
const float* sum_low_planes(const Matrix& w, const unsigned char* const* panels, const int32_t* starts,
                            const LowPlane* planes, int64_t count, float* sums) {
  if (starts[0] == starts[w.columns / kBlock]) return nullptr;
  for (int64_t i = 0; i < P * count; ++i) store(sums + kLanes * i, F{});
  Block block[P];
  for (int p = 0; p < P; ++p) block[p].open(w, panels[p]);
  for (int64_t b = 0; b < w.columns / kBlock; ++b) {
    for (int p = 0; p < P; ++p) {
      if constexpr (Block::kStreamed) block[p].prefetch();
    }
    if (starts[b] < starts[b + 1]) {
      const Opened<Block, P> opened(block);
      for (int32_t i = starts[b]; i < starts[b + 1]; ++i) {
        add_low_plane<Block, P>(opened, planes[i], sums + kLanes * P * planes[i].at);
      }
    }
    for (int p = 0; p < P; ++p) block[p].next(b);
  }
  return sums;
}

}  // namespace
}  // namespace baton::host

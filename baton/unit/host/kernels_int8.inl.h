// Integer matrix products over 16 lanes: the register tile over the blocks of kernels_blocks.inl.h. Included as
// kernels_loops.inl.h is, after those two.

// A panel already unpacked to bytes and f32 scales, per block: [scales][16], [minimums][16], v[8][16][4].
template <class L, bool Plain, int Scales, int Minimums>
struct BlockUnpacked {
  static constexpr bool kPlain = Plain;
  static constexpr int kScales = Scales, kMinimums = Minimums;
  static constexpr int64_t kValuesAt = 64 * (Scales + Minimums);
  static constexpr int64_t kBytes = kValuesAt + 512;
  static constexpr bool kStreamed = false;
  const unsigned char* block;
  BATON_INLINE void open(const Matrix&, const unsigned char* panel) { block = panel; }
  BATON_INLINE void next(int64_t) { block += kBytes; }
  template <int I>
  BATON_INLINE typename L::B value() const {
    return L::load_bytes(block + kValuesAt + 64 * I);
  }
  template <int I>
  BATON_INLINE typename L::F scale() const {
    return L::load(reinterpret_cast<const float*>(block) + 16 * I);
  }
  template <int I>
  BATON_INLINE typename L::F minimum() const {
    return L::load(reinterpret_cast<const float*>(block) + 16 * (Scales + I));
  }
};
template <class L, class Block>
using UnpackedFrom = BlockUnpacked<L, Block::kPlain, Block::kScales, Block::kMinimums>;

template <class L, class Block>
void unpack_panel(const Matrix& w, const unsigned char* panel, unsigned char* to) {
  Block block;
  block.open(w, panel);
  for (int64_t b = 0; b < w.columns / kBlock; ++b) {
    float* scales = reinterpret_cast<float*>(to);
    unroll<Block::kScales>([&](auto i)
                               BATON_LAMBDA { L::store(scales + 16 * i.value, block.template scale<i.value>()); });
    if constexpr (Block::kMinimums > 0) {
      unroll<Block::kMinimums>([&](auto i) BATON_LAMBDA {
        L::store(scales + 16 * (Block::kScales + i.value), block.template minimum<i.value>());
      });
    }
    unsigned char* values = to + UnpackedFrom<L, Block>::kValuesAt;
    unroll<8>([&](auto i) BATON_LAMBDA { L::store_bytes(values + 64 * i.value, block.template value<i.value>()); });
    to = values + 512;
    block.next(b);
  }
}

// ---- The register tile: P panels by T tokens. ----

template <class L, class Block>
BATON_INLINE typename L::I dot_of(typename L::I sum, typename L::B w, const int8_t* a) {
  return Block::kPlain ? L::dot_plain(sum, w, a) : L::dot_biased(sum, w, a);
}

// Products of a block's groups of four, `First` and on: the high plane of T tokens.
template <class L, class Block, int P, int T, int First, int Count>
BATON_INLINE void high_dots(const Block (&block)[P], const ActivationBlock* a, int64_t a_stride,
                            typename L::I (&dot)[P][T]) {
  unroll<Count>([&](auto k) BATON_LAMBDA {
    constexpr int kGroup = First + decltype(k)::value;
    typename L::B v[P];
    unroll<P>([&](auto p) BATON_LAMBDA { v[p.value] = block[p.value].template value<kGroup>(); });
    unroll<T>([&](auto t) BATON_LAMBDA {
      const int8_t* q = a[t.value * a_stride].high + 4 * kGroup;
      unroll<P>([&](auto p)
                    BATON_LAMBDA { dot[p.value][t.value] = dot_of<L, Block>(dot[p.value][t.value], v[p.value], q); });
    });
  });
}

// The values and scales of a block of P panels.
template <class L, class Block, int P>
struct Opened {
  typename L::B values[P][8];
  typename L::F scales[P][Block::kScales];
  BATON_INLINE explicit Opened(const Block (&block)[P]) {
    unroll<P>([&](auto p) BATON_LAMBDA {
      unroll<8>([&](auto k)
                    BATON_LAMBDA { values[p.value][k.value] = block[p.value].template value<decltype(k)::value>(); });
      unroll<Block::kScales>(
          [&](auto s) BATON_LAMBDA { scales[p.value][s.value] = block[p.value].template scale<decltype(s)::value>(); });
    });
  }
};

// sums[p][16] += what the low plane of a token's block adds.
template <class L, class Block, int P>
BATON_INLINE void add_low_plane(const Opened<L, Block, P>& block, const LowPlane& x, float* sums) {
  constexpr int kScales = Block::kScales;
  constexpr int kCount = 8 / kScales;
  const typename L::F factor = L::set1(x.scale);
  typename L::F sum[P];
  unroll<P>([&](auto p) BATON_LAMBDA { sum[p.value] = L::load(sums + 16 * p.value); });
  unroll<kScales>([&](auto s) BATON_LAMBDA {
    constexpr int kPart = kScales == 1 ? 2 : decltype(s)::value;  // of the sums of an activation block
    typename L::I dot[P];
    unroll<P>([&](auto p)
                  BATON_LAMBDA { dot[p.value] = Block::kPlain ? L::zero_int() : L::start_biased(&x.bias[kPart]); });
    unroll<kCount>([&](auto k) BATON_LAMBDA {
      constexpr int kGroup = decltype(s)::value * kCount + decltype(k)::value;
      unroll<P>([&](auto p) BATON_LAMBDA {
        dot[p.value] = dot_of<L, Block>(dot[p.value], block.values[p.value][kGroup], x.low + 4 * kGroup);
      });
    });
    unroll<P>([&](auto p) BATON_LAMBDA {
      sum[p.value] = L::fma(L::to_float(dot[p.value]), L::mul(block.scales[p.value][s.value], factor), sum[p.value]);
    });
  });
  unroll<P>([&](auto p) BATON_LAMBDA { L::store(sums + 16 * p.value, sum[p.value]); });
}

// sums[token][p][16]: what the low planes of a batch add. A block's weights are opened once for all tokens that have
// one there: found tile by tile, they cost twice as much.
template <class L, class Block, int P>
void add_sorted_planes(const Matrix& w, const unsigned char* const* panels, const int32_t* starts,
                       const LowPlane* planes, float* sums) {
  Block block[P];
  for (int p = 0; p < P; ++p) block[p].open(w, panels[p]);
  for (int64_t b = 0; b < w.columns / kBlock; ++b) {
    if (starts[b] < starts[b + 1]) {
      const Opened<L, Block, P> opened(block);
      for (int32_t i = starts[b]; i < starts[b + 1]; ++i) {
        add_low_plane<L, Block, P>(opened, planes[i], sums + 16 * P * planes[i].at);
      }
    }
    unroll<P>([&](auto p) BATON_LAMBDA { block[p.value].next(b); });
  }
}

// `Direct`: low planes are those of the tokens' rows and are added on the way; else `low_sums` [T][P][16] has their
// sums, or is null.
template <class L, class Block, int P, int T, bool Direct>
void integer_tile(const Matrix& w, const unsigned char* const* panels, const ActivationBlock* a, const LowPlane* lows,
                  const float* low_sums, float* out, int64_t out_stride, const int* rows, bool add) {
  using F = typename L::F;
  using I = typename L::I;
  constexpr int kScales = Block::kScales;
  constexpr int kCount = 8 / kScales;
  const int64_t blocks = w.columns / kBlock;
  Block block[P];
  for (int p = 0; p < P; ++p) block[p].open(w, panels[p]);
  F sum[P][T];
  unroll<P * T>([&](auto i) BATON_LAMBDA { sum[i.value / T][i.value % T] = L::zero(); });
  alignas(64) float direct_sums[Direct ? 16 * P * T : 1] = {};
  for (int64_t b = 0; b < blocks; ++b, ++a) {
    // One or two tokens leave the processor time to read ahead by itself.
    if constexpr (Block::kStreamed && P == 1 && T >= 4) block[0].prefetch();
    unroll<kScales>([&](auto s) BATON_LAMBDA {
      constexpr int kPart = kScales == 1 ? 2 : decltype(s)::value;  // of the sums of an activation block
      I dot[P][T];
      unroll<T>([&](auto t) BATON_LAMBDA {
        unroll<P>([&](auto p) BATON_LAMBDA {
          dot[p.value][t.value] =
              Block::kPlain ? L::zero_int() : L::start_biased(&a[t.value * blocks].high_bias[kPart]);
        });
      });
      high_dots<L, Block, P, T, decltype(s)::value * kCount, kCount>(block, a, blocks, dot);
      F scale[P];
      unroll<P>([&](auto p) BATON_LAMBDA { scale[p.value] = block[p.value].template scale<s.value>(); });
      unroll<T>([&](auto t) BATON_LAMBDA {
        const F factor = L::set1(a[t.value * blocks].scale);
        unroll<P>([&](auto p) BATON_LAMBDA {
          sum[p.value][t.value] =
              L::fma(L::to_float(dot[p.value][t.value]), L::mul(scale[p.value], factor), sum[p.value][t.value]);
        });
      });
    });
    if constexpr (Block::kMinimums > 0) {
      unroll<Block::kMinimums>([&](auto s) BATON_LAMBDA {
        F minimum[P];
        unroll<P>([&](auto p) BATON_LAMBDA { minimum[p.value] = block[p.value].template minimum<s.value>(); });
        unroll<T>([&](auto t) BATON_LAMBDA {
          const F total = L::set1(a[t.value * blocks].scaled_sum[Block::kMinimums == 1 ? 2 : s.value]);
          unroll<P>([&](auto p) BATON_LAMBDA {
            sum[p.value][t.value] = L::fma(minimum[p.value], total, sum[p.value][t.value]);
          });
        });
      });
    }
    if constexpr (Direct) {
      for (int t = 0; t < T; ++t) {
        const int32_t low = a[t * blocks].low;
        if (low < 0) continue;
        add_low_plane<L, Block, P>(Opened<L, Block, P>(block), lows[t * blocks + low], direct_sums + 16 * P * t);
      }
    }
    unroll<P>([&](auto p) BATON_LAMBDA { block[p.value].next(b); });
  }
  const float* const sums = Direct ? direct_sums : low_sums;
  if (sums != nullptr) {
    unroll<P * T>([&](auto i) BATON_LAMBDA {
      constexpr int p = i.value / T, t = i.value % T;
      sum[p][t] = L::add(sum[p][t], L::load(sums + 16 * (t * P + p)));
    });
  }
  unroll<T>([&](auto t) BATON_LAMBDA {
    unroll<P>([&](auto p) BATON_LAMBDA {
      write_rows<L>(out + t.value * out_stride + 16 * p.value, sum[p.value][t.value], rows[p.value], add);
    });
  });
}

// Panels as they lie in memory, read once for a few tokens and unpacked in registers.
template <class L, class Block>
void integer_direct(const Matrix& w, const unsigned char* panel, const Activations& a, int64_t tokens, float* out,
                    int64_t out_stride, int rows, bool add) {
  each_token_tile<true, L::kDirectTokens>(tokens, [&](auto count, int64_t t) BATON_LAMBDA {
    const int64_t at = t * (w.columns / kBlock);
    integer_tile<L, Block, 1, decltype(count)::value, true>(w, &panel, a.blocks + at, a.lows + at, nullptr,
                                                            out + t * out_stride, out_stride, &rows, add);
  });
}

// All tokens against P panels, a batch of sorted low planes at a time.
template <class L, class Block, int P>
void integer_panels(const Matrix& w, const unsigned char* const* panels, const Activations& a, int64_t tokens,
                    float* out, int64_t out_stride, const int* rows, bool add, float* low_sums) {
  constexpr bool kAll = P > 1 || L::kIntegerTokens <= 4;
  const int64_t blocks = w.columns / kBlock;
  const int32_t* starts = a.sorted_starts;
  for (int64_t first = 0; first < tokens; first += kSortedTokens, starts += blocks + 1) {
    const int64_t count = tokens - first < kSortedTokens ? tokens - first : kSortedTokens;
    const bool any_low = starts[0] < starts[blocks];
    if (any_low) {
      for (int64_t i = 0; i < P * count; ++i) L::store(low_sums + 16 * i, L::zero());
      add_sorted_planes<L, Block, P>(w, panels, starts, a.sorted_lows, low_sums);
    }
    each_token_tile<kAll, L::kIntegerTokens>(count, [&](auto tile, int64_t t) BATON_LAMBDA {
      integer_tile<L, Block, P, decltype(tile)::value, false>(w, panels, a.blocks + (first + t) * blocks, nullptr,
                                                              any_low ? low_sums + 16 * P * t : nullptr,
                                                              out + (first + t) * out_stride, out_stride, rows, add);
    });
  }
}

template <class L, class Block>
void integer_matmul(const Matrix& w, int64_t panel_begin, int64_t panel_end, const Activations& a, int64_t tokens,
                    float* out, int64_t out_stride, bool add, unsigned char* scratch) {
  using Unpacked = UnpackedFrom<L, Block>;
  constexpr bool kUnpack = !same_type<Block, BlockOf<L, Packing::kQ8_0>>;
  const int64_t unpacked_bytes = w.columns / kBlock * Unpacked::kBytes;
  auto* const low_sums = reinterpret_cast<float*>(scratch);
  unsigned char* const unpacked = scratch + kPanelsUnpacked * kLanes * kSortedTokens * 4;
  const auto rows_of = [&](int64_t panel) {
    const int64_t left = w.rows - 16 * panel;
    return left < 16 ? static_cast<int>(left) : 16;
  };
  const auto run = [&](auto count, int64_t panel) BATON_LAMBDA {
    constexpr int kCount = decltype(count)::value;
    const unsigned char* panels[kCount];
    int rows[kCount];
    for (int p = 0; p < kCount; ++p) {
      panels[p] = w.data + (panel + p) * w.panel_bytes;
      rows[p] = rows_of(panel + p);
    }
    if constexpr (kUnpack) {
      for (int p = 0; p < kCount; ++p) {
        unpack_panel<L, Block>(w, panels[p], unpacked + p * unpacked_bytes);
        panels[p] = unpacked + p * unpacked_bytes;
      }
      integer_panels<L, Unpacked, kCount>(w, panels, a, tokens, out + 16 * panel, out_stride, rows, add, low_sums);
    } else {
      integer_panels<L, Block, kCount>(w, panels, a, tokens, out + 16 * panel, out_stride, rows, add, low_sums);
    }
  };
  if (tokens <= L::kDirectTokens) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      integer_direct<L, Block>(w, w.data + panel * w.panel_bytes, a, tokens, out + 16 * panel, out_stride,
                               rows_of(panel), add);
    }
    return;
  }
  constexpr int P = L::kIntegerPanels;
  int64_t panel = panel_begin;
  for (; panel + P <= panel_end; panel += P) run(Constant<P>{}, panel);
  if constexpr (P > 1) {
    for (; panel < panel_end; ++panel) run(Constant<1>{}, panel);
  }
}

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

// Products of a block's groups of four, `First` and on: the high plane of T tokens; the low plane of one.
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

template <class L, class Block, int P, int First, int Count>
BATON_INLINE void low_dots(const Block (&block)[P], const ActivationBlock& a, typename L::I (&dot)[P]) {
  unroll<Count>([&](auto k) BATON_LAMBDA {
    constexpr int kGroup = First + decltype(k)::value;
    unroll<P>([&](auto p) BATON_LAMBDA {
      dot[p.value] = dot_of<L, Block>(dot[p.value], block[p.value].template value<kGroup>(), a.low + 4 * kGroup);
    });
  });
}

// What the low planes of T tokens add: a second walk over the blocks, for most have none.
template <class L, class Block, int P, int T>
BATON_NOINLINE void add_low_planes(const Matrix& w, const unsigned char* const* panels, const ActivationBlock* a,
                                   typename L::F (&sum)[P][T]) {
  constexpr int kScales = Block::kScales;
  constexpr int kCount = 8 / kScales;
  const int64_t blocks = w.columns / kBlock;
  Block block[P];
  for (int p = 0; p < P; ++p) block[p].open(w, panels[p]);
  for (int64_t b = 0; b < blocks; ++b, ++a) {
    unroll<T>([&](auto t) BATON_LAMBDA {
      const ActivationBlock& x = a[t.value * blocks];
      if (x.has_low == 0) return;
      const typename L::F factor = L::set1(x.scale * (1.0f / 128));
      unroll<kScales>([&](auto s) BATON_LAMBDA {
        constexpr int kPart = kScales == 1 ? 2 : decltype(s)::value;  // of the sums of an activation block
        typename L::I low[P];
        unroll<P>([&](auto p) BATON_LAMBDA {
          low[p.value] = Block::kPlain ? L::zero_int() : L::start_biased(&x.low_bias[kPart]);
        });
        low_dots<L, Block, P, decltype(s)::value * kCount, kCount>(block, x, low);
        unroll<P>([&](auto p) BATON_LAMBDA {
          sum[p.value][t.value] =
              L::fma(L::to_float(low[p.value]), L::mul(block[p.value].template scale<s.value>(), factor),
                     sum[p.value][t.value]);
        });
      });
    });
    unroll<P>([&](auto p) BATON_LAMBDA { block[p.value].next(b); });
  }
}

template <class L, class Block, int P, int T>
void integer_tile(const Matrix& w, const unsigned char* const* panels, const ActivationBlock* a, float* out,
                  int64_t out_stride, const int* rows, bool add) {
  using F = typename L::F;
  using I = typename L::I;
  constexpr int kScales = Block::kScales;
  constexpr int kCount = 8 / kScales;
  const int64_t blocks = w.columns / kBlock;
  Block block[P];
  for (int p = 0; p < P; ++p) block[p].open(w, panels[p]);
  F sum[P][T];
  unroll<P * T>([&](auto i) BATON_LAMBDA { sum[i.value / T][i.value % T] = L::zero(); });
  int32_t any_low = 0;
  const ActivationBlock* const first = a;
  for (int64_t b = 0; b < blocks; ++b, ++a) {
    // One or two tokens leave the processor time to read ahead by itself.
    if constexpr (Block::kStreamed && P == 1 && T >= 4) block[0].prefetch();
    unroll<T>([&](auto t) BATON_LAMBDA { any_low |= a[t.value * blocks].has_low; });
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
    unroll<P>([&](auto p) BATON_LAMBDA { block[p.value].next(b); });
  }
  if (any_low != 0) {
    F with_low[P][T];
    unroll<P * T>([&](auto i) BATON_LAMBDA { with_low[i.value / T][i.value % T] = sum[i.value / T][i.value % T]; });
    add_low_planes<L, Block, P, T>(w, panels, first, with_low);
    unroll<P * T>([&](auto i) BATON_LAMBDA { sum[i.value / T][i.value % T] = with_low[i.value / T][i.value % T]; });
  }
  unroll<T>([&](auto t) BATON_LAMBDA {
    unroll<P>([&](auto p) BATON_LAMBDA {
      write_rows<L>(out + t.value * out_stride + 16 * p.value, sum[p.value][t.value], rows[p.value], add);
    });
  });
}

// All tokens against P panels, in tiles of at most `Most` tokens.
template <class L, class Block, int P, int Most, bool All = true>
void integer_panels(const Matrix& w, const unsigned char* const* panels, const ActivationBlock* a, int64_t tokens,
                    float* out, int64_t out_stride, const int* rows, bool add) {
  each_token_tile<All, Most>(tokens, [&](auto count, int64_t t) BATON_LAMBDA {
    integer_tile<L, Block, P, decltype(count)::value>(w, panels, a + t * (w.columns / kBlock), out + t * out_stride,
                                                      out_stride, rows, add);
  });
}

template <class L, class Block>
void integer_matmul(const Matrix& w, int64_t panel_begin, int64_t panel_end, const Activations& a, int64_t tokens,
                    float* out, int64_t out_stride, bool add, unsigned char* scratch) {
  using Unpacked = UnpackedFrom<L, Block>;
  constexpr bool kUnpack = !same_type<Block, BlockOf<L, Packing::kQ8_0>>;
  constexpr int P = L::kIntegerPanels;
  const int64_t unpacked_bytes = w.columns / kBlock * Unpacked::kBytes;
  const auto run = [&](auto count, int64_t panel) BATON_LAMBDA {
    constexpr int kCount = decltype(count)::value;
    constexpr bool kAll = kCount > 1 || L::kIntegerTokens <= 4;
    const unsigned char* panels[kCount];
    int rows[kCount];
    for (int p = 0; p < kCount; ++p) {
      panels[p] = w.data + (panel + p) * w.panel_bytes;
      const int64_t left = w.rows - 16 * (panel + p);
      rows[p] = left < 16 ? static_cast<int>(left) : 16;
    }
    float* to = out + 16 * panel;
    if (kCount == 1 && tokens <= L::kDirectTokens) {
      integer_panels<L, Block, kCount, L::kDirectTokens>(w, panels, a.blocks, tokens, to, out_stride, rows, add);
    } else if constexpr (kUnpack) {
      for (int p = 0; p < kCount; ++p) {
        unpack_panel<L, Block>(w, panels[p], scratch + p * unpacked_bytes);
        panels[p] = scratch + p * unpacked_bytes;
      }
      integer_panels<L, Unpacked, kCount, L::kIntegerTokens, kAll>(w, panels, a.blocks, tokens, to, out_stride, rows,
                                                                   add);
    } else {
      integer_panels<L, Block, kCount, L::kIntegerTokens, kAll>(w, panels, a.blocks, tokens, to, out_stride, rows, add);
    }
  };
  int64_t panel = panel_begin;
  // A few tokens read the panels one by one, as they lie in memory, and unpack them in registers.
  if (tokens > L::kDirectTokens) {
    for (; panel + P <= panel_end; panel += P) run(Constant<P>{}, panel);
  }
  for (; panel < panel_end; ++panel) run(Constant<1>{}, panel);
}

// Float kernels over 16 lanes: products, norms, gates, convolution, rotation. Included as kernels_loops.inl.h is, after
// it and kernels_int8.inl.h.

// ---- Elementary functions ----

// e^x: x = n ln 2 + r, |r| <= ln 2 / 2, a degree-6 minimax-like series of e^r (Cephes' expf constants); within 2 ulp.
// Below -87.3 the result is 0, above 88.37 infinite.
template <class L>
BATON_INLINE typename L::F exp_of(typename L::F x) {
  using F = typename L::F;
  const F clamped = L::min(L::max(x, L::set1(-87.3f)), L::set1(88.37f));
  const F n = L::round(L::mul(clamped, L::set1(1.44269504088896341f)));
  F r = L::fma(n, L::set1(-0.693359375f), clamped);
  r = L::fma(n, L::set1(2.12194440e-4f), r);
  F y = L::set1(1.9875691500e-4f);
  y = L::fma(y, r, L::set1(1.3981999507e-3f));
  y = L::fma(y, r, L::set1(8.3334519073e-3f));
  y = L::fma(y, r, L::set1(4.1665795894e-2f));
  y = L::fma(y, r, L::set1(1.6666665459e-1f));
  y = L::fma(y, r, L::set1(5.0000001201e-1f));
  y = L::fma(y, L::mul(r, r), L::add(r, L::set1(1.0f)));
  return L::exp_limits(L::scale_by_power(y, n), x);
}

template <class L>
BATON_INLINE typename L::F sigmoid_of(typename L::F x) {
  const auto one = L::set1(1.0f);
  return L::div(one, L::add(one, exp_of<L>(L::sub(L::zero(), x))));
}

template <class L>
BATON_INLINE typename L::F silu_of(typename L::F x) {
  return L::div(x, L::add(L::set1(1.0f), exp_of<L>(L::sub(L::zero(), x))));
}

// ---- Loops over vectors ----

template <class L>
float sum_of_squares(const float* x, int64_t n) {
  typename L::F sums[2] = {L::zero(), L::zero()};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const auto a = L::load(x + i), b = L::load(x + i + kLanes);
    sums[0] = L::fma(a, a, sums[0]);
    sums[1] = L::fma(b, b, sums[1]);
  }
  each_vector(n - i, [&](int64_t at, int lanes) BATON_LAMBDA {
    const auto a = load_some<L>(x + i + at, lanes);
    sums[0] = L::fma(a, a, sums[0]);
  });
  return L::sum(L::add(sums[0], sums[1]));
}

template <class L>
void rms_norm(const float* x, const float* w, float eps, int64_t n, float* out) {
  const auto scale = L::set1(1.0f / __builtin_sqrtf(sum_of_squares<L>(x, n) / static_cast<float>(n) + eps));
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    store_some<L>(out + i, L::mul(L::mul(load_some<L>(x + i, lanes), scale), load_some<L>(w + i, lanes)), lanes);
  });
}

template <class L>
void gated_norm(const float* x, const float* w, const float* gate, float eps, int64_t n, float* out) {
  const auto scale = L::set1(1.0f / __builtin_sqrtf(sum_of_squares<L>(x, n) / static_cast<float>(n) + eps));
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    const auto normed = L::mul(L::mul(load_some<L>(x + i, lanes), scale), load_some<L>(w + i, lanes));
    store_some<L>(out + i, L::mul(normed, silu_of<L>(load_some<L>(gate + i, lanes))), lanes);
  });
}

template <class L>
void swiglu(const float* x, const float* y, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    store_some<L>(out + i, L::mul(silu_of<L>(load_some<L>(x + i, lanes)), load_some<L>(y + i, lanes)), lanes);
  });
}

template <class L>
void sigmoid_gate(const float* x, const float* y, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    store_some<L>(out + i, L::mul(load_some<L>(x + i, lanes), sigmoid_of<L>(load_some<L>(y + i, lanes))), lanes);
  });
}

template <class L>
void add(const float* x, const float* y, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    store_some<L>(out + i, L::add(load_some<L>(x + i, lanes), load_some<L>(y + i, lanes)), lanes);
  });
}

template <class L>
void conv(const float* const* rows, int taps, const float* w, int64_t w_stride, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    auto sum = L::zero();
    for (int j = 0; j < taps; ++j) {
      sum = L::fma(load_some<L>(w + j * w_stride + i, lanes), load_some<L>(rows[j] + i, lanes), sum);
    }
    store_some<L>(out + i, silu_of<L>(sum), lanes);
  });
}

template <class L>
void rope(const float* x, const float* cosine, const float* sine, int64_t half, bool adjacent, float* out) {
  if (adjacent) {
    for (int64_t i = 0; i < half; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      out[2 * i] = a * cosine[i] - b * sine[i];
      out[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
    return;
  }
  each_vector(half, [&](int64_t i, int lanes) BATON_LAMBDA {
    const auto a = load_some<L>(x + i, lanes), b = load_some<L>(x + half + i, lanes);
    const auto c = load_some<L>(cosine + i, lanes), s = load_some<L>(sine + i, lanes);
    store_some<L>(out + i, L::sub(L::mul(a, c), L::mul(b, s)), lanes);
    store_some<L>(out + half + i, L::add(L::mul(b, c), L::mul(a, s)), lanes);
  });
}

template <class L>
void to_f16(const float* x, int64_t n, uint16_t* out) {
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    if (lanes == kLanes) {
      L::store_f16(out + i, L::load(x + i));
    } else {
      L::store_f16_n(out + i, L::load_n(x + i, lanes), lanes);
    }
  });
}

// ---- Products ----

// Where a float product's B comes from: kStep values of k at a time, 16 columns each.
template <class L>
struct ColumnsF32 {
  static constexpr int kStep = 1;
  const float* b;
  int64_t stride;
  BATON_INLINE void at(int64_t k, typename L::F (&out)[kStep]) const { out[0] = L::load(b + k * stride); }
};
template <class L>
struct ColumnsF32Tail {
  static constexpr int kStep = 1;
  const float* b;
  int64_t stride;
  int lanes;
  BATON_INLINE void at(int64_t k, typename L::F (&out)[kStep]) const { out[0] = L::load_n(b + k * stride, lanes); }
};
template <class L>
struct ColumnsF16 {
  static constexpr int kStep = 1;
  const unsigned char* b;
  BATON_INLINE void at(int64_t k, typename L::F (&out)[kStep]) const { out[0] = L::load_f16(b + 32 * k); }
};
template <class L>
struct ColumnsBF16 {
  static constexpr int kStep = 2;
  const unsigned char* b;
  BATON_INLINE void at(int64_t k, typename L::F (&out)[kStep]) const { L::load_bf16_pairs(b + 32 * k, out[0], out[1]); }
};

// sum[p][t] = sum_k B_p[k] * a[t * a_m + k * a_k]; k in order, one accumulator per element.
template <class L, class Columns, int P, int T>
BATON_INLINE void float_sums(const Columns (&columns)[P], const float* a, int64_t a_m, int64_t a_k, int64_t k_count,
                             typename L::F (&sum)[P][T]) {
  using F = typename L::F;
  constexpr int kStep = Columns::kStep;
  unroll<P * T>([&](auto i) BATON_LAMBDA { sum[i.value / T][i.value % T] = L::zero(); });
  int64_t k = 0;
  for (; k + kStep <= k_count; k += kStep) {
    F b[P][kStep];
    unroll<P>([&](auto p) BATON_LAMBDA { columns[p.value].at(k, b[p.value]); });
    unroll<kStep>([&](auto s) BATON_LAMBDA {
      unroll<T>([&](auto t) BATON_LAMBDA {
        const F x = L::set1(a[t.value * a_m + (k + s.value) * a_k]);
        unroll<P>([&](auto p)
                      BATON_LAMBDA { sum[p.value][t.value] = L::fma(b[p.value][s.value], x, sum[p.value][t.value]); });
      });
    });
  }
  if constexpr (kStep > 1) {
    if (k == k_count) return;
    F b[P][kStep];
    unroll<P>([&](auto p) BATON_LAMBDA { columns[p.value].at(k, b[p.value]); });
    unroll<T>([&](auto t) BATON_LAMBDA {
      const F x = L::set1(a[t.value * a_m + k * a_k]);
      unroll<P>([&](auto p) BATON_LAMBDA { sum[p.value][t.value] = L::fma(b[p.value][0], x, sum[p.value][t.value]); });
    });
  }
}

template <class L, class Columns, int P, int Most>
void float_panels(const Columns (&columns)[P], const float* a, int64_t a_stride, int64_t k_count, int64_t tokens,
                  float* out, int64_t out_stride, const int* rows, bool add) {
  each_token_tile<(P > 1 || Most <= 4), Most>(tokens, [&](auto count, int64_t t) BATON_LAMBDA {
    typename L::F sum[P][decltype(count)::value];
    float_sums<L, Columns, P, decltype(count)::value>(columns, a + t * a_stride, a_stride, 1, k_count, sum);
    unroll<decltype(count)::value>([&](auto i) BATON_LAMBDA {
      unroll<P>([&](auto p) BATON_LAMBDA {
        write_rows<L>(out + (t + i.value) * out_stride + 16 * p.value, sum[p.value][i.value], rows[p.value], add);
      });
    });
  });
}

template <class L, class Columns>
void unpack_columns(const Columns& columns, int64_t k_count, float* to) {
  typename L::F b[Columns::kStep];
  for (int64_t k = 0; k < k_count; k += Columns::kStep) {
    columns.at(k, b);
    unroll<Columns::kStep>([&](auto s) BATON_LAMBDA {
      if (k + s.value < k_count) L::store(to + 16 * (k + s.value), b[s.value]);
    });
  }
}

template <class L, class Columns>
void float_matmul(const Matrix& w, int64_t panel_begin, int64_t panel_end, const Activations& a, int64_t tokens,
                  float* out, int64_t out_stride, bool add, unsigned char* scratch) {
  constexpr int P = L::kFloatPanels;
  constexpr bool kIsF32 = same_type<Columns, ColumnsF32<L>>;
  const auto run = [&](auto count, int64_t panel) BATON_LAMBDA {
    constexpr int kCount = decltype(count)::value;
    Columns columns[kCount];
    int rows[kCount];
    for (int p = 0; p < kCount; ++p) {
      const unsigned char* data = w.data + (panel + p) * w.panel_bytes;
      if constexpr (kIsF32) {
        columns[p] = {reinterpret_cast<const float*>(data), 16};
      } else {
        columns[p] = {data};
      }
      const int64_t left = w.rows - 16 * (panel + p);
      rows[p] = left < 16 ? static_cast<int>(left) : 16;
    }
    float* to = out + 16 * panel;
    if constexpr (!kIsF32) {
      if (tokens > L::kDirectTokens) {
        ColumnsF32<L> unpacked[kCount];
        for (int p = 0; p < kCount; ++p) {
          float* values = reinterpret_cast<float*>(scratch) + p * 16 * w.columns;
          unpack_columns<L>(columns[p], w.columns, values);
          unpacked[p] = {values, 16};
        }
        float_panels<L, ColumnsF32<L>, kCount, L::kFloatTokens>(unpacked, a.x, a.x_stride, w.columns, tokens, to,
                                                                out_stride, rows, add);
        return;
      }
    }
    float_panels<L, Columns, kCount, kIsF32 ? L::kFloatTokens : L::kDirectTokens>(columns, a.x, a.x_stride, w.columns,
                                                                                  tokens, to, out_stride, rows, add);
  };
  int64_t panel = panel_begin;
  for (; panel + P <= panel_end; panel += P) run(Constant<P>{}, panel);
  if constexpr (P > 1) {
    for (; panel < panel_end; ++panel) run(Constant<1>{}, panel);
  }
}

template <class L, class Columns, int P, int T>
BATON_INLINE void product_tile(const Product& q, const Columns (&columns)[P], int64_t m, int64_t n, const int* lanes,
                               Store mode) {
  typename L::F sum[P][T];
  float_sums<L, Columns, P, T>(columns, q.a + m * q.a_m, q.a_m, q.a_k, q.k, sum);
  unroll<T>([&](auto t) BATON_LAMBDA {
    unroll<P>([&](auto p) BATON_LAMBDA {
      float* to = q.c + (m + t.value) * q.c_stride + n + 16 * p.value;
      auto value = sum[p.value][t.value];
      if (mode == Store::kAdd) value = L::add(load_some<L>(to, lanes[p.value]), value);
      if (mode == Store::kSubtract) value = L::sub(load_some<L>(to, lanes[p.value]), value);
      store_some<L>(to, value, lanes[p.value]);
    });
  });
}

template <class L>
void product(const Product& q, Store mode) {
  constexpr int P = L::kFloatPanels;
  constexpr int kFull[4] = {16, 16, 16, 16};
  int64_t n = 0;
  const auto whole = [&](auto count) BATON_LAMBDA {
    constexpr int kCount = decltype(count)::value;
    for (; n + 16 * kCount <= q.n; n += 16 * kCount) {
      ColumnsF32<L> columns[kCount];
      for (int p = 0; p < kCount; ++p) columns[p] = {q.b + n + 16 * p, q.b_stride};
      each_token_tile<(kCount > 1), L::kFloatTokens>(q.m, [&](auto tile, int64_t m) BATON_LAMBDA {
        product_tile<L, ColumnsF32<L>, kCount, decltype(tile)::value>(q, columns, m, n, kFull, mode);
      });
    }
  };
  whole(Constant<P>{});
  if constexpr (P > 1) whole(Constant<1>{});
  if (n == q.n) return;
  const int lanes = static_cast<int>(q.n - n);
  const ColumnsF32Tail<L> columns[1] = {{q.b + n, q.b_stride, lanes}};
  each_token_tile<false, L::kFloatTokens>(q.m, [&](auto tile, int64_t m) BATON_LAMBDA {
    product_tile<L, ColumnsF32Tail<L>, 1, decltype(tile)::value>(q, columns, m, n, &lanes, mode);
  });
}

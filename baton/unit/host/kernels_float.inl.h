// Float kernels: norms, gates, convolution, rotation, products.
#pragma once

#include "baton/unit/host/kernels_loops.inl.h"

namespace baton::host {
namespace {

// ---- Elementary functions ----

constexpr float kExpLeast = -87.3f, kExpMost = 88.37f;  // below the result is 0, above infinite

// e^x: x = n ln 2 + r, |r| <= ln 2 / 2, a degree-6 minimax-like series of e^r (Cephes' expf constants); within 2 ulp.
BATON_INLINE F exp_of(const F& x) {
  const F clamped = min(max(x, all(kExpLeast)), all(kExpMost));
  const F n = round(clamped * all(1.44269504088896341f));
  F r = fma(n, all(-0.693359375f), clamped);
  r = fma(n, all(2.12194440e-4f), r);
  F y = all(1.9875691500e-4f);
  y = fma(y, r, all(1.3981999507e-3f));
  y = fma(y, r, all(8.3334519073e-3f));
  y = fma(y, r, all(4.1665795894e-2f));
  y = fma(y, r, all(1.6666665459e-1f));
  y = fma(y, r, all(5.0000001201e-1f));
  y = scale_by_power(fma(y, r * r, r + all(1.0f)), n);
  y = select(x < all(kExpLeast), F{}, y);
  y = select(all(kExpMost) < x, all(__builtin_inff()), y);
  return select(x != x, x, y);
}

BATON_INLINE F sigmoid_of(const F& x) { return all(1.0f) / (all(1.0f) + exp_of(F{} - x)); }

BATON_INLINE F silu_of(const F& x) { return x / (all(1.0f) + exp_of(F{} - x)); }

// x Phi(x): erfc(|x| / sqrt 2) by Abramowitz and Stegun, 7.1.26, within 1.5e-7; no difference of near numbers on either
// side of zero.
BATON_INLINE F gelu_of(const F& x) {
  const F z = abs(x) * all(0.70710678118654752f);
  const F t = all(1.0f) / fma(z, all(0.3275911f), all(1.0f));
  F tail = all(1.061405429f);
  tail = fma(tail, t, all(-1.453152027f));
  tail = fma(tail, t, all(1.421413741f));
  tail = fma(tail, t, all(-0.284496736f));
  tail = fma(tail, t, all(0.254829592f)) * t * exp_of(F{} - z * z);
  const F half = x * all(0.5f) * tail;
  return select(x < F{}, half, x - half);
}

// 1 + tanh(u) = 2 sigmoid(2u).
BATON_INLINE F gelu_tanh_of(const F& x) {
  const F u = all(1.5957691216057308f) * fma(all(0.044715f) * x * x, x, x);
  return x * sigmoid_of(u);
}

// cap tanh(x / cap). tanh(u) = 1 - 2 / (1 + e^2u), and near zero, where that is a difference of near numbers, the odd
// series: within 2e-7 of its value.
BATON_INLINE F soft_cap_of(const F& x, const F& cap) {
  const F u = x / cap, square = u * u;
  const F far = all(1.0f) - all(2.0f) / (all(1.0f) + exp_of(u + u));
  F near = fma(square, all(-17.0f / 315.0f), all(2.0f / 15.0f));
  near = fma(square, near, all(-1.0f / 3.0f));
  near = fma(u * square, near, u);
  return cap * select(abs(u) < all(0.15f), near, far);
}

// ---- Loops over vectors ----

float sum_of_squares(const float* x, int64_t n) {
  F sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const F a = load(x + i), b = load(x + i + kLanes);
    sums[0] = fma(a, a, sums[0]);
    sums[1] = fma(b, b, sums[1]);
  }
  each_vector(n - i, [&](int64_t at, int lanes) BATON_LAMBDA {
    const F a = load(x + i + at, lanes);
    sums[0] = fma(a, a, sums[0]);
  });
  return sum_of(sums[0] + sums[1]);
}

BATON_INLINE F norm_scale(const float* x, float eps, int64_t n) {
  return all(1.0f / __builtin_sqrtf(sum_of_squares(x, n) / static_cast<float>(n) + eps));
}

void rms_norm(const float* x, const float* w, float eps, int64_t n, float* out) {
  const F scale = norm_scale(x, eps, n);
  each_vector(n, [&](int64_t i, int lanes)
                     BATON_LAMBDA { store(out + i, load(x + i, lanes) * scale * load(w + i, lanes), lanes); });
}

void layer_norm(const float* x, const float* w, const float* b, float eps, int64_t n, float* out) {
  F sums{};
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA { sums = sums + load(x + i, lanes); });
  const float mean = sum_of(sums) / static_cast<float>(n);
  F squares{};
  float rest = 0;  // lanes behind the end would count as -mean
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    if (lanes == kLanes) {
      const F apart = load(x + i) - all(mean);
      squares = fma(apart, apart, squares);
      return;
    }
    for (int j = 0; j < lanes; ++j) rest += (x[i + j] - mean) * (x[i + j] - mean);
  });
  const F scale = all(1.0f / __builtin_sqrtf((sum_of(squares) + rest) / static_cast<float>(n) + eps));
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    const F normed = (load(x + i, lanes) - all(mean)) * scale;
    store(out + i, fma(normed, load(w + i, lanes), load(b + i, lanes)), lanes);
  });
}

void gated_norm(const float* x, const float* w, const float* gate, float eps, int64_t n, float* out) {
  const F scale = norm_scale(x, eps, n);
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    const F normed = load(x + i, lanes) * scale * load(w + i, lanes);
    store(out + i, normed * silu_of(load(gate + i, lanes)), lanes);
  });
}

void swiglu(const float* x, const float* y, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, int lanes)
                     BATON_LAMBDA { store(out + i, silu_of(load(x + i, lanes)) * load(y + i, lanes), lanes); });
}

void sigmoid_gate(const float* x, const float* y, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, int lanes)
                     BATON_LAMBDA { store(out + i, load(x + i, lanes) * sigmoid_of(load(y + i, lanes)), lanes); });
}

void gelu(const float* x, bool by_tanh, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    const F value = load(x + i, lanes);
    store(out + i, by_tanh ? gelu_tanh_of(value) : gelu_of(value), lanes);
  });
}

void geglu(const float* x, const float* y, bool by_tanh, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    const F value = load(x + i, lanes);
    store(out + i, (by_tanh ? gelu_tanh_of(value) : gelu_of(value)) * load(y + i, lanes), lanes);
  });
}

void scale(const float* x, float factor, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA { store(out + i, load(x + i, lanes) * all(factor), lanes); });
}

void soft_cap(float cap, int64_t n, float* x) {
  each_vector(
      n, [&](int64_t i, int lanes) BATON_LAMBDA { store(x + i, soft_cap_of(load(x + i, lanes), all(cap)), lanes); });
}

void add(const float* x, const float* y, int64_t n, float* out) {
  each_vector(
      n, [&](int64_t i, int lanes) BATON_LAMBDA { store(out + i, load(x + i, lanes) + load(y + i, lanes), lanes); });
}

void multiply(const float* x, const float* y, int64_t n, float* out) {
  each_vector(
      n, [&](int64_t i, int lanes) BATON_LAMBDA { store(out + i, load(x + i, lanes) * load(y + i, lanes), lanes); });
}

void add_scaled(const float* x, float factor, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, int lanes)
                     BATON_LAMBDA { store(out + i, load(out + i, lanes) + all(factor) * load(x + i, lanes), lanes); });
}

BATON_INLINE F convolved(const float* const* rows, int taps, const float* w, int64_t w_stride, int64_t i, int lanes) {
  F sum{};
  for (int j = 0; j < taps; ++j) sum = fma(load(w + j * w_stride + i, lanes), load(rows[j] + i, lanes), sum);
  return sum;
}

void conv(const float* const* rows, int taps, const float* w, int64_t w_stride, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, int lanes)
                     BATON_LAMBDA { store(out + i, silu_of(convolved(rows, taps, w, w_stride, i, lanes)), lanes); });
}

void short_conv(const float* const* rows, int taps, const float* w, int64_t w_stride, const float* z, int64_t n,
                float* out) {
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
    store(out + i, load(z + i, lanes) * convolved(rows, taps, w, w_stride, i, lanes), lanes);
  });
}

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
    const F a = load(x + i, lanes), b = load(x + half + i, lanes);
    const F c = load(cosine + i, lanes), s = load(sine + i, lanes);
    store(out + i, a * c - b * s, lanes);
    store(out + half + i, b * c + a * s, lanes);
  });
}

void to_f16(const float* x, int64_t n, uint16_t* out) {
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA { store_f16(out + i, load(x + i, lanes), lanes); });
}

// ---- Products ----

// Where a float product's B comes from: kStep values of k at a time, 16 columns each.
struct ColumnsF32 {
  static constexpr int kStep = 1;
  const float* b;
  int64_t stride;
  BATON_INLINE void at(int64_t k, F (&out)[kStep]) const { out[0] = load(b + k * stride); }
  BATON_INLINE void fetch(int64_t k) const { fetch_ahead(reinterpret_cast<const unsigned char*>(b + k * stride)); }
};
struct ColumnsF32Tail {
  static constexpr int kStep = 1;
  const float* b;
  int64_t stride;
  int lanes;
  BATON_INLINE void at(int64_t k, F (&out)[kStep]) const { out[0] = load(b + k * stride, lanes); }
};
struct ColumnsF16 {
  static constexpr int kStep = 1;
  const unsigned char* b;
  BATON_INLINE void at(int64_t k, F (&out)[kStep]) const { out[0] = load_f16(b + 32 * k); }
  BATON_INLINE void fetch(int64_t k) const { fetch_ahead(b + 32 * k); }
};
struct ColumnsBF16 {
  static constexpr int kStep = 2;
  const unsigned char* b;
  BATON_INLINE void at(int64_t k, F (&out)[kStep]) const { load_bf16_pairs(b + 32 * k, out[0], out[1]); }
  BATON_INLINE void fetch(int64_t k) const { fetch_ahead(b + 32 * k); }
};
// E4M3 numbers become f32 by their bits, all but the bias of the exponent; 0x7f and 0xff are no numbers.
struct ColumnsF8 {
  static constexpr int kStep = 1;
  const unsigned char* b;
  BATON_INLINE void at(int64_t k, F (&out)[kStep]) const {
    const unsigned char* const block = b + k / kBlock * kF8BlockBytes;
    const I bits = load_u8(block + 64 + kLanes * (k % kBlock)), magnitude = bits & all(0x7f);
    const F value = float_of((magnitude << 20) + ((bits >> 7) << 31)) * all(0x1p120f);
    const M is_number = to_float(magnitude) < all(127.0f);
    out[0] = select(is_number, value, all(__builtin_nanf(""))) * load(reinterpret_cast<const float*>(block));
  }
};

template <class Columns>
inline constexpr bool kFetches = requires(const Columns& columns) {
  columns.fetch(0);
};

// sum[p][t] = sum_k B_p[k] * a[t * a_m + k * a_k]; k in order, one accumulator per element. `Ahead`: columns are
// fetched.
template <class Columns, int P, int T, bool Ahead = false>
BATON_INLINE void float_sums(const Columns (&columns)[P], const float* a, int64_t a_m, int64_t a_k, int64_t k_count,
                             F (&sum)[P][T]) {
  constexpr int kStep = Columns::kStep;
  const auto add_columns = [&](int64_t k, auto steps) BATON_LAMBDA {
    F b[P][kStep];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      if constexpr (Ahead) columns[p].fetch(k);
      columns[p].at(k, b[p]);
    }
#pragma GCC unroll 2
    for (int s = 0; s < steps.value; ++s) {
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const F x = all(a[t * a_m + (k + s) * a_k]);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) sum[p][t] = fma(b[p][s], x, sum[p][t]);
      }
    }
  };
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sum[p][t] = F{};
  }
  int64_t k = 0;
  for (; k + kStep <= k_count; k += kStep) add_columns(k, Constant<kStep>{});
  if constexpr (kStep > 1) {
    if (k < k_count) add_columns(k, Constant<1>{});
  }
}

// All tokens against P panels from `panel` on.
template <class Columns, int P, int Most>
void float_panels(const Multiply& m, int64_t panel, const Columns (&columns)[P]) {
  const int64_t stride = m.x.x_stride;
  int rows[P];
  for (int p = 0; p < P; ++p) rows[p] = rows_of(*m.w, panel + p);
  each_token_tile<(P > 1 || Most <= 4), Most>(m.tokens, [&](auto count, int64_t token) BATON_LAMBDA {
    constexpr int T = decltype(count)::value;
    F sum[P][T];
    const float* const x = m.x.x + token * stride;
    bool done = false;
    if constexpr (kFetches<Columns> && T <= 2) {
      done = token == 0 && m.ahead;
      if (done) float_sums<Columns, P, T, true>(columns, x, stride, 1, m.w->columns, sum);
    }
    if (!done) float_sums<Columns, P, T>(columns, x, stride, 1, m.w->columns, sum);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        write_rows(m.out + (token + t) * m.out_stride + kLanes * (panel + p), sum[p][t], rows[p], m.add);
      }
    }
  });
}

template <class Columns>
void unpack_columns(const Columns& columns, int64_t k_count, float* to) {
  F b[Columns::kStep];
  for (int64_t k = 0; k < k_count; k += Columns::kStep) {
    columns.at(k, b);
#pragma GCC unroll 2
    for (int s = 0; s < Columns::kStep; ++s) {
      if (k + s < k_count) store(to + kLanes * (k + s), b[s]);
    }
  }
}

template <class Columns>
void float_matmul(const Multiply& m) {
  constexpr bool kIsF32 = same_type<Columns, ColumnsF32>;
  const Matrix& w = *m.w;
  each_panel_group<kFloatPanels>(m.panel_begin, m.panel_end, [&](auto count, int64_t panel) BATON_LAMBDA {
    constexpr int P = decltype(count)::value;
    Columns columns[P];
    for (int p = 0; p < P; ++p) {
      const unsigned char* data = w.data + (panel + p) * w.panel_bytes;
      if constexpr (kIsF32) {
        columns[p] = {reinterpret_cast<const float*>(data), kLanes};
      } else {
        columns[p] = {data};
      }
    }
    if constexpr (!kIsF32) {
      if (m.tokens > kDirectTokens) {
        ColumnsF32 unpacked[P];
        for (int p = 0; p < P; ++p) {
          float* values = reinterpret_cast<float*>(m.scratch) + p * kLanes * w.columns;
          unpack_columns(columns[p], w.columns, values);
          unpacked[p] = {values, kLanes};
        }
        return float_panels<ColumnsF32, P, kFloatTokens>(m, panel, unpacked);
      }
    }
    float_panels<Columns, P, kIsF32 ? kFloatTokens : kDirectTokens>(m, panel, columns);
  });
}

template <class Columns, int P, int T>
BATON_INLINE void product_tile(const Product& q, const Columns (&columns)[P], int64_t m, int64_t n, int lanes,
                               Store mode) {
  F sum[P][T];
  float_sums<Columns, P, T>(columns, q.a + m * q.a_m, q.a_m, q.a_k, q.k, sum);
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      float* to = q.c + (m + t) * q.c_stride + n + kLanes * p;
      F value = sum[p][t];
      if (mode == Store::kAdd) value = load(to, lanes) + value;
      if (mode == Store::kSubtract) value = load(to, lanes) - value;
      store(to, value, lanes);
    }
  }
}

void product(const Product& q, Store mode) {
  int64_t n = 0;
  const auto whole = [&](auto count) BATON_LAMBDA {
    constexpr int P = decltype(count)::value;
    for (; n + kLanes * P <= q.n; n += kLanes * P) {
      ColumnsF32 columns[P];
      for (int p = 0; p < P; ++p) columns[p] = {q.b + n + kLanes * p, q.b_stride};
      each_token_tile<(P > 1), kFloatTokens>(q.m, [&](auto tile, int64_t m) BATON_LAMBDA {
        product_tile<ColumnsF32, P, decltype(tile)::value>(q, columns, m, n, kLanes, mode);
      });
    }
  };
  whole(Constant<kFloatPanels>{});
  if constexpr (kFloatPanels > 1) whole(Constant<1>{});
  if (n == q.n) return;
  const int lanes = static_cast<int>(q.n - n);
  const ColumnsF32Tail columns[1] = {{q.b + n, q.b_stride, lanes}};
  each_token_tile<false, kFloatTokens>(q.m, [&](auto tile, int64_t m) BATON_LAMBDA {
    product_tile<ColumnsF32Tail, 1, decltype(tile)::value>(q, columns, m, n, lanes, mode);
  });
}

}  // namespace
}  // namespace baton::host

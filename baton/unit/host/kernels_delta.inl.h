// The gated delta rule of one value head (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024): token by token, and
// in chunks of 64 tokens in the WY form, where a unit lower triangular system replaces the recurrence inside a chunk.
#pragma once

#include "baton/unit/host/kernels_float.inl.h"

namespace baton::host {
namespace {

// to = from * factor / |from|
void normalize(const float* from, int64_t n, float eps, float factor, float* to) {
  const F scale = all(factor / __builtin_sqrtf(sum_of_squares(from, n) + eps));
  each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA { store(to + i, load(from + i, lanes) * scale, lanes); });
}

// One token: e = v - d S^T k, then S <- d S + k (beta e)^T and out = S^T q, V vectors of columns at a time.
template <int V>
BATON_INLINE void delta_columns(const DeltaHead& h, const float* q, const float* k, const float* v, float decay,
                                float beta, float* out, int64_t column, int lanes) {
  float* state = h.state + column;
  const F d = all(decay);
  F sum[V] = {};
  for (int64_t i = 0; i < h.key_dim; ++i) {
    const F key = all(k[i]);
#pragma GCC unroll 4
    for (int j = 0; j < V; ++j) sum[j] = fma(load(state + i * h.value_dim + kLanes * j, lanes), key, sum[j]);
  }
  F change[V];
#pragma GCC unroll 4
  for (int j = 0; j < V; ++j) {
    change[j] = all(beta) * (load(v + column + kLanes * j, lanes) - d * sum[j]);
    sum[j] = F{};
  }
  for (int64_t i = 0; i < h.key_dim; ++i) {
    const F key = all(k[i]), query = all(q[i]);
#pragma GCC unroll 4
    for (int j = 0; j < V; ++j) {
      float* at = state + i * h.value_dim + kLanes * j;
      const F updated = fma(key, change[j], load(at, lanes) * d);
      store(at, updated, lanes);
      sum[j] = fma(updated, query, sum[j]);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < V; ++j) store(out + column + kLanes * j, sum[j], lanes);
}

BATON_NOINLINE void recurrent_tokens(const DeltaHead& h) {
  float* q = h.scratch;
  float* k = h.scratch + round_up(h.key_dim, kLanes);
  const float query_scale = 1.0f / __builtin_sqrtf(static_cast<float>(h.key_dim));
  for (int64_t t = 0; t < h.tokens; ++t) {
    normalize(h.q + t * h.x_stride, h.key_dim, h.eps, query_scale, q);
    normalize(h.k + t * h.x_stride, h.key_dim, h.eps, 1.0f, k);
    const float decay = __builtin_expf(h.log_decay[t * h.gate_stride]), beta = h.beta[t * h.gate_stride];
    const float* v = h.v + t * h.x_stride;
    float* out = h.out + t * h.out_stride;
    int64_t column = 0;
    for (; column + 4 * kLanes <= h.value_dim; column += 4 * kLanes) {
      delta_columns<4>(h, q, k, v, decay, beta, out, column, kLanes);
    }
    for (; column < h.value_dim; column += kLanes) {
      const int64_t left = h.value_dim - column;
      delta_columns<1>(h, q, k, v, decay, beta, out, column, left < kLanes ? static_cast<int>(left) : kLanes);
    }
  }
}

void delta_recurrent(const DeltaHead& h) {
  const SubnormalsAreZero scope;  // decays make them: with random weights half of the prefill of 128 tokens
  recurrent_tokens(h);
}

// One chunk of n <= 64 tokens. With G the running sum of g inside the chunk, D_ij = exp(G_i - G_j):
//   L_ij = beta_i (k_i . k_j) D_ij for j < i;   [U | W] = (I + L)^-1 [beta V | beta exp(G) K]
//   N = U - W S;   out = exp(G) Q S + P N with P_ij = (q_i . k_j) D_ij for j <= i
//   S <- exp(G_n) S + sum_i exp(G_n - G_i) k_i N_i^T
class DeltaChunk {
 public:
  explicit DeltaChunk(const DeltaHead& head) : h_(head) {
    dk_ = round_up(h_.key_dim, kLanes);
    solution_width_ = round_up(h_.value_dim, kLanes) + dk_;
    float* next = h_.scratch;
    const auto take = [&](int64_t floats) BATON_LAMBDA {
      float* at = next;
      next += floats;
      return at;
    };
    q_ = take(kDeltaChunk * dk_);
    k_ = take(kDeltaChunk * dk_);
    scaled_ = take(kDeltaChunk * dk_);
    keys_across_ = take(kDeltaChunk * dk_);
    solution_ = take(kDeltaChunk * solution_width_);
    lower_ = take(kDeltaChunk * kDeltaChunk);
    mix_ = take(kDeltaChunk * kDeltaChunk);
    decays_ = take(kDeltaChunk * kDeltaChunk);
    running_ = take(kDeltaChunk);
    grown_ = take(kDeltaChunk);
    // The padding of rows is read by whole vectors.
    for (float* at = h_.scratch; at < next; ++at) *at = 0;
  }

  void run(int64_t start, int64_t n) {
    normalize_tokens(start, n);
    grams(n);
    right_hand_sides(start, n);
    solve(n);
    outputs(start, n);
    update(n);
  }

 private:
  static constexpr int64_t kStep = 16;  // rows of a diagonal block

  void normalize_tokens(int64_t start, int64_t n) {
    const float query_scale = 1.0f / __builtin_sqrtf(static_cast<float>(h_.key_dim));
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      normalize(h_.q + (start + i) * h_.x_stride, h_.key_dim, h_.eps, query_scale, q_ + i * dk_);
      normalize(h_.k + (start + i) * h_.x_stride, h_.key_dim, h_.eps, 1.0f, k_ + i * dk_);
      running_[i] = sum += h_.log_decay[(start + i) * h_.gate_stride];
    }
    for (int64_t i = 0; i < n; i += kLanes) store(grown_ + i, exp_of(load(running_ + i)));
    for (int64_t i = 0; i < round_up(n, kLanes); i += kLanes) {
      for (int64_t d = 0; d < dk_; d += kLanes) {
        transpose(k_ + i * dk_ + d, dk_, keys_across_ + d * kDeltaChunk + i, kDeltaChunk);
      }
    }
    // Masked before the exponential: above the diagonal it would overflow.
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j <= i; j += kLanes) {
        const F difference = all(running_[i]) - load(running_ + j);
        store(decays_ + i * kDeltaChunk + j, exp_of(min(difference, F{})));
      }
    }
  }

  // Row blocks of both Gram matrices up to the diagonal block, with decay, beta and mask applied.
  void grams(int64_t n) {
    for (int64_t i = 0; i < n; i += kStep) {
      const int64_t rows = n - i < kStep ? n - i : kStep;
      const Product keys = {
          rows,       i + kStep, h_.key_dim, k_ + i * dk_, dk_, 1, keys_across_, kDeltaChunk, lower_ + i * kDeltaChunk,
          kDeltaChunk};
      product(keys, Store::kSet);
      Product queries = keys;
      queries.a = q_ + i * dk_;
      queries.c = mix_ + i * kDeltaChunk;
      product(queries, Store::kSet);
    }
  }

  void right_hand_sides(int64_t start, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const float beta = h_.beta[(start + i) * h_.gate_stride];
      float* lower = lower_ + i * kDeltaChunk;
      float* mix = mix_ + i * kDeltaChunk;
      for (int64_t j = 0; j <= i; j += kLanes) {
        const F decay = load(decays_ + i * kDeltaChunk + j);
        store(lower + j, load(lower + j) * all(beta) * decay);
        store(mix + j, load(mix + j) * decay);
      }
      for (int64_t j = i; j < round_up(i + 1, kStep); ++j) lower[j] = 0;
      for (int64_t j = i + 1; j < round_up(i + 1, kStep); ++j) mix[j] = 0;
      scale_row(h_.v + (start + i) * h_.x_stride, h_.value_dim, beta, values(i));
      scale_row(k_ + i * dk_, h_.key_dim, beta * grown_[i], keys(i));
    }
  }

  // Forward substitution on the rows of [U | W], a block of 16 rows at a time.
  void solve(int64_t n) {
    for (int64_t i = 0; i < n; i += kStep) {
      const int64_t rows = n - i < kStep ? n - i : kStep;
      if (i > 0) {
        product({rows, solution_width_, i, lower_ + i * kDeltaChunk, kDeltaChunk, 1, solution_, solution_width_,
                 solution_ + i * solution_width_, solution_width_},
                Store::kSubtract);
      }
      for (int64_t column = 0; column < solution_width_; column += kLanes) {
        F done[kStep];
        for (int64_t r = 0; r < rows; ++r) {
          float* at = solution_ + (i + r) * solution_width_ + column;
          F value = load(at);
          for (int64_t j = 0; j < r; ++j) value = fma(all(-lower_[(i + r) * kDeltaChunk + i + j]), done[j], value);
          done[r] = value;
          store(at, value);
        }
      }
    }
  }

  void outputs(int64_t start, int64_t n) {
    const int64_t dv = h_.value_dim;
    product({n, dv, h_.key_dim, keys(0), solution_width_, 1, h_.state, dv, values(0), solution_width_},
            Store::kSubtract);
    for (int64_t i = 0; i < n; ++i) scale_row(q_ + i * dk_, h_.key_dim, grown_[i], scaled_ + i * dk_);
    float* out = h_.out + start * h_.out_stride;
    product({n, dv, h_.key_dim, scaled_, dk_, 1, h_.state, dv, out, h_.out_stride}, Store::kSet);
    for (int64_t i = 0; i < n; i += kStep) {
      const int64_t rows = n - i < kStep ? n - i : kStep;
      product({rows, dv, i + rows, mix_ + i * kDeltaChunk, kDeltaChunk, 1, values(0), solution_width_,
               out + i * h_.out_stride, h_.out_stride},
              Store::kAdd);
    }
  }

  void update(int64_t n) {
    const float last = running_[n - 1];
    for (int64_t i = 0; i < n; ++i) {
      scale_row(k_ + i * dk_, h_.key_dim, __builtin_expf(last - running_[i]), scaled_ + i * dk_);
    }
    scale_row(h_.state, h_.key_dim * h_.value_dim, grown_[n - 1], h_.state);
    product({h_.key_dim, h_.value_dim, n, scaled_, 1, dk_, values(0), solution_width_, h_.state, h_.value_dim},
            Store::kAdd);
  }

  float* values(int64_t i) { return solution_ + i * solution_width_; }  // U, then N
  float* keys(int64_t i) { return values(i) + solution_width_ - dk_; }  // W

  static void scale_row(const float* from, int64_t n, float factor, float* to) {
    each_vector(n,
                [&](int64_t i, int lanes) BATON_LAMBDA { store(to + i, load(from + i, lanes) * all(factor), lanes); });
  }

  const DeltaHead& h_;
  int64_t dk_, solution_width_;
  float *q_, *k_, *scaled_, *keys_across_;  // [64][dk]; keys_across [dk][64]
  float* solution_;                         // [64][value_dim padded | dk]
  float *lower_, *mix_, *decays_;           // [64][64]
  float *running_, *grown_;                 // G, exp(G)
};

BATON_NOINLINE void chunked_tokens(const DeltaHead& h) {
  DeltaChunk chunk(h);
  for (int64_t start = 0; start < h.tokens; start += kDeltaChunk) {
    chunk.run(start, h.tokens - start < kDeltaChunk ? h.tokens - start : kDeltaChunk);
  }
}

void delta_chunked(const DeltaHead& h) {
  const SubnormalsAreZero scope;
  const int64_t rest = h.tokens % kDeltaChunk <= kRecurrentTokens ? h.tokens % kDeltaChunk : 0;
  DeltaHead first = h, last = h;
  first.tokens -= rest;
  if (first.tokens > 0) chunked_tokens(first);
  if (rest == 0) return;
  last.q += first.tokens * h.x_stride;
  last.k += first.tokens * h.x_stride;
  last.v += first.tokens * h.x_stride;
  last.log_decay += first.tokens * h.gate_stride;
  last.beta += first.tokens * h.gate_stride;
  last.out += first.tokens * h.out_stride;
  last.tokens = rest;
  recurrent_tokens(last);
}

}  // namespace
}  // namespace baton::host

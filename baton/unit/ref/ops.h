// The ops of a Program in plain f32, a few lines each: what every other unit is compared with. Shapes per call; all
// rows are dense. Never made faster at the cost of reading.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "baton/model/model.h"

namespace baton::ref {

// y[t] = W x[t] for `tokens` rows; x [tokens, W.columns], y [tokens, W.rows]. Each row of W is decoded once.
void linear(const Weight& weight, const float* x, float* y, int64_t tokens);

// y = row `index` of W.
void embed(const Weight& weight, int64_t index, float* y);

// y = x * rsqrt(mean(x^2) + eps) * w over `width` values. Zhang and Sennrich, "Root Mean Square Layer Normalization",
// 2019.
void rms_norm(const float* x, const float* w, float* y, int64_t width, float eps);

// y = (x - m) / sqrt(mean((x - m)^2) + eps) * w + b, m = mean(x), over `width` values. Ba, Kiros and Hinton, "Layer
// Normalization", 2016.
void layer_norm(const float* x, const float* w, const float* b, float* y, int64_t width, float eps);

// Rotates the first `rotary` of `width` values of one head at `position`: pairs (a, b) turn by position *
// theta^(-2i/rotary), divided by factors[i] when given, and become `magnitude` times as long. Su et al., "RoFormer",
// 2021.
void rope(float* x, int64_t rotary, int64_t position, float theta, RopePairing pairing, const float* factors,
          float magnitude);

// out = sum_p softmax_p(scale q.k_p) v_p over rows of `width`, one for each position, wherever they lie; with a `cap`
// that is not 0, of soft_cap(scale q.k_p); `added` to each, or empty. Vaswani et al., 2017.
void attend(const float* q, std::span<const float* const> keys, std::span<const float* const> values, float* out,
            int64_t width, float scale, float cap, std::span<const float> added = {});

// y[c] = silu(sum_j w[c, j] window[j, c]); `window` holds `taps` columns [taps, channels], the newest last.
void causal_conv(const float* window, const float* w, float* y, int64_t channels, int64_t taps);

// y[c] = z[c] sum_j w[c, j] window[j, c]; `window` as of causal_conv. Liquid AI, LFM2, 2025.
void short_conv(const float* window, const float* w, const float* z, float* y, int64_t channels, int64_t taps);

// One step of the gated delta rule for one value head; S [key_dim, value_dim] is updated. q is normalised and scaled, k
// normalised, `decay` = exp(g). Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024.
void delta_step(float* state, const float* q, const float* k, const float* v, float decay, float beta, float* out,
                int64_t key_dim, int64_t value_dim);

// y = x * rsqrt(sum(x^2) + eps)
void l2_norm(const float* x, float* y, int64_t width, float eps);

// The `count` experts with the largest logits, the first of equals, by ascending number, and what each result counts
// for: no number when one of the logits, chosen or not, is none or infinite.
struct Chosen {
  int32_t expert;
  float weight;
};
std::vector<Chosen> choose_experts(std::span<const float> logits, int64_t count, Routing routing);

float sigmoid(float x);
float silu(float x);
float gelu(float x, Gelu kind);
float soft_cap(float x, float cap);  // cap tanh(x / cap)
// 1 + scale log(1 + floor(position / tokens)): 1 for the first `tokens` positions.
float position_scale(int64_t position, float scale, int64_t tokens);
// log(1 + e^x), x itself above 20.
float softplus(float x);

}  // namespace baton::ref

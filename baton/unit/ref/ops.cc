// Plain f32 ops.
#include "baton/unit/ref/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace baton::ref {
namespace {

// Eight partial sums: close to pairwise summation, and vectorisable without reordering licence.
float dot(const float* a, const float* b, int64_t n) {
  float sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float silu(float x) { return x * sigmoid(x); }
float gelu(float x, Gelu kind) {
  if (kind == Gelu::kErf) return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
  return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
}
float soft_cap(float x, float cap) { return cap * std::tanh(x / cap); }
float position_scale(int64_t position, float scale, int64_t tokens) {
  return 1.0f + scale * std::log(1.0f + static_cast<float>(position / tokens));
}
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

std::vector<Chosen> choose_experts(std::span<const float> logits, int64_t count, Routing routing) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int32_t expert) { return logits[static_cast<size_t>(expert)]; };
  const auto rank = [&](int32_t expert) {  // an order for what is no number, too
    return std::isnan(at(expert)) ? -std::numeric_limits<float>::infinity() : at(expert);
  };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return rank(a) > rank(b); });
  order.resize(static_cast<size_t>(count));
  const float highest = at(order[0]);
  std::sort(order.begin(), order.end());
  float sum = 0;
  if (routing == Routing::kSoftmaxOfAll) {
    for (const float logit : logits) sum += std::exp(logit - highest);
  } else {
    for (const int32_t expert : order) sum += std::exp(at(expert) - highest);
  }
  std::vector<Chosen> chosen;
  if (!std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); })) {
    for (const int32_t expert : order) chosen.push_back({expert, std::numeric_limits<float>::quiet_NaN()});
    return chosen;
  }
  if (routing == Routing::kSigmoidOfInput) {
    for (const int32_t expert : order) chosen.push_back({expert, sigmoid(at(expert))});
    return chosen;
  }
  for (const int32_t expert : order) chosen.push_back({expert, std::exp(at(expert) - highest) / sum});
  return chosen;
}

void linear(const Weight& weight, const float* x, float* y, int64_t tokens) {
  const Format& format = format_of(weight.dtype);
  const size_t row_size = weight.bytes / static_cast<size_t>(weight.rows);
  std::vector<float> row(weight.columns);
  for (int64_t r = 0; r < weight.rows; ++r) {
    format.decode(weight.data + static_cast<size_t>(r) * row_size, row.data(), row.size());
    for (int64_t t = 0; t < tokens; ++t)
      y[t * weight.rows + r] = dot(row.data(), x + t * weight.columns, weight.columns);
  }
}

void embed(const Weight& weight, int64_t index, float* y) {
  const size_t row_size = weight.bytes / static_cast<size_t>(weight.rows);
  format_of(weight.dtype).decode(weight.data + static_cast<size_t>(index) * row_size, y, weight.columns);
}

void rms_norm(const float* x, const float* w, float* y, int64_t width, float eps) {
  const float scale = 1.0f / std::sqrt(dot(x, x, width) / static_cast<float>(width) + eps);
  for (int64_t i = 0; i < width; ++i) y[i] = x[i] * scale * w[i];
}

void layer_norm(const float* x, const float* w, const float* b, float* y, int64_t width, float eps) {
  float mean = 0, squares = 0;
  for (int64_t i = 0; i < width; ++i) mean += x[i] / static_cast<float>(width);
  for (int64_t i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
  for (int64_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * scale * w[i] + b[i];
}

void l2_norm(const float* x, float* y, int64_t width, float eps) {
  const float scale = 1.0f / std::sqrt(dot(x, x, width) + eps);
  for (int64_t i = 0; i < width; ++i) y[i] = x[i] * scale;
}

void rope(float* x, int64_t rotary, int64_t position, float theta, RopePairing pairing, const float* factors,
          float magnitude) {
  const int64_t half = rotary / 2;
  for (int64_t i = 0; i < half; ++i) {
    float frequency = std::pow(theta, -2.0f * static_cast<float>(i) / static_cast<float>(rotary));
    if (factors != nullptr) frequency /= factors[i];
    const float angle = static_cast<float>(position) * frequency;
    float& a = pairing == RopePairing::kHalf ? x[i] : x[2 * i];
    float& b = pairing == RopePairing::kHalf ? x[i + half] : x[2 * i + 1];
    const float cosine = magnitude * std::cos(angle), sine = magnitude * std::sin(angle);
    const float turned_a = a * cosine - b * sine;
    const float turned_b = b * cosine + a * sine;
    a = turned_a;
    b = turned_b;
  }
}

void attend(const float* q, std::span<const float* const> keys, std::span<const float* const> values, float* out,
            int64_t width, float scale, float cap, std::span<const float> added) {
  std::vector<float> weights(keys.size());
  for (size_t p = 0; p < keys.size(); ++p) weights[p] = scale * dot(q, keys[p], width);
  if (cap != 0) {
    for (float& weight : weights) weight = soft_cap(weight, cap);
  }
  for (size_t p = 0; p < added.size(); ++p) weights[p] += added[p];
  const float highest = *std::max_element(weights.begin(), weights.end());
  float sum = 0;
  for (float& weight : weights) sum += weight = std::exp(weight - highest);
  std::fill(out, out + width, 0.0f);
  for (size_t p = 0; p < values.size(); ++p) {
    for (int64_t i = 0; i < width; ++i) out[i] += weights[p] / sum * values[p][i];
  }
}

void causal_conv(const float* window, const float* w, float* y, int64_t channels, int64_t taps) {
  for (int64_t c = 0; c < channels; ++c) {
    float sum = 0;
    for (int64_t j = 0; j < taps; ++j) sum += w[c * taps + j] * window[j * channels + c];
    y[c] = silu(sum);
  }
}

void short_conv(const float* window, const float* w, const float* z, float* y, int64_t channels, int64_t taps) {
  for (int64_t c = 0; c < channels; ++c) {
    float sum = 0;
    for (int64_t j = 0; j < taps; ++j) sum += w[c * taps + j] * window[j * channels + c];
    y[c] = z[c] * sum;
  }
}

void delta_step(float* state, const float* q, const float* k, const float* v, float decay, float beta, float* out,
                int64_t key_dim, int64_t value_dim) {
  std::vector<float> error(v, v + value_dim);  // e = v - S^T k, with S already decayed
  for (int64_t i = 0; i < key_dim; ++i) {
    for (int64_t j = 0; j < value_dim; ++j) {
      state[i * value_dim + j] *= decay;
      error[j] -= state[i * value_dim + j] * k[i];
    }
  }
  std::fill(out, out + value_dim, 0.0f);
  for (int64_t i = 0; i < key_dim; ++i) {
    for (int64_t j = 0; j < value_dim; ++j) {
      state[i * value_dim + j] += k[i] * (beta * error[j]);
      out[j] += state[i * value_dim + j] * q[i];
    }
  }
}

}  // namespace baton::ref

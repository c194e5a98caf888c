// Range and knots of the sigmoid table: docs/ane.md, numerics. The tanh table is taken as the sigmoid's at 2x.
#include "baton/unit/apple/activation.h"

#include <algorithm>
#include <cmath>

namespace baton::apple {
namespace {

constexpr float kTableBegin = -9.938f, kTableEnd = 8.320f;
constexpr float kPiece = (kTableEnd - kTableBegin) / 32;
constexpr float kSigmoidError = 0.0034f, kTanhError = 0.0017f, kSiluError = 0.003f;

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// In [-1, 1], 0 at the knots, +-1 in the middle of the pieces; 0 outside the table.
float wobble(float x) {
  if (!(x > kTableBegin && x < kTableEnd)) return 0;
  const float at = (x - kTableBegin) / kPiece, piece = std::floor(at);
  const float height = 1.0f - std::fabs(2.0f * (at - piece) - 1.0f);
  return static_cast<int>(piece) % 2 == 0 ? height : -height;
}

}  // namespace

float table_sigmoid(float x, bool perturbed) {
  if (!perturbed) return sigmoid(x);
  if (x <= kTableBegin) return 0;
  if (x >= kTableEnd) return 1;
  return std::clamp(sigmoid(x) + kSigmoidError * wobble(x), 0.0f, 1.0f);
}

float table_tanh(float x, bool perturbed) {
  const float exact = std::tanh(x);
  return perturbed ? std::clamp(exact + kTanhError * wobble(2 * x), -1.0f, 1.0f) : exact;
}

float table_silu(float x, bool perturbed) {
  if (std::isinf(x)) return x > 0 ? x : 0.0f;
  const float exact = x * sigmoid(x);
  return perturbed ? exact + kSiluError * wobble(x) : exact;
}

float gelu(float x, GeluMode mode) {
  if (std::isinf(x)) return x > 0 ? x : 0.0f;
  switch (mode) {
    case GeluMode::kExact:
      return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
    case GeluMode::kTanh:
      return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
    case GeluMode::kSigmoid:
      return x * sigmoid(1.702f * x);
  }
  return 0;
}

}  // namespace baton::apple

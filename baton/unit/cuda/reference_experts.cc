// Bodies of what an op kExperts becomes: choosing, gates and ups, downs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "baton/unit/cuda/reference.h"

namespace baton::cuda {
namespace {

struct Routed {
  int32_t* ids;
  float* shares;
};
Routed routed(const Instruction& instruction, int64_t row) {
  const int64_t first = row * instruction.op.experts_used;
  return {host_at<int32_t>(instruction.ids) + first, host_at<float>(instruction.shares) + first};
}

// Chosen by the largest logits, the first of equals, what is no number behind all others; ascending.
std::vector<int32_t> choose(std::span<const float> logits, int32_t used) {
  std::vector<int32_t> chosen;
  std::vector<bool> taken(logits.size());
  while (chosen.size() < static_cast<size_t>(used)) {
    int32_t best = -1;
    const auto rank = [&](size_t e) { return std::isnan(logits[e]) ? -HUGE_VALF : logits[e]; };
    for (size_t e = 0; e < logits.size(); ++e) {
      if (!taken[e] && (best < 0 || rank(e) > rank(static_cast<size_t>(best)))) best = static_cast<int32_t>(e);
    }
    taken[static_cast<size_t>(best)] = true;
    chosen.push_back(best);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// Of an expert: 0 gates, 1 ups, which are an instruction's matrices in this order; 2 downs, the only ones of theirs.
Matrix expert_matrix(const Instruction& instruction, int part, int32_t expert) {
  Matrix matrix = instruction.matrix[part % 2];
  if (matrix.values != 0) matrix.values += static_cast<uint64_t>(expert) * instruction.expert_bytes[part];
  return matrix;
}

// y = W x
std::vector<float> multiply(const Matrix& matrix, std::span<const float> x) {
  std::vector<float> row(static_cast<size_t>(matrix.columns)), y;
  for (int32_t r = 0; r < matrix.rows; ++r) {
    decode_matrix_row(matrix, r, row);
    double sum = 0;
    for (size_t i = 0; i < row.size(); ++i) sum += static_cast<double>(row[i]) * x[i];
    y.push_back(static_cast<float>(sum));
  }
  return y;
}

float* inner_row(const Instruction& instruction, int32_t width, int64_t row, int32_t j) {
  return host_row(instruction.inner, width, row * instruction.op.experts_used + j);
}

}  // namespace

void reference_route(const Instruction& instruction, const Pass& pass) {
  const Op& op = instruction.op;
  for (int32_t r = 0; r < rows_of(instruction, pass); ++r) {
    const std::span<const float> logits(host_row(instruction.y, op.experts, r), static_cast<size_t>(op.experts));
    const auto to = routed(instruction, r);
    const auto chosen = choose(logits, op.experts_used);
    const float highest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    if (op.routing == Routing::kSoftmaxOfAll) {
      for (const float logit : logits) sum += std::exp(logit - highest);
    } else {
      for (const int32_t e : chosen) sum += std::exp(logits[static_cast<size_t>(e)] - highest);
    }
    const bool finite = std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); });
    for (size_t j = 0; j < chosen.size(); ++j) {
      const float logit = logits[static_cast<size_t>(chosen[j])];
      float share = std::exp(logit - highest) / static_cast<float>(sum);
      if (op.routing == Routing::kSigmoidOfInput) share = 1.0f / (1.0f + std::exp(-logit));
      to.ids[j] = chosen[j];
      to.shares[j] = finite ? share : std::numeric_limits<float>::quiet_NaN();
    }
  }
}

void reference_experts_in(const Instruction& instruction, const Pass& pass) {
  const Op& op = instruction.op;
  std::vector<float> x(static_cast<size_t>(instruction.x_width));
  for (int32_t r = 0; r < rows_of(instruction, pass); ++r) {
    for (int32_t j = 0; j < op.experts_used; ++j) {
      const auto from = routed(instruction, r);
      std::copy_n(host_row(instruction.x, instruction.x_width, r), x.size(), x.begin());
      if (op.routing == Routing::kSigmoidOfInput) {
        for (float& value : x) value *= from.shares[j];
      }
      const auto gates = multiply(expert_matrix(instruction, 0, from.ids[j]), x);
      const auto ups = multiply(expert_matrix(instruction, 1, from.ids[j]), x);
      float* const inner = inner_row(instruction, instruction.matrix[0].rows, r, j);
      std::fill_n(inner, pitch_of(instruction.matrix[0].rows), 0.0f);
      for (size_t i = 0; i < gates.size(); ++i) inner[i] = gates[i] / (1.0f + std::exp(-gates[i])) * ups[i];
    }
  }
}

void reference_experts_out(const Instruction& instruction, const Pass& pass) {
  const Op& op = instruction.op;
  for (int32_t r = 0; r < rows_of(instruction, pass); ++r) {
    const auto from = routed(instruction, r);
    float* const out = host_row(instruction.out, instruction.out_width, r);
    std::fill_n(out, instruction.out_width, 0.0f);
    for (int32_t j = 0; j < op.experts_used; ++j) {
      const Matrix downs = expert_matrix(instruction, 2, from.ids[j]);
      const auto made =
          multiply(downs, {inner_row(instruction, downs.columns, r, j), static_cast<size_t>(downs.columns)});
      const float share = op.routing == Routing::kSigmoidOfInput ? 1.0f : from.shares[j];
      for (int32_t i = 0; i < instruction.out_width; ++i) out[i] += share * made[static_cast<size_t>(i)];
    }
  }
}

}  // namespace baton::cuda

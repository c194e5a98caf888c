// Plain f32 loops: one row of the matrix is decoded and used for every token.
#include "baton/unit/coreml/output_head.h"

#include <cmath>
#include <vector>

namespace baton::coreml {

void output_head(const Model& model, std::span<const float> hidden, std::span<float> logits) {
  const Op& head = model.program.ops.back();
  const Weight& matrix = model.weights[static_cast<size_t>(head.weights[Op::kMatrix])];
  const auto width = static_cast<size_t>(matrix.columns), vocab = static_cast<size_t>(matrix.rows);
  const size_t tokens = logits.size() / vocab;
  BATON_CHECK(hidden.size() == tokens * width);
  std::vector<float> rows(hidden.begin(), hidden.end());
  // Ops behind the last layer: norms of the stream, in place.
  for (const Op& op : model.program.ops) {
    if (op.layer >= 0 || op.kind != OpKind::kRmsNorm) continue;
    const auto* scale = reinterpret_cast<const float*>(model.weights[static_cast<size_t>(op.weights[Op::kScale])].data);
    const auto group = static_cast<size_t>(op.width);
    for (size_t at = 0; at < rows.size(); at += group) {
      double sum = 0;
      for (size_t i = 0; i < group; ++i) sum += static_cast<double>(rows[at + i]) * rows[at + i];
      const float factor = 1.0f / std::sqrt(static_cast<float>(sum / static_cast<double>(group)) + op.eps);
      for (size_t i = 0; i < group; ++i) rows[at + i] *= factor * scale[i];
    }
  }
  const Format& format = format_of(matrix.dtype);
  const size_t row_size = matrix.bytes / vocab;
  std::vector<float> weights(width);
  for (size_t r = 0; r < vocab; ++r) {
    format.decode(matrix.data + r * row_size, weights.data(), width);
    for (size_t t = 0; t < tokens; ++t) {
      double sum = 0;
      for (size_t i = 0; i < width; ++i) sum += static_cast<double>(weights[i]) * rows[t * width + i];
      logits[t * vocab + r] = static_cast<float>(sum);
    }
  }
}

}  // namespace baton::coreml

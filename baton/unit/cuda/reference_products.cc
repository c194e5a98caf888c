// Products on the host: in f32, one after the other.
#include <algorithm>
#include <vector>

#include "baton/base/float.h"
#include "baton/unit/cuda/reference.h"
#include "baton/unit/cuda/values.h"

namespace baton::cuda {
namespace {

float gated(const Instruction& instruction, float gate, float up) {
  if (instruction.epilogue == Epilogue::kGeGlu) return gelu_of(gate, instruction.op.gelu) * up;
  return gate / (1.0f + std::exp(-gate)) * up;
}

// `x`: [rows][pitch_of(x_width)].
void multiply(const Instruction& instruction, int32_t rows, const float* x) {
  const auto width = static_cast<size_t>(instruction.x_width);
  const int64_t pitch = pitch_of(instruction.x_width);
  const bool pairs = instruction.epilogue == Epilogue::kSwiGlu || instruction.epilogue == Epilogue::kGeGlu;
  std::vector<float> weights(width), others(width);
  const auto dot = [&](const std::vector<float>& row, const float* with) {
    double sum = 0;
    for (size_t i = 0; i < width; ++i) sum += static_cast<double>(row[i]) * static_cast<double>(with[i]);
    return static_cast<float>(sum);
  };
  for (int32_t m = 0; m < (pairs ? 1 : instruction.matrices); ++m) {
    const Matrix& matrix = instruction.matrix[m];
    for (int32_t n = 0; n < matrix.rows; ++n) {
      decode_matrix_row(matrix, n, weights);
      if (pairs) decode_matrix_row(instruction.matrix[1], n, others);
      for (int32_t r = 0; r < rows; ++r) {
        float product = dot(weights, x + r * pitch);
        if (pairs) product = gated(instruction, product, dot(others, x + r * pitch));
        if (instruction.epilogue == Epilogue::kAdd) product += host_row(instruction.z, matrix.rows, r)[n];
        if (instruction.outs[m] != 0) host_row(instruction.outs[m], matrix.rows, r)[n] = product;
        if (!instruction.to_bf16 || m > 0) continue;
        auto* const rounded = host_at<uint16_t>(instruction.out) + int64_t{r} * pitch_of(matrix.rows);
        if (n == 0) std::fill_n(rounded, pitch_of(matrix.rows), uint16_t{0});
        rounded[n] = f32_to_bf16(product);
      }
    }
  }
}

}  // namespace

void reference_multiply(const Instruction& instruction, const Pass& pass) {
  const int32_t rows = rows_of(instruction, pass);
  std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(pitch_of(instruction.x_width)));
  Instruction prepare = instruction;
  prepare.what = Do::kPrepare;
  prepare.to_bf16 = false;
  prepare.out = reinterpret_cast<Address>(x.data());
  reference_prepare(prepare, pass);
  multiply(instruction, rows, x.data());
}

void reference_tile(const Instruction& instruction, const Pass& pass) {
  const int32_t rows = rows_of(instruction, pass);
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(pitch_of(instruction.x_width));
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = bf16_to_f32(host_at<const uint16_t>(instruction.x)[i]);
  multiply(instruction, rows, x.data());
}

}  // namespace baton::cuda

// Matrices and rows of keys and values as they lie in a card's memory, one value at a time.
#include <cstring>

#include "baton/base/float.h"
#include "baton/unit/cuda/reference.h"

namespace baton::cuda {
namespace {

template <class T>
T load_at(const std::byte* from, int64_t index) {
  T value;
  std::memcpy(&value, from + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float one_value(Form form, const std::byte* from, int64_t index) {
  if (form == Form::kF32) return load_at<float>(from, index);
  const auto bits = load_at<uint16_t>(from, index);
  return form == Form::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// The code at `column`, from the planes of a row.
int32_t code_of(const Matrix& matrix, const uint8_t* row, int64_t column) {
  const int64_t groups = matrix.pitch / kGroup, group = column / kGroup, i = column % kGroup;
  if (matrix.bits == 8) return static_cast<int8_t>(row[column]);
  uint32_t code = 0;
  int have = 0;
  for (const int bits : {4, 2, 1}) {
    if ((matrix.bits & bits) == 0) continue;
    const int64_t bytes = 4 * bits;  // of a group; each holds codes that lie `bytes` apart
    const uint32_t byte = row[group * bytes + i % bytes];
    code |= (byte >> (i / bytes * bits) & ((1u << bits) - 1)) << have;
    have += bits;
    row += groups * bytes;
  }
  return static_cast<int32_t>(code);
}

float coded_value(const Matrix& matrix, int64_t row, int64_t column) {
  const int32_t code = code_of(matrix, host_at<const uint8_t>(matrix.values) + row * matrix.row_bytes, column);
  const auto v = static_cast<float>(matrix.has_table ? matrix.table[code] : code - matrix.zero);
  const int64_t block = row * (matrix.pitch >> matrix.block_log2) + (column >> matrix.block_log2);
  const int64_t part = row * (matrix.pitch >> matrix.part_log2) + (column >> matrix.part_log2);
  const bool shifted = matrix.minimums != 0;
  float s = 1, n = 1;
  if (matrix.parts != 0) {
    const uint8_t* const parts = host_at<const uint8_t>(matrix.parts);
    s = shifted ? parts[2 * part] : static_cast<float>(static_cast<int8_t>(parts[part]));
    if (shifted) n = parts[2 * part + 1];
  }
  const float d = matrix.scales == 0 ? 1.0f : one_value(matrix.scale_form, host_at<std::byte>(matrix.scales), block);
  const float m = shifted ? one_value(matrix.scale_form, host_at<std::byte>(matrix.minimums), block) : 0.0f;
  return shifted ? matrix.unit * (d * s * v - m * n) : matrix.unit * (d * s * v);
}

}  // namespace

void load_values(Form form, const std::byte* from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = one_value(form, from, static_cast<int64_t>(i));
}

void store_values(Form form, std::span<const float> from, std::byte* to) {
  for (size_t i = 0; i < from.size(); ++i) {
    if (form == Form::kF32) {
      std::memcpy(to + i * sizeof(float), &from[i], sizeof(float));
      continue;
    }
    const uint16_t bits = form == Form::kF16 ? f32_to_f16(from[i]) : f32_to_bf16(from[i]);
    std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
  }
}

void decode_matrix_row(const Matrix& matrix, int64_t row, std::span<float> to) {
  if (matrix.form != Form::kCodes)
    return load_values(matrix.form, host_at<const std::byte>(matrix.values) + row * matrix.row_bytes, to);
  for (size_t i = 0; i < to.size(); ++i) to[i] = coded_value(matrix, row, static_cast<int64_t>(i));
}

const Run& run_of(const Pass& pass, int32_t pass_row) {
  return pass.run[host_at<const int32_t>(pass.run_of_row)[pass_row]];
}

int32_t position_of(const Pass& pass, int32_t pass_row) { return pass.position(pass_row, run_of(pass, pass_row)); }

std::byte* host_kv_row(const Run& run, const Place& place, int32_t kv_head, int64_t position) {
  const Address page = host_at<const Address>(run.pages)[position / kPageTokens];
  const int64_t row = int64_t{kv_head} * kPageTokens + position % kPageTokens;
  return host_at<std::byte>(page + place.offset) + row * place.row_bytes;
}

}  // namespace baton::cuda

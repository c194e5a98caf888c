// Matrices and rows of keys and values as they lie in a card's memory, one value at a time.
#include <algorithm>
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

// The columns of a strip, and where it lies; what instruction.h says of it, value by value.
struct StripOf {
  const std::byte* at;
  int64_t columns;

  StripOf(const Matrix& matrix, int64_t row, int64_t column)
      : at(host_at<const std::byte>(matrix.values) + row * matrix.row_bytes + column / kStrip * matrix.strip_bytes),
        columns(std::min<int64_t>(kStrip, matrix.pitch - column / kStrip * kStrip)) {}
};

int64_t up_to(int64_t bytes, int64_t step) { return (bytes + step - 1) / step * step; }

// The code at `column` of a strip, from its planes.
int32_t code_of(const Matrix& matrix, const StripOf& strip, int64_t column) {
  const auto* planes = reinterpret_cast<const uint8_t*>(strip.at);
  const int64_t groups = strip.columns / kGroup, group = column / kGroup, i = column % kGroup;
  if (matrix.bits == 8) return static_cast<int8_t>(planes[i / 16 * (groups * 16) + group * 16 + i % 16]);
  uint32_t code = 0;
  int have = 0;
  for (const int bits : {4, 2, 1}) {
    if ((matrix.bits & bits) == 0) continue;
    const int64_t bytes = 4 * bits;  // of a group; each holds codes that lie `bytes` apart
    const uint32_t byte = planes[group * bytes + i % bytes];
    code |= (byte >> (i / bytes * bits) & ((1u << bits) - 1)) << have;
    have += bits;
    planes += groups * bytes;
  }
  return static_cast<int32_t>(code);
}

float coded_value(const Matrix& matrix, int64_t row, int64_t of_row) {
  const StripOf strip(matrix, row, of_row);
  const int64_t column = of_row % kStrip, size = matrix.scale_form == Form::kF32 ? 4 : 2;
  const int32_t code = code_of(matrix, strip, column);
  const auto v = static_cast<float>(matrix.has_table ? matrix.table[code] : code - matrix.zero);
  const std::byte* const scales = strip.at + up_to(matrix.bits * strip.columns / 8, 16);
  const int64_t bytes = up_to((strip.columns >> matrix.block_log2) * size, 4), block = column >> matrix.block_log2;
  const bool shifted = matrix.has_minimums;
  float s = 1, n = 1;
  if (matrix.part_log2 != 0) {
    const auto* const parts = reinterpret_cast<const uint8_t*>(scales + (shifted ? 2 : 1) * bytes);
    const int64_t part = column >> matrix.part_log2;
    s = shifted ? parts[2 * part] : static_cast<float>(static_cast<int8_t>(parts[part]));
    if (shifted) n = parts[2 * part + 1];
  }
  const float d = one_value(matrix.scale_form, scales, block);
  const float m = shifted ? one_value(matrix.scale_form, scales + bytes, block) : 0.0f;
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

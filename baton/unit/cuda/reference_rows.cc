// Bodies of the kinds that see one row at a time, straight from what program.h says of the ops.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "baton/base/float.h"
#include "baton/unit/cuda/reference.h"

namespace baton::cuda {
namespace {

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

float plain_sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float plain_silu(float x) { return x * plain_sigmoid(x); }
float plain_gelu(float x, Gelu kind) {
  if (kind == Gelu::kErf) return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
  return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
}

float square_mean(std::span<const float> x, float from) {
  double sum = 0;
  for (const float value : x) sum += (static_cast<double>(value) - from) * (static_cast<double>(value) - from);
  return static_cast<float>(sum / static_cast<double>(x.size()));
}

void rms_norm(std::span<float> x, const float* scale, float eps) {
  const float factor = 1.0f / std::sqrt(square_mean(x, 0) + eps);
  for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] * factor * scale[i];
}

void layer_norm(std::span<float> x, const float* scale, const float* shift, float eps) {
  double sum = 0;
  for (const float value : x) sum += value;
  const auto mean = static_cast<float>(sum / static_cast<double>(x.size()));
  const float factor = 1.0f / std::sqrt(square_mean(x, mean) + eps);
  for (size_t i = 0; i < x.size(); ++i) x[i] = (x[i] - mean) * factor * scale[i] + shift[i];
}

// A row of x behind the prologue, in place.
void run_prologue(const Instruction& instruction, std::span<float> x, const float* y) {
  const Op& op = instruction.op;
  const auto group = static_cast<size_t>(std::max(op.width, 1));
  const float* const scale = host_at<const float>(instruction.vectors[0]);
  if (instruction.prologue == Prologue::kNone) return;
  if (instruction.prologue == Prologue::kGate) {
    for (size_t i = 0; i < x.size(); ++i) x[i] *= plain_sigmoid(y[i / group]);
    return;
  }
  for (size_t first = 0; first < x.size(); first += group) {
    const auto part = x.subspan(first, std::min(group, x.size() - first));
    if (instruction.prologue == Prologue::kLayer) {
      layer_norm(part, scale, host_at<const float>(instruction.vectors[1]), op.eps);
      continue;
    }
    rms_norm(part, scale, op.eps);
    if (instruction.prologue != Prologue::kGated) continue;
    for (size_t i = 0; i < part.size(); ++i) part[i] *= plain_silu(y[first + i]);
  }
}

// One head in place; `table`: rope_frequencies, where they were made before.
void rotate_head(const Op& op, Address table_at, Address factors_at, int32_t position, float* x) {
  const float *const table = host_at<const float>(table_at), *const factors = host_at<const float>(factors_at);
  const int32_t half = op.rotary / 2;
  for (int32_t i = 0; i < half; ++i) {
    float frequency = 0;
    if (table != nullptr) {
      frequency = table[i];
    } else {
      frequency = std::pow(op.rope_theta, -2.0f * static_cast<float>(i) / static_cast<float>(op.rotary));
      if (factors != nullptr) frequency /= factors[i];
    }
    const float angle = static_cast<float>(position) * frequency;
    const float cosine = op.rope_magnitude * std::cos(angle), sine = op.rope_magnitude * std::sin(angle);
    float& a = op.pairing == RopePairing::kHalf ? x[i] : x[2 * i];
    float& b = op.pairing == RopePairing::kHalf ? x[half + i] : x[2 * i + 1];
    const float old_a = a, old_b = b;
    a = old_a * cosine - old_b * sine;
    b = old_b * cosine + old_a * sine;
  }
}

// Whether a type keeps nothing of a row that is not zero.
bool is_lost(Form form, std::span<const float> x) {
  float largest = 0;
  for (const float value : x) {
    if (!(std::fabs(value) <= largest)) largest = std::fabs(value);
    if (std::isnan(value)) return false;
  }
  return form == Form::kF16 && largest != 0 && largest < 0x1p-24f;
}

void append_head(const Instruction& instruction, const Pass& pass, int32_t row, int32_t head,
                 std::span<const float> key, std::span<const float> value) {
  const Run& run = run_of(pass, row);
  const int32_t position = pass.position(row, run);
  std::byte* const values = host_kv_row(run, instruction.slot2, head, position);
  store_values(instruction.slot.form, key, host_kv_row(run, instruction.slot, head, position));
  store_values(instruction.slot2.form, value, values);
  if (is_lost(instruction.slot.form, key) || is_lost(instruction.slot2.form, value))
    std::memset(values, 0xff, value.size() * (instruction.slot2.form == Form::kF32 ? 4 : 2));
}

template <class Function>
void each_value(const Instruction& instruction, const Pass& pass, Function function) {
  const int32_t width = instruction.out_width;
  for (int32_t r = 0; r < rows_of(instruction, pass); ++r) {
    const float* const x = host_row(instruction.x, width, r);
    const float* const y = instruction.y != 0 ? host_row(instruction.y, width, r) : nullptr;
    float* const out = host_row(instruction.out, width, r);
    for (int32_t i = 0; i < width; ++i) out[i] = function(x[i], y != nullptr ? y[i] : 0.0f, r, i);
  }
}

// A row of a matrix by its number, or no numbers where there is none.
void matrix_row(const Matrix& matrix, int64_t row, std::span<float> to) {
  if (row < 0 || row >= matrix.rows) return std::fill(to.begin(), to.end(), kNoNumber);
  decode_matrix_row(matrix, row, to);
}

void add_positions(const Instruction& instruction, const Pass& pass) {
  std::vector<float> added(static_cast<size_t>(instruction.out_width));
  for (int32_t r = 0; r < rows_of(instruction, pass); ++r) {
    matrix_row(instruction.matrix[0], position_of(pass, pass_row(instruction, pass, r)), added);
    const float* const x = host_row(instruction.x, instruction.out_width, r);
    float* const out = host_row(instruction.out, instruction.out_width, r);
    for (size_t i = 0; i < added.size(); ++i) out[i] = x[i] + added[i];
  }
}

}  // namespace

void reference_embed(const Instruction& instruction, const Pass& pass) {
  for (int32_t r = 0; r < rows_of(instruction, pass); ++r) {
    const int32_t token = host_at<const int32_t>(pass.tokens)[pass_row(instruction, pass, r)];
    matrix_row(instruction.matrix[0], token,
               {host_row(instruction.out, instruction.out_width, r), static_cast<size_t>(instruction.out_width)});
  }
}

void reference_prepare(const Instruction& instruction, const Pass& pass) {
  const int32_t width = instruction.x_width;
  std::vector<float> made(static_cast<size_t>(width));
  for (int32_t r = 0; r < rows_of(instruction, pass); ++r) {
    std::copy_n(host_row(instruction.x, width, r), width, made.begin());
    run_prologue(instruction, made, instruction.y != 0 ? host_row(instruction.y, instruction.y_width, r) : nullptr);
    if (!instruction.to_bf16) {
      std::copy_n(made.begin(), width, host_row(instruction.out, width, r));
      continue;
    }
    auto* const out = host_at<uint16_t>(instruction.out) + int64_t{r} * pitch_of(width);
    std::fill_n(out, pitch_of(width), uint16_t{0});
    std::transform(made.begin(), made.end(), out, f32_to_bf16);
  }
}

void reference_split_pairs(const Instruction& instruction, const Pass& pass) {
  const int32_t width = instruction.op.width;
  for (int32_t r = 0; r < rows_of(instruction, pass); ++r) {
    const float* from = host_row(instruction.x, instruction.x_width, r);
    for (int32_t head = 0; head < instruction.op.heads; ++head, from += 2 * width) {
      std::copy_n(from, width, host_row(instruction.out, instruction.out_width, r) + head * width);
      std::copy_n(from + width, width, host_row(instruction.out2, instruction.out2_width, r) + head * width);
    }
  }
}

void reference_rope(const Instruction& instruction, const Pass& pass) {
  const Op& op = instruction.op;
  for (int32_t r = 0; r < rows_of(instruction, pass); ++r) {
    float* const out = host_row(instruction.out, instruction.x_width, r);
    if (instruction.out != instruction.x)
      std::copy_n(host_row(instruction.x, instruction.x_width, r), instruction.x_width, out);
    for (int32_t head = 0; head < op.heads; ++head)
      rotate_head(op, instruction.vectors[3], instruction.vectors[0], position_of(pass, pass_row(instruction, pass, r)),
                  out + head * op.width);
  }
}

void reference_heads(const Instruction& instruction, const Pass& pass) {
  const Op& op = instruction.op;
  const auto width = static_cast<size_t>(op.width);
  const int32_t stride = instruction.x_stride != 0 ? instruction.x_stride : op.width;
  std::vector<float> head(width), value(width);
  for (int32_t r = 0; r < rows_of(instruction, pass); ++r) {
    const int32_t row = pass_row(instruction, pass, r);
    const auto prepare = [&](const float* from, Address norm) {
      std::copy_n(from, width, head.begin());
      if (norm != 0) rms_norm(head, host_at<const float>(norm), op.eps);
      if (instruction.rope.rotary != 0)
        rotate_head(instruction.rope, instruction.vectors[3], instruction.vectors[2], position_of(pass, row),
                    head.data());
    };
    for (int32_t h = 0; h < op.heads; ++h) {
      const float* const from = host_row(instruction.x, instruction.x_width, r) + h * stride;
      prepare(from, instruction.vectors[0]);
      if (instruction.out2 != 0)
        std::copy_n(from + width, width, host_row(instruction.out2, instruction.out2_width, r) + h * op.width);
      std::copy_n(head.begin(), width, host_row(instruction.out, instruction.out_width, r) + h * op.width);
    }
    for (int32_t h = 0; h < op.kv_heads; ++h) {
      prepare(host_row(instruction.y, instruction.y_width, r) + h * op.width, instruction.vectors[1]);
      std::copy_n(host_row(instruction.z, instruction.z_width, r) + h * op.width, width, value.begin());
      append_head(instruction, pass, row, h, head, value);
    }
  }
}

void reference_append(const Instruction& instruction, const Pass& pass) {
  const auto width = static_cast<size_t>(instruction.op.width);
  for (int32_t r = 0; r < rows_of(instruction, pass); ++r) {
    for (int32_t h = 0; h < instruction.op.kv_heads; ++h)
      append_head(instruction, pass, pass_row(instruction, pass, r), h,
                  {host_row(instruction.y, instruction.y_width, r) + h * instruction.op.width, width},
                  {host_row(instruction.z, instruction.z_width, r) + h * instruction.op.width, width});
  }
}

void reference_each(const Instruction& instruction, const Pass& pass) {
  const Op& op = instruction.op;
  const float* const offset = host_at<const float>(instruction.vectors[0]);
  switch (op.kind) {
    case OpKind::kSwiGlu:
      return each_value(instruction, pass, [](float x, float y, int32_t, int32_t) { return plain_silu(x) * y; });
    case OpKind::kGeGlu:
      return each_value(instruction, pass,
                        [&](float x, float y, int32_t, int32_t) { return plain_gelu(x, op.gelu) * y; });
    case OpKind::kGelu:
      return each_value(instruction, pass, [&](float x, float, int32_t, int32_t) { return plain_gelu(x, op.gelu); });
    case OpKind::kAdd:
      return each_value(instruction, pass, [](float x, float y, int32_t, int32_t) { return x + y; });
    case OpKind::kScale:
      return each_value(instruction, pass, [&](float x, float, int32_t, int32_t) { return op.scale * x; });
    case OpKind::kBias:
      return each_value(instruction, pass, [&](float x, float, int32_t, int32_t i) { return x + offset[i]; });
    case OpKind::kPosition:
      return add_positions(instruction, pass);
    case OpKind::kPositionScale:
      return each_value(instruction, pass, [&](float x, float, int32_t r, int32_t) {
        const int64_t position = position_of(pass, pass_row(instruction, pass, r));
        return x * (1.0f + op.scale * std::log(1.0f + static_cast<float>((position + op.ahead) / op.window)));
      });
    default:  // a kind of another instruction: what it leaves shows
      return each_value(instruction, pass, [](float, float, int32_t, int32_t) { return kNoNumber; });
  }
}

void reference_pick(const Instruction& instruction, const Pass& pass) {
  for (int32_t r = 0; r < pass.rows_out; ++r)
    std::copy_n(host_row(instruction.x, instruction.x_width, host_at<const int32_t>(pass.out_rows)[r]),
                instruction.x_width, host_row(instruction.out, instruction.x_width, r));
}

void reference_cap(const Instruction& instruction, const Pass& pass) {
  const float cap = instruction.op.cap;
  for (int32_t r = 0; r < pass.rows_out; ++r) {
    const float* const x = host_row(instruction.x, instruction.x_width, r);
    std::transform(x, x + instruction.x_width, host_row(instruction.out, instruction.x_width, r),
                   [&](float value) { return cap * std::tanh(value / cap); });
  }
}

}  // namespace baton::cuda

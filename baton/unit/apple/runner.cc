// The operations of the emulated engine on f32 arrays that hold fp16 values, row-major.
#include "baton/unit/apple/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "baton/base/bytes.h"
#include "baton/unit/apple/activation.h"
#include "baton/unit/apple/fp16.h"

namespace baton::apple {
namespace {

using DimList = std::vector<int64_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargeValue = 8192;   // a quarter of the limit of sums
constexpr float kSliceLimit = 4094;   // x 16 is the largest fp16 value
constexpr float kLogOfZero = -45440;  // measured on the device

size_t count_of(const DimList& dims) { return static_cast<size_t>(element_count(dims).value_or(0)); }

// Elements from one index to the next, per dim.
DimList strides_of(const DimList& dims) {
  DimList strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

// Strides of an operand spread over `out`: 0 where it has one value.
DimList spread_strides(const DimList& dims, const DimList& out) {
  const DimList own = strides_of(dims);
  DimList strides(out.size(), 0);
  const size_t skip = out.size() - dims.size();
  for (size_t i = 0; i < dims.size(); ++i) strides[skip + i] = dims[i] == 1 ? 0 : own[i];
  return strides;
}

// row(out offset, offset of each operand) for every index of all dims but the last.
template <size_t kOperands, class Row>
void for_rows(const DimList& dims, const std::array<DimList, kOperands>& strides, const Row& row) {
  const size_t outer = dims.empty() ? 0 : dims.size() - 1;
  const int64_t width = dims.empty() ? 1 : dims.back();
  DimList index(outer, 0);
  std::array<int64_t, kOperands> at{};
  for (int64_t out = 0;; out += width) {
    row(out, at);
    size_t d = outer;
    for (; d > 0; --d) {
      for (size_t o = 0; o < kOperands; ++o) at[o] += strides[o][d - 1];
      if (++index[d - 1] < dims[d - 1]) break;
      for (size_t o = 0; o < kOperands; ++o) at[o] -= strides[o][d - 1] * dims[d - 1];
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

template <class Function>
void spread(const float* a, const DimList& a_dims, const float* b, const DimList& b_dims, float* out,
            const DimList& dims, const Function& function) {
  const std::array<DimList, 2> strides = {spread_strides(a_dims, dims), spread_strides(b_dims, dims)};
  const int64_t width = dims.empty() ? 1 : dims.back();
  const int64_t a_step = dims.empty() ? 0 : strides[0].back(), b_step = dims.empty() ? 0 : strides[1].back();
  for_rows<2>(dims, strides, [&](int64_t to, const std::array<int64_t, 2>& at) {
    const float *x = a + at[0], *y = b + at[1];
    for (int64_t i = 0; i < width; ++i) out[to + i] = function(x[i * a_step], y[i * b_step]);
  });
}

template <class Function>
void map(const float* x, float* out, size_t count, const Function& function) {
  for (size_t i = 0; i < count; ++i) out[i] = function(x[i]);
}

// The products of before, at and after one axis.
struct Split {
  size_t outer = 1, size = 1, inner = 1;
};
Split split_at(const DimList& dims, int64_t axis) {
  Split split;
  const size_t at = static_cast<size_t>(axis);
  for (size_t i = 0; i < at; ++i) split.outer *= static_cast<size_t>(dims[i]);
  split.size = static_cast<size_t>(dims[at]);
  for (size_t i = at + 1; i < dims.size(); ++i) split.inner *= static_cast<size_t>(dims[i]);
  return split;
}

// The engine knows no NaN: it acts as infinity.
float no_nan(float value) { return value != value ? kInfinity : value; }
// Infinity minus infinity is 0, zero times infinity is 0.
float defined(float value) { return value != value ? 0.0f : value; }

}  // namespace

// One run: the values by index, and what was met.
struct Runner::Run {
  Runner& runner;
  std::span<float> scratch;
  ThreadPool& pool;
  Diagnostics& diagnostics;

  const Graph& graph() const { return runner.graph_; }
  const DimList& dims(int32_t value) const { return graph().type(value).dims; }
  const float* read(int32_t value) const {
    const Constant& constant = runner.constants_[static_cast<size_t>(value)];
    return constant.values.empty() ? scratch.data() + runner.offsets_[static_cast<size_t>(value)]
                                   : constant.values.data();
  }
  float* write(int32_t value) const { return scratch.data() + runner.offsets_[static_cast<size_t>(value)]; }

  void input(int32_t value, std::span<const std::byte> bytes);
  void output(int32_t value, std::span<std::byte> bytes) const;
  void op(const GraphOp& op);
  void store(const GraphOp& op);
  void note(const GraphOp& op, const MacEvents& events);
  void conv(const GraphOp& op);
  void linear(const GraphOp& op);
  void matmul(const GraphOp& op);
  void binary(const GraphOp& op);
  void unary(const GraphOp& op);
  void softmax(const GraphOp& op);
  void layer_norm(const GraphOp& op);
  void reduce(const GraphOp& op);
  void concat(const GraphOp& op);
  void slice(const GraphOp& op);
  void transpose(const GraphOp& op);
  void tile(const GraphOp& op);
};

Runner::Runner(const Graph& graph, const Numerics& numerics)
    : graph_(graph), numerics_(numerics), constants_(graph.values.size()), offsets_(graph.values.size()) {
  for (const GraphOp& op : graph.ops) {
    const bool weighted = op.code == OpCode::kConv || op.code == OpCode::kLinear;
    for (size_t i = 0; i < op.inputs.size(); ++i) prepare_constant(op.inputs[i], weighted && i == 1);
  }
  for (const int32_t output : graph.outputs) prepare_constant(output, false);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const GraphValue& value = graph.values[i];
    const bool number = value.type.type == MilType::kFp16 || value.type.type == MilType::kFp32;
    if (value.is_const || !number) continue;
    offsets_[i] = scratch_floats_;
    scratch_floats_ += (count_of(value.type.dims) + 15) / 16 * 16;
  }
}

// Constants of operands become f32; weights of conv and linear stay fp16, in the file's bytes when they are fp16 there.
void Runner::prepare_constant(int32_t index, bool as_matrix) {
  const GraphValue& value = graph_.values[static_cast<size_t>(index)];
  Constant& constant = constants_[static_cast<size_t>(index)];
  if (!value.is_const || (as_matrix ? constant.matrix != nullptr : !constant.values.empty())) return;
  const size_t count = count_of(value.type.dims);
  const bool fp32 = value.type.type == MilType::kFp32;
  const auto element = [&](size_t i) -> float {
    if (!value.computed.empty()) return from_fp16(value.computed[i]);
    if (value.file_data.empty()) return round_to_fp16(static_cast<float>(value.numbers[i]));
    return fp32 ? load_as<float>(&value.file_data[4 * i]) : from_fp16(load_as<uint16_t>(&value.file_data[2 * i]));
  };
  if (!as_matrix) {
    constant.values.resize(count);
    for (size_t i = 0; i < count; ++i) constant.values[i] = no_nan(element(i));
    return;
  }
  std::span<const std::byte> bytes = value.file_data;
  if (bytes.empty() || fp32) {
    constant.halves.resize(count);
    for (size_t i = 0; i < count; ++i) constant.halves[i] = to_fp16(element(i));
    bytes = std::as_bytes(std::span<const uint16_t>(constant.halves));
  }
  const size_t rows = static_cast<size_t>(value.type.dims[0]);
  constant.matrix = std::make_unique<MacMatrix>(bytes, rows, count / rows);
}

bool Runner::uses_tile() const {
  return std::any_of(graph_.ops.begin(), graph_.ops.end(), [](const GraphOp& op) { return op.code == OpCode::kTile; });
}

void Runner::Run::input(int32_t value, std::span<const std::byte> bytes) {
  const MilTensorType& type = graph().type(value);
  const size_t width = static_cast<size_t>(type.dims.back()), pitch = port_row_bytes(type);
  const size_t rows = count_of(type.dims) / width;
  float* to = write(value);
  uint64_t nans = 0;
  for (size_t r = 0; r < rows; ++r) {
    const std::byte* row = bytes.data() + r * pitch;
    for (size_t i = 0; i < width; ++i) {
      const float number =
          type.type == MilType::kFp16 ? from_fp16(load_as<uint16_t>(row + 2 * i)) : load_as<float>(row + 4 * i);
      nans += number != number;
      to[r * width + i] = no_nan(number);
    }
  }
  if (nans > 0) {
    diagnostics.warn(Rule::kNotANumber, fmt::format("input '{}' holds NaN, taken as infinity",
                                                    graph().values[static_cast<size_t>(value)].name));
  }
}

void Runner::Run::output(int32_t value, std::span<std::byte> bytes) const {
  const MilTensorType& type = graph().type(value);
  const size_t width = static_cast<size_t>(type.dims.back()), pitch = port_row_bytes(type);
  const size_t rows = count_of(type.dims) / width;
  const float* from = read(value);
  for (size_t r = 0; r < rows; ++r) {
    std::byte* row = bytes.data() + r * pitch;
    if (type.type == MilType::kFp32) {
      std::memcpy(row, from + r * width, 4 * width);
      continue;
    }
    for (size_t i = 0; i < width; ++i) store_as<uint16_t>(row + 2 * i, to_fp16(from[r * width + i]));
  }
}

void Runner::Run::note(const GraphOp& op, const MacEvents& events) {
  if (events.limit) {
    diagnostics.warn(Rule::kAccumulator,
                     fmt::format("'{}': a sum reached 32768; {}", op.name,
                                 runner.numerics_.profile == Profile::kM1   ? "it is infinite on this profile"
                                 : runner.numerics_.profile == Profile::kM3 ? "the result is 0 on this profile"
                                                                            : "infinite on the M1"));
  }
  if (events.undefined)
    diagnostics.warn(Rule::kUndefined, fmt::format("'{}': a sum without a value, taken as 0", op.name));
}

// Rounds a result to its type and looks at it: NaN becomes 0, large and infinite values are reported.
void Runner::Run::store(const GraphOp& op) {
  float* values = write(op.out);
  const size_t count = count_of(dims(op.out));
  if (graph().type(op.out).type == MilType::kFp16) map(values, values, count, round_to_fp16);
  uint32_t largest = 0, infinite = 0, nans = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu;
    infinite |= mask_if(magnitude == 0x7f800000u);
    nans |= mask_if(magnitude > 0x7f800000u);
    largest = std::max(largest, magnitude & mask_if(magnitude < 0x7f800000u));
  }
  if (nans != 0) {
    for (size_t i = 0; i < count; ++i) values[i] = defined(values[i]);
    diagnostics.warn(Rule::kUndefined, fmt::format("'{}': results without a value, taken as 0", op.name));
  }
  const float abs_max = std::bit_cast<float>(largest);
  runner.abs_max_ = std::max(runner.abs_max_, abs_max);
  if (infinite != 0) diagnostics.warn(Rule::kOverflow, fmt::format("'{}': infinite results", op.name));
  if (abs_max > kLargeValue) diagnostics.warn(Rule::kLargeValue, fmt::format("'{}': values over 8192", op.name));
}

// im2col: k runs over (channel of the group, kernel row, kernel column), columns over output positions.
void Runner::Run::conv(const GraphOp& op) {
  const MacMatrix& matrix = *runner.constants_[static_cast<size_t>(op.inputs[1])].matrix;
  const DimList &in = dims(op.inputs[0]), &kernel = dims(op.inputs[1]), &out = dims(op.out);
  const int64_t positions = out[2] * out[3], group_in = kernel[1], group_out = out[1] / op.groups;
  const float *x = read(op.inputs[0]), *bias = op.inputs.size() > 2 ? read(op.inputs[2]) : nullptr;
  const bool pointwise =
      kernel[2] == 1 && kernel[3] == 1 && in[2] == out[2] && in[3] == out[3] && op.list2 == DimList(4, 0);
  MacPanel panel;
  for (int64_t n = 0; n < out[0]; ++n) {
    for (int64_t g = 0; g < op.groups; ++g) {
      for (int64_t first = 0; first < positions; first += static_cast<int64_t>(kMacColumns)) {
        const int64_t columns = std::min<int64_t>(kMacColumns, positions - first);
        panel.reset(matrix.k());
        float* to = panel.values.data();
        for (int64_t c = 0; c < group_in; ++c) {
          const float* plane = x + (n * in[1] + g * group_in + c) * in[2] * in[3];
          if (pointwise) {
            std::copy_n(plane + first, columns, to);
            to += kMacColumns;
            continue;
          }
          for (int64_t tap = 0; tap < kernel[2] * kernel[3]; ++tap, to += kMacColumns) {
            for (int64_t i = 0; i < columns; ++i) {
              const int64_t row = (first + i) / out[3] * op.list[0] + tap / kernel[3] * op.list[2] - op.list2[0];
              const int64_t column = (first + i) % out[3] * op.list[1] + tap % kernel[3] * op.list[3] - op.list2[2];
              if (row >= 0 && row < in[2] && column >= 0 && column < in[3]) to[i] = plane[row * in[3] + column];
            }
          }
        }
        panel.finish(runner.numerics_);
        const size_t row_begin = static_cast<size_t>(g * group_out), rows = static_cast<size_t>(group_out);
        float* result = write(op.out) + (n * out[1] + g * group_out) * positions + first;
        note(op, multiply(matrix, row_begin, row_begin + rows, panel, static_cast<size_t>(columns), runner.numerics_,
                          pool, result, static_cast<size_t>(positions)));
        for (size_t r = 0; bias != nullptr && r < rows; ++r) {
          float* row = result + r * static_cast<size_t>(positions);
          for (int64_t i = 0; i < columns; ++i) row[i] = defined(row[i] + bias[row_begin + r]);
        }
      }
    }
  }
}

void Runner::Run::linear(const GraphOp& op) {
  const MacMatrix& matrix = *runner.constants_[static_cast<size_t>(op.inputs[1])].matrix;
  const size_t k = matrix.k(), rows = matrix.rows(), positions = count_of(dims(op.inputs[0])) / k;
  const float *x = read(op.inputs[0]), *bias = op.inputs.size() > 2 ? read(op.inputs[2]) : nullptr;
  float* out = write(op.out);
  MacPanel panel;
  std::vector<float> result(rows * kMacColumns);
  for (size_t first = 0; first < positions; first += kMacColumns) {
    const size_t columns = std::min(kMacColumns, positions - first);
    panel.reset(k);
    for (size_t c = 0; c < columns; ++c) {
      for (size_t i = 0; i < k; ++i) panel.values[i * kMacColumns + c] = x[(first + c) * k + i];
    }
    panel.finish(runner.numerics_);
    note(op, multiply(matrix, 0, rows, panel, columns, runner.numerics_, pool, result.data(), kMacColumns));
    for (size_t c = 0; c < columns; ++c) {
      for (size_t r = 0; r < rows; ++r) {
        out[(first + c) * rows + r] = defined(result[r * kMacColumns + c] + (bias != nullptr ? bias[r] : 0.0f));
      }
    }
  }
}

// Both operands may be computed: neither is prepared.
void Runner::Run::matmul(const GraphOp& op) {
  const DimList& out = dims(op.out);
  DimList x_dims = dims(op.inputs[0]), y_dims = dims(op.inputs[1]);
  const int64_t m = out[out.size() - 2], n = out.back(), k = op.transpose_x ? x_dims[x_dims.size() - 2] : x_dims.back();
  const int64_t x_row = op.transpose_x ? 1 : k, x_k = op.transpose_x ? m : 1;
  const int64_t y_k = op.transpose_y ? 1 : n, y_column = op.transpose_y ? k : 1;
  // Batches: the dims before the matrices, as rows of one element.
  DimList batch(out.begin(), out.end() - 2);
  const auto batch_of = [](DimList matrix) { return DimList(matrix.begin(), matrix.end() - 2); };
  std::array<DimList, 2> strides = {spread_strides(batch_of(x_dims), batch), spread_strides(batch_of(y_dims), batch)};
  batch.push_back(1);
  for (DimList& stride : strides) stride.push_back(0);
  MacPanel panel;
  std::vector<float> row(static_cast<size_t>(k));
  std::array<float, kMacColumns> result;
  for_rows<2>(batch, strides, [&](int64_t index, const std::array<int64_t, 2>& at) {
    const float *x = read(op.inputs[0]) + at[0] * m * k, *y = read(op.inputs[1]) + at[1] * k * n;
    float* to = write(op.out) + index * m * n;
    for (int64_t first = 0; first < n; first += static_cast<int64_t>(kMacColumns)) {
      const int64_t columns = std::min<int64_t>(kMacColumns, n - first);
      panel.reset(static_cast<size_t>(k));
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t c = 0; c < columns; ++c) {
          panel.values[static_cast<size_t>(i) * kMacColumns + static_cast<size_t>(c)] =
              y[i * y_k + (first + c) * y_column];
        }
      }
      panel.finish(runner.numerics_);
      for (int64_t r = 0; r < m; ++r) {
        for (int64_t i = 0; i < k; ++i) {
          const float value = x[r * x_row + i * x_k];
          const bool flush = runner.numerics_.profile != Profile::kModern && std::fabs(value) < kFp16NormalMin;
          row[static_cast<size_t>(i)] = flush ? 0.0f : value;
        }
        note(op, multiply_row(row.data(), panel, runner.numerics_, result.data()));
        std::copy_n(result.data(), columns, to + r * n + first);
      }
    }
  });
}

void Runner::Run::binary(const GraphOp& op) {
  const float *a = read(op.inputs[0]), *b = read(op.inputs[1]);
  const DimList &a_dims = dims(op.inputs[0]), &b_dims = dims(op.inputs[1]), &out_dims = dims(op.out);
  float* out = write(op.out);
  const auto with = [&](const auto& function) { spread(a, a_dims, b, b_dims, out, out_dims, function); };
  switch (op.code) {
    case OpCode::kAdd:
      return with([](float x, float y) { return x + y; });
    case OpCode::kSub:
      return with([](float x, float y) { return x - y; });
    case OpCode::kMul:
      return with([](float x, float y) { return x * y; });
    case OpCode::kRealDiv:
      return with([](float x, float y) { return x / (y == 0 ? 0.0f : y); });  // -0 becomes +0
    case OpCode::kMaximum:
      return with([](float x, float y) { return std::max(x, y); });
    case OpCode::kMinimum:
      return with([](float x, float y) { return std::min(x, y); });
    default:
      return with([](float x, float y) { return std::pow(x == 0 ? 0.0f : x, y); });
  }
}

void Runner::Run::unary(const GraphOp& op) {
  const float *x = read(op.inputs[0]), epsilon = op.epsilon;
  float* out = write(op.out);
  const size_t count = count_of(dims(op.out));
  const bool perturbed = runner.numerics_.perturbed_tables;
  switch (op.code) {
    case OpCode::kSqrt:
      return map(x, out, count, [](float v) { return std::sqrt(v); });
    case OpCode::kRsqrt:
      return map(x, out, count, [&](float v) { return 1.0f / std::sqrt(v + epsilon == 0 ? 0.0f : v + epsilon); });
    case OpCode::kExp:
      return map(x, out, count, [](float v) { return std::exp(v); });
    case OpCode::kLog:
      return map(x, out, count, [&](float v) { return v + epsilon == 0 ? kLogOfZero : std::log(v + epsilon); });
    case OpCode::kTanh:
      return map(x, out, count, [&](float v) { return table_tanh(v, perturbed); });
    case OpCode::kSigmoid:
      return map(x, out, count, [&](float v) { return table_sigmoid(v, perturbed); });
    case OpCode::kSilu:
      return map(x, out, count, [&](float v) { return table_silu(v, perturbed); });
    case OpCode::kRelu:
      return map(x, out, count, [](float v) { return std::max(v, 0.0f); });
    case OpCode::kGelu:
      return map(x, out, count, [&](float v) { return gelu(v, op.gelu); });
    default:
      std::copy_n(x, count, out);  // reshape, cast
  }
}

void Runner::Run::softmax(const GraphOp& op) {
  const Split split = split_at(dims(op.out), op.axis);
  for (size_t o = 0; o < split.outer; ++o) {
    for (size_t i = 0; i < split.inner; ++i) {
      const float* x = read(op.inputs[0]) + o * split.size * split.inner + i;
      float* out = write(op.out) + o * split.size * split.inner + i;
      float largest = -kInfinity, sum = 0;
      for (size_t j = 0; j < split.size; ++j) largest = std::max(largest, x[j * split.inner]);
      for (size_t j = 0; j < split.size; ++j) {
        const float value = std::exp(defined(x[j * split.inner] - largest));
        out[j * split.inner] = value;
        sum += value;
      }
      for (size_t j = 0; j < split.size; ++j) out[j * split.inner] /= sum;
    }
  }
}

// Reduced dims last: the source offsets of the values that belong together.
void Runner::Run::layer_norm(const GraphOp& op) {
  const DimList &all = dims(op.out), strides = strides_of(all);
  std::vector<int64_t> inner = {0}, outer = {0};
  for (size_t d = 0; d < all.size(); ++d) {
    std::vector<int64_t>& offsets =
        std::find(op.list.begin(), op.list.end(), static_cast<int64_t>(d)) != op.list.end() ? inner : outer;
    std::vector<int64_t> next;
    next.reserve(offsets.size() * static_cast<size_t>(all[d]));
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < all[d]; ++i) next.push_back(offset + i * strides[d]);
    }
    offsets = std::move(next);
  }
  const float *x = read(op.inputs[0]), *gamma = op.inputs.size() > 1 ? read(op.inputs[1]) : nullptr;
  const float* beta = op.inputs.size() > 2 ? read(op.inputs[2]) : nullptr;
  float* out = write(op.out);
  const float scale = 1.0f / static_cast<float>(inner.size());
  for (const int64_t base : outer) {
    float mean = 0, variance = 0;
    for (const int64_t offset : inner) mean += x[base + offset];
    mean *= scale;
    for (const int64_t offset : inner) variance += (x[base + offset] - mean) * (x[base + offset] - mean);
    const float factor = 1.0f / std::sqrt(variance * scale + op.epsilon);
    for (size_t i = 0; i < inner.size(); ++i) {
      const float value = (x[base + inner[i]] - mean) * factor;
      out[base + inner[i]] = value * (gamma != nullptr ? gamma[i] : 1.0f) + (beta != nullptr ? beta[i] : 0.0f);
    }
  }
}

void Runner::Run::reduce(const GraphOp& op) {
  const DimList& in = dims(op.inputs[0]);
  DimList kept = in;
  double reduced = 1;
  for (const int64_t axis : op.list) {
    reduced *= static_cast<double>(in[static_cast<size_t>(axis)]);
    kept[static_cast<size_t>(axis)] = 1;
  }
  const bool is_max = op.code == OpCode::kReduceMax;
  const float* x = read(op.inputs[0]);
  float* out = write(op.out);
  const size_t count = count_of(kept);
  std::fill_n(out, count, is_max ? -kInfinity : 0.0f);
  const DimList strides = spread_strides(kept, in);
  const int64_t width = in.back(), step = strides.back();
  for_rows<1>(in, {strides}, [&](int64_t from, const std::array<int64_t, 1>& at) {
    for (int64_t i = 0; i < width; ++i) {
      float& to = out[at[0] + i * step];
      to = is_max ? std::max(to, x[from + i]) : defined(to + x[from + i]);
    }
  });
  if (op.code == OpCode::kReduceMean) {
    for (size_t i = 0; i < count; ++i) out[i] *= static_cast<float>(1 / reduced);
  }
}

void Runner::Run::concat(const GraphOp& op) {
  const Split whole = split_at(dims(op.out), op.axis);
  size_t begin = 0;
  for (const int32_t input : op.inputs) {
    const Split part = split_at(dims(input), op.axis);
    const size_t run = part.size * part.inner;
    for (size_t o = 0; o < part.outer; ++o) {
      std::copy_n(read(input) + o * run, run, write(op.out) + (o * whole.size + begin) * whole.inner);
    }
    begin += part.size;
  }
}

void Runner::Run::slice(const GraphOp& op) {
  const DimList &in = dims(op.inputs[0]), &out = dims(op.out);
  DimList strides = strides_of(in);
  const float* x = read(op.inputs[0]);
  for (size_t d = 0; d < in.size(); ++d) {
    x += op.list[d] * strides[d];
    strides[d] *= op.list2[d];
  }
  const bool gain = runner.numerics_.profile == Profile::kM1 && !in.empty() && op.list.back() != 0;
  bool reached = false;
  float* to = write(op.out);
  const int64_t width = out.empty() ? 1 : out.back(), step = strides.empty() ? 1 : strides.back();
  for_rows<1>(out, {strides}, [&](int64_t at, const std::array<int64_t, 1>& from) {
    for (int64_t i = 0; i < width; ++i) {
      const float value = x[from[0] + i * step];
      const bool over = gain && std::fabs(value) > kSliceLimit;
      reached |= over;
      to[at + i] = over ? std::copysign(kInfinity, value) : value;
    }
  });
  if (reached) {
    diagnostics.warn(Rule::kSliceGain,
                     fmt::format("'{}': values over 4094 in a slice of W are infinite here", op.name));
  }
}

void Runner::Run::transpose(const GraphOp& op) {
  const DimList strides = strides_of(dims(op.inputs[0])), &out = dims(op.out);
  DimList permuted;
  for (const int64_t axis : op.list) permuted.push_back(strides[static_cast<size_t>(axis)]);
  const float* x = read(op.inputs[0]);
  float* to = write(op.out);
  const int64_t step = permuted.back();
  for_rows<1>(out, {permuted}, [&](int64_t at, const std::array<int64_t, 1>& from) {
    for (int64_t i = 0; i < out.back(); ++i) to[at + i] = x[from[0] + i * step];
  });
}

void Runner::Run::tile(const GraphOp& op) {
  const DimList &in = dims(op.inputs[0]), &out = dims(op.out);
  const DimList strides = strides_of(in), out_strides = strides_of(out);
  const float* x = read(op.inputs[0]);
  float* to = write(op.out);
  const size_t count = count_of(out);
  for (size_t i = 0; i < count; ++i) {
    int64_t from = 0;
    for (size_t d = 0; d < out.size(); ++d)
      from += static_cast<int64_t>(i) / out_strides[d] % out[d] % in[d] * strides[d];
    to[i] = x[from];
  }
}

void Runner::Run::op(const GraphOp& op) {
  switch (op.code) {
    case OpCode::kConv:
      conv(op);
      break;
    case OpCode::kMatmul:
      matmul(op);
      break;
    case OpCode::kLinear:
      linear(op);
      break;
    case OpCode::kAdd:
    case OpCode::kSub:
    case OpCode::kMul:
    case OpCode::kRealDiv:
    case OpCode::kMaximum:
    case OpCode::kMinimum:
    case OpCode::kPow:
      binary(op);
      break;
    case OpCode::kSoftmax:
      softmax(op);
      break;
    case OpCode::kLayerNorm:
      layer_norm(op);
      break;
    case OpCode::kReduceSum:
    case OpCode::kReduceMean:
    case OpCode::kReduceMax:
      reduce(op);
      break;
    case OpCode::kConcat:
      concat(op);
      break;
    case OpCode::kSlice:
      slice(op);
      break;
    case OpCode::kTranspose:
      transpose(op);
      break;
    case OpCode::kTile:
      tile(op);
      break;
    default:
      unary(op);
  }
  store(op);
}

void Runner::run(std::span<const std::span<const std::byte>> inputs, std::span<const std::span<std::byte>> outputs,
                 std::span<float> scratch, ThreadPool& pool, Diagnostics& diagnostics) {
  BATON_CHECK(scratch.size() >= scratch_floats_ && inputs.size() == graph_.inputs.size() &&
              outputs.size() == graph_.outputs.size());
  Run run{*this, scratch, pool, diagnostics};
  for (size_t i = 0; i < inputs.size(); ++i) run.input(graph_.inputs[i], inputs[i]);
  for (const GraphOp& op : graph_.ops) run.op(op);
  for (size_t i = 0; i < outputs.size(); ++i) run.output(graph_.outputs[i], outputs[i]);
}

}  // namespace baton::apple

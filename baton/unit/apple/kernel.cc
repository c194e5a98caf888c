// Splitting of layers and the text of their kernels.
#include "baton/unit/apple/kernel.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::apple {
namespace {

constexpr int64_t kRowsMultiple = 16;  // chunks keep to it where they can

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Length of equal chunks of `total` units of `unit_bytes`, at most `units_max` and `bytes_max` each.
int64_t chunk_of(int64_t total, uint64_t unit_bytes, int64_t units_max, uint64_t bytes_max) {
  const int64_t by_bytes = std::max<int64_t>(1, static_cast<int64_t>(bytes_max / unit_bytes));
  const int64_t most = std::min(units_max, by_bytes);
  if (total <= most) return total;
  const int64_t even = divide_up(total, divide_up(total, most));
  return std::min(divide_up(even, kRowsMultiple) * kRowsMultiple, most);
}

std::string numbered(std::string_view name, bool split, size_t index) {
  return split ? fmt::format("{}_{}", name, index) : std::string(name);
}

Status check_limits(const KernelLimits& limits) {
  if (limits.columns < 32 || limits.columns % 32 != 0 || limits.in_channels_max < 1 || limits.out_channels_max < 1) {
    return fail(Code::kInvalidInput, fmt::format("kernel limits: {} columns; a multiple of 32", limits.columns));
  }
  return {};
}

void measure(KernelPlan* plan) {
  for (const KernelPiece& piece : plan->pieces) {
    plan->weight_bytes +=
        2 * static_cast<uint64_t>(piece.part.row_count) * static_cast<uint64_t>(piece.part.column_count);
  }
  plan->flops = plan->weight_bytes * static_cast<uint64_t>(plan->columns);
}

// The pieces that make rows [begin, begin + count) of the concatenated outputs.
std::vector<KernelPiece> pieces_of(std::span<const LayerPart> parts, int64_t begin, int64_t count, int64_t column_begin,
                                   int64_t column_count) {
  std::vector<KernelPiece> pieces;
  int64_t first = 0;
  for (const LayerPart& part : parts) {
    const int64_t from = std::max(begin, first), to = std::min(begin + count, first + part.weight->rows);
    if (from < to) pieces.push_back({part.role, part.weight, {from - first, to - from, column_begin, column_count}});
    first += part.weight->rows;
  }
  return pieces;
}

// One convolution whatever the number of layers: they read the same input, so the rows of their weights are stacked.
// Joining two convolutions by concat instead is refused standing alone, and on some systems altogether.
MilWriter::Value write_linear(const Kernel& kernel, std::span<const uint64_t> records, std::string_view path,
                              MilWriter* writer, MilWriter::Value x) {
  const KernelPlan& plan = kernel.plan;
  std::string name = plan.name;
  for (const KernelPiece& piece : plan.pieces) name += "_" + piece.role;
  return writer->conv("y", x, writer->conv_weight(name + "_w", plan.out_channels, plan.in_channels, path, records[0]));
}

MilWriter::Value write_swiglu(const Kernel& kernel, std::span<const uint64_t> records, std::string_view path,
                              MilWriter* writer, MilWriter::Value x) {
  const std::string& name = kernel.plan.name;
  const auto weight = [&](size_t i) {
    const MatrixPart& part = kernel.plan.pieces[i].part;
    return writer->conv_weight(fmt::format("{}_{}_w", name, kernel.plan.pieces[i].role), part.row_count,
                               part.column_count, path, records[i]);
  };
  const auto gate_weight = weight(0), up_weight = weight(1), down_weight = weight(2);
  const auto gate = writer->conv(name + "_gate", x, gate_weight), up = writer->conv(name + "_up", x, up_weight);
  // silu as sigmoid and mul: the form that most sources run. One project measured it off by 4e-2 on small results where
  // x / (1 + exp(-x)) was off by 7e-4; docs/ane.md says why it stays until a run on hardware decides.
  const auto open = writer->unary(name + "_sigmoid", MilUnary::kSigmoid, gate);
  const auto silu = writer->binary(name + "_silu", MilBinary::kMul, gate, open);
  const auto gated = writer->binary(name + "_gated", MilBinary::kMul, silu, up);
  return writer->conv("y", gated, down_weight);
}

}  // namespace

std::string KernelPlan::shape() const {
  if (kind == KernelKind::kSwiGlu) {
    return fmt::format("swiglu {} -> {} -> {} x {}", in_channels, pieces[0].part.row_count, out_channels, columns);
  }
  return fmt::format("linear {} -> {} x {}", in_channels, out_channels, columns);
}

Result<std::vector<KernelPlan>> plan_linear(std::string_view name, std::span<const LayerPart> parts,
                                            const KernelLimits& limits) {
  BATON_OK(check_limits(limits));
  if (parts.empty()) return fail(Code::kInvalidInput, fmt::format("kernel '{}' has no weights", name));
  const int64_t in = parts[0].weight->columns;
  int64_t rows = 0;
  for (const LayerPart& part : parts) {
    if (part.weight->columns != in) {
      return fail(Code::kInvalidInput, fmt::format("kernel '{}': '{}' takes {} inputs, '{}' {}", name,
                                                   part.weight->name, part.weight->columns, parts[0].weight->name, in));
    }
    rows += part.weight->rows;
  }
  const int64_t columns_chunk = chunk_of(in, 1, limits.in_channels_max, UINT64_MAX / 2);
  const int64_t rows_chunk =
      chunk_of(rows, 2 * static_cast<uint64_t>(columns_chunk), limits.out_channels_max, limits.weight_bytes_max);
  std::vector<KernelPlan> plans;
  const bool split = rows_chunk < rows || columns_chunk < in;
  for (int64_t row = 0; row < rows; row += rows_chunk) {
    for (int64_t column = 0; column < in; column += columns_chunk) {
      KernelPlan plan;
      plan.name = numbered(name, split, plans.size());
      plan.columns = limits.columns;
      plan.in_begin = column;
      plan.in_channels = std::min(columns_chunk, in - column);
      plan.out_begin = row;
      plan.out_channels = std::min(rows_chunk, rows - row);
      plan.pieces = pieces_of(parts, row, plan.out_channels, column, plan.in_channels);
      plan.accumulate = column > 0;
      measure(&plan);
      plans.push_back(std::move(plan));
    }
  }
  return plans;
}

Result<std::vector<KernelPlan>> plan_swiglu(std::string_view name, const Weight& gate, const Weight& up,
                                            const Weight& down, const KernelLimits& limits) {
  BATON_OK(check_limits(limits));
  const int64_t in = gate.columns, middle = gate.rows, out = down.rows;
  if (up.columns != in || up.rows != middle || down.columns != middle) {
    return fail(Code::kInvalidInput,
                fmt::format("kernel '{}': gate {}x{}, up {}x{}, down {}x{} do not fit together", name, gate.rows,
                            gate.columns, up.rows, up.columns, down.rows, down.columns));
  }
  if (in > limits.in_channels_max || out > limits.out_channels_max) {
    return fail(Code::kUnsupported,
                fmt::format("kernel '{}': {} inputs and {} outputs; at most {} and {} in one kernel", name, in, out,
                            limits.in_channels_max, limits.out_channels_max));
  }
  const uint64_t unit_bytes = 2 * static_cast<uint64_t>(2 * in + out);
  const int64_t chunk = chunk_of(middle, unit_bytes, limits.in_channels_max, limits.weight_bytes_max);
  std::vector<KernelPlan> plans;
  for (int64_t begin = 0; begin < middle; begin += chunk) {
    const int64_t count = std::min(chunk, middle - begin);
    KernelPlan plan;
    plan.kind = KernelKind::kSwiGlu;
    plan.name = numbered(name, chunk < middle, plans.size());
    plan.columns = limits.columns;
    plan.in_channels = in;
    plan.out_channels = out;
    plan.pieces = {{"gate", &gate, {begin, count, 0, in}},
                   {"up", &up, {begin, count, 0, in}},
                   {"down", &down, {0, out, begin, count}}};
    plan.accumulate = begin > 0;
    measure(&plan);
    plans.push_back(std::move(plan));
  }
  return plans;
}

Result<Kernel> build_kernel(const KernelPlan& plan, OutOfRange policy, MilDialect dialect) {
  Kernel kernel;
  kernel.plan = plan;
  const std::string path = fmt::format("weights/{}.bin", plan.name);
  kernel.weights_key = "@model_path/" + path;
  // The tensors of the file: all rows of a linear kernel in one, each matrix of a SwiGLU block in its own.
  std::vector<std::vector<WeightRows>> tensors;
  std::vector<uint64_t> counts, records;
  for (const KernelPiece& piece : plan.pieces) {
    const uint64_t values =
        static_cast<uint64_t>(piece.part.row_count) * static_cast<uint64_t>(piece.part.column_count);
    if (tensors.empty() || plan.kind == KernelKind::kSwiGlu) {
      tensors.emplace_back();
      counts.push_back(0);
    }
    tensors.back().push_back({piece.weight, piece.part});
    counts.back() += values;
  }
  BlobWriter blobs(BlobWriter::bytes_for(counts));
  for (const auto& rows : tensors) {
    auto record = blobs.add_fp16(rows, policy, &kernel.range);
    if (!record) return fail(std::move(record).error().in(fmt::format("kernel '{}'", plan.name)));
    records.push_back(*record);
  }
  kernel.weights = std::move(blobs).finish();
  MilWriter writer(dialect);
  const auto x = writer.input("x", plan.in_channels, plan.columns);
  const auto y = plan.kind == KernelKind::kLinear ? write_linear(kernel, records, path, &writer, x)
                                                  : write_swiglu(kernel, records, path, &writer, x);
  auto text = std::move(writer).finish(y);
  if (!text) return fail(std::move(text).error().in(fmt::format("kernel '{}'", plan.name)));
  kernel.mil = std::move(*text);
  return kernel;
}

}  // namespace baton::apple

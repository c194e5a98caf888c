// The operations: one row of a table each, and one function that checks its parameters and infers its result.
#include "baton/unit/apple/mil_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "baton/base/bytes.h"
#include "baton/unit/apple/fp16.h"

namespace baton::apple {

std::string OpContext::where() const {
  return fmt::format("line {}: {} '{}'", statement.line, statement.op, statement.name);
}

tl::unexpected<Error> OpContext::refuse(Rule rule, std::string_view detail) const {
  return fail(rule_error(rule, fmt::format("{}: {}", where(), detail)));
}

Status OpContext::report(Rule rule, std::string_view detail) const {
  return diagnostics.report(rule, fmt::format("{}: {}", where(), detail));
}

const MilArgument* OpContext::argument(std::string_view parameter) const {
  for (const MilArgument& argument : statement.arguments) {
    if (argument.parameter == parameter) return &argument;
  }
  return nullptr;
}

int32_t OpContext::value(std::string_view parameter) const {
  const MilArgument* found = argument(parameter);
  return found == nullptr || found->names.size() != 1 ? -1 : names.at(found->names[0]);
}

namespace {

struct Parameter {
  std::string_view name;
  bool required = true;
  Rule missing = Rule::kParameterMissing;
};

using CheckFunction = Status (*)(const OpContext&, GraphOp*, MilTensorType*);

struct OpEntry {
  std::string_view name;
  OpCode code;
  CheckFunction check;
  std::array<Parameter, 8> parameters;  // up to the first without a name
};

bool is_float(MilType type) { return type == MilType::kFp16 || type == MilType::kFp32; }

// A tensor operand: fp16, or fp32 outside strict mode.
Result<int32_t> operand(const OpContext& context, std::string_view parameter) {
  const int32_t index = context.value(parameter);
  if (index < 0) return context.refuse(Rule::kParameterType, fmt::format("'{}' must be one value", parameter));
  const GraphValue& value = context.at(index);
  if (!is_float(value.type.type)) {
    return context.refuse(value.is_const ? Rule::kParameterType : Rule::kIntegerTensor,
                          fmt::format("'{}' is {}, expected fp16", parameter, to_string(value.type)));
  }
  if (value.type.type == MilType::kFp32 && context.statement.op != "cast") {
    BATON_OK(context.report(Rule::kFp32Arithmetic, fmt::format("'{}' is fp32; cast it first", parameter)));
  }
  return index;
}

struct Expected {
  MilType type;
  int32_t rank;        // 0: a scalar, 1: a list
  int64_t count = -1;  // of a list; -1: any
};

// A constant parameter written in the text. `rule` is what a wrong one breaks.
Result<const GraphValue*> constant(const OpContext& context, std::string_view parameter, const Expected& expected,
                                   Rule rule) {
  const int32_t index = context.value(parameter);
  if (index < 0) return context.refuse(rule, fmt::format("'{}' must be one named constant", parameter));
  const GraphValue& value = context.at(index);
  const auto& dims = value.type.dims;
  const bool fits = value.is_const && value.type.type == expected.type &&
                    dims.size() == static_cast<size_t>(expected.rank) && value.file_data.empty() &&
                    (expected.count < 0 || dims[0] == expected.count);
  if (fits) return &value;
  const std::string wanted = expected.rank == 0 ? std::string(to_string(expected.type)) + " scalar"
                             : expected.count < 0
                                 ? fmt::format("{} list", to_string(expected.type))
                                 : fmt::format("list of {} {}", expected.count, to_string(expected.type));
  return context.refuse(rule, fmt::format("'{}' is {}{}, expected a constant {}", parameter, to_string(value.type),
                                          value.is_const ? "" : " and not a constant", wanted));
}

Result<std::vector<int64_t>> integers(const OpContext& context, std::string_view parameter, int64_t count,
                                      Rule rule = Rule::kParameterType) {
  BATON_TRY(const GraphValue* value, constant(context, parameter, {MilType::kInt32, 1, count}, rule));
  return std::vector<int64_t>(value->numbers.begin(), value->numbers.end());
}

Result<int64_t> integer(const OpContext& context, std::string_view parameter, Rule rule) {
  BATON_TRY(const GraphValue* value, constant(context, parameter, {MilType::kInt32, 0}, rule));
  return static_cast<int64_t>(value->numbers[0]);
}

Result<bool> boolean(const OpContext& context, std::string_view parameter, Rule rule) {
  BATON_TRY(const GraphValue* value, constant(context, parameter, {MilType::kBool, 0}, rule));
  return value->numbers[0] != 0;
}

Result<std::string> text(const OpContext& context, std::string_view parameter, Rule rule) {
  BATON_TRY(const GraphValue* value, constant(context, parameter, {MilType::kString, 0}, rule));
  return value->strings[0];
}

// Negative axes count from the end.
Result<int64_t> axis_in(const OpContext& context, int64_t axis, size_t rank, Rule rule) {
  const int64_t size = static_cast<int64_t>(rank), wrapped = axis < 0 ? axis + size : axis;
  if (wrapped < 0 || wrapped >= size)
    return context.refuse(rule, fmt::format("axis {} of a tensor of rank {}", axis, rank));
  return wrapped;
}

Result<std::vector<int64_t>> axes_in(const OpContext& context, std::string_view parameter, size_t rank, Rule rule) {
  BATON_TRY(std::vector<int64_t> axes, integers(context, parameter, -1, rule));
  for (int64_t& axis : axes) {
    BATON_TRY(axis, axis_in(context, axis, rank, rule));
  }
  std::sort(axes.begin(), axes.end());
  if (axes.empty() || std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    return context.refuse(rule, fmt::format("'{}' must name different axes", parameter));
  }
  return axes;
}

// A 4-element pair or quad of a conv, within sane bounds.
Status conv_list(const OpContext& context, std::string_view parameter, int64_t count, int64_t min,
                 std::vector<int64_t>* out) {
  BATON_TRY(const std::vector<int64_t> values, integers(context, parameter, count, Rule::kConvAttribute));
  for (const int64_t value : values) {
    if (value < min || value > 16384) {
      return context.refuse(Rule::kConvAttribute, fmt::format("'{}' holds {}", parameter, value));
    }
    out->push_back(value);
  }
  return {};
}

// Output extent of one spatial axis, and the padding before and after it.
Status conv_extent(const OpContext& context, const std::string& pad_type, size_t axis, int64_t in, int64_t kernel,
                   GraphOp* op, int64_t* extent) {
  const int64_t stride = op->list[axis], reach = op->list[2 + axis] * (kernel - 1) + 1;
  int64_t &before = op->list2[2 * axis], &after = op->list2[2 * axis + 1];
  if (pad_type == "valid") before = after = 0;
  if (pad_type == "same") {
    const int64_t wanted = (in + stride - 1) / stride;
    const int64_t pad = std::max<int64_t>(0, (wanted - 1) * stride + reach - in);
    before = pad / 2;
    after = pad - before;
  }
  const int64_t span = in + before + after - reach;
  if (span < 0) return context.refuse(Rule::kConvKernel, fmt::format("a kernel of {} over {} values", kernel, in));
  *extent = span / stride + 1;
  return {};
}

Status check_conv(const OpContext& context, GraphOp* op, MilTensorType* type) {
  const bool biased = context.argument("bias") != nullptr;
  if (biased) BATON_OK(context.report(Rule::kConvBias, "one project saw bias refused; add it afterwards"));
  BATON_TRY(const int32_t x, operand(context, "x"));
  const int32_t w = context.value("weight");
  if (w < 0 || !context.at(w).is_const) return context.refuse(Rule::kConvWeight, "the weight is not a constant");
  BATON_TRY(const int32_t weight, operand(context, "weight"));
  op->inputs = {x, weight};
  const MilTensorType &in = context.at(x).type, &kernel = context.at(weight).type;
  if (in.dims.size() != 4 || kernel.dims.size() != 4)
    return context.refuse(Rule::kConvWeight, "x and weight must have rank 4");
  if (in.type != kernel.type) return context.refuse(Rule::kConvWeight, "x and weight differ in type");
  BATON_OK(conv_list(context, "strides", 2, 1, &op->list));
  BATON_OK(conv_list(context, "dilations", 2, 1, &op->list));
  BATON_OK(conv_list(context, "pad", 4, 0, &op->list2));
  BATON_TRY(const std::string pad_type, text(context, "pad_type", Rule::kConvAttribute));
  if (pad_type != "valid" && pad_type != "same" && pad_type != "custom") {
    return context.refuse(Rule::kConvPad, fmt::format("pad_type '{}'; valid, same or custom", pad_type));
  }
  BATON_TRY(op->groups, integer(context, "groups", Rule::kConvAttribute));
  const int64_t channels = in.dims[1], out = kernel.dims[0];
  if (op->groups < 1 || channels % op->groups != 0 || out % op->groups != 0 ||
      kernel.dims[1] != channels / op->groups) {
    return context.refuse(Rule::kConvGroups, fmt::format("{} groups, {} channels in, {} out, weight {}", op->groups,
                                                         channels, out, to_string(kernel)));
  }
  if (channels > 16384)
    BATON_OK(context.report(Rule::kConvInputs, fmt::format("{} input channels; at most 16384", channels)));
  if (kernel.dims[3] > 13)
    BATON_OK(context.report(Rule::kConvKernel, fmt::format("a kernel {} wide; at most 13", kernel.dims[3])));
  if (biased) {
    BATON_TRY(const int32_t bias, operand(context, "bias"));
    const GraphValue& values = context.at(bias);
    if (!values.is_const || values.type.dims != std::vector<int64_t>{out}) {
      return context.refuse(Rule::kParameterType, "bias must be a constant [out]");
    }
    op->inputs.push_back(bias);
  }
  *type = {in.type, {in.dims[0], out, 0, 0}};
  for (size_t axis = 0; axis < 2; ++axis) {
    BATON_OK(conv_extent(context, pad_type, axis, in.dims[2 + axis], kernel.dims[2 + axis], op, &type->dims[2 + axis]));
  }
  return {};
}

// Numpy's rule for two shapes; `rule` when they do not fit.
Result<std::vector<int64_t>> broadcast(const OpContext& context, std::vector<int64_t> a, std::vector<int64_t> b,
                                       Rule rule) {
  const size_t rank = std::max(a.size(), b.size());
  a.insert(a.begin(), rank - a.size(), 1);
  b.insert(b.begin(), rank - b.size(), 1);
  for (size_t i = 0; i < rank; ++i) {
    if (a[i] != b[i] && a[i] != 1 && b[i] != 1) return context.refuse(rule, "the shapes of x and y do not fit");
    a[i] = std::max(a[i], b[i]);
  }
  return a;
}

Status check_matmul(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_TRY(const int32_t x, operand(context, "x"));
  BATON_TRY(const int32_t y, operand(context, "y"));
  op->inputs = {x, y};
  BATON_TRY(op->transpose_x, boolean(context, "transpose_x", Rule::kMatmulFlags));
  BATON_TRY(op->transpose_y, boolean(context, "transpose_y", Rule::kMatmulFlags));
  std::vector<int64_t> a = context.at(x).type.dims, b = context.at(y).type.dims;
  if (a.size() < 2 || b.size() < 2 || context.at(x).type.type != context.at(y).type.type) {
    return context.refuse(Rule::kParameterType, "x and y must be matrices of one type");
  }
  if (op->transpose_x) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (op->transpose_y) std::swap(b[b.size() - 1], b[b.size() - 2]);
  if (a.back() != b[b.size() - 2]) {
    return context.refuse(Rule::kParameterType, fmt::format("inner sizes {} and {} differ", a.back(), b[b.size() - 2]));
  }
  const int64_t rows = a[a.size() - 2], columns = b.back();
  a.resize(a.size() - 2);
  b.resize(b.size() - 2);
  BATON_TRY(std::vector<int64_t> dims, broadcast(context, a, b, Rule::kParameterType));
  dims.push_back(rows);
  dims.push_back(columns);
  *type = {context.at(x).type.type, std::move(dims)};
  return {};
}

Status check_linear(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_TRY(const int32_t x, operand(context, "x"));
  BATON_TRY(const int32_t weight, operand(context, "weight"));
  op->inputs = {x, weight};
  const MilTensorType &in = context.at(x).type, &matrix = context.at(weight).type;
  if (!context.at(weight).is_const || matrix.dims.size() != 2 || in.dims.empty() || in.dims.back() != matrix.dims[1]) {
    return context.refuse(Rule::kParameterType, "weight must be a constant [out, in] that fits x");
  }
  if (context.argument("bias") != nullptr) {
    BATON_TRY(const int32_t bias, operand(context, "bias"));
    if (!context.at(bias).is_const || context.at(bias).type.dims != std::vector<int64_t>{matrix.dims[0]}) {
      return context.refuse(Rule::kParameterType, "bias must be a constant [out]");
    }
    op->inputs.push_back(bias);
  }
  *type = {in.type, in.dims};
  type->dims.back() = matrix.dims[0];
  return {};
}

// Broadcast forms that numeric tests on hardware have shown: same shape, a scalar, [1, C, 1, 1].
bool proven_broadcast(const std::vector<int64_t>& out, const std::vector<int64_t>& other) {
  const auto is_one = [](int64_t dim) { return dim == 1; };
  if (other == out || std::all_of(other.begin(), other.end(), is_one)) return true;
  return out.size() == 4 && other.size() == 4 && other[0] == 1 && other[1] == out[1] && other[2] == 1 && other[3] == 1;
}

Status check_binary(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_TRY(const int32_t x, operand(context, "x"));
  BATON_TRY(const int32_t y, operand(context, "y"));
  op->inputs = {x, y};
  const MilTensorType &a = context.at(x).type, &b = context.at(y).type;
  if (a.type != b.type) return context.refuse(Rule::kParameterType, "x and y differ in type");
  BATON_TRY(std::vector<int64_t> dims, broadcast(context, a.dims, b.dims, Rule::kParameterType));
  const bool batch_differs = a.dims.size() == 4 && b.dims.size() == 4 && a.dims[0] != b.dims[0];
  if (batch_differs && op->code == OpCode::kMul) {
    BATON_OK(context.report(Rule::kBroadcastBatch, "mul spreads one operand over N"));
  } else if (!proven_broadcast(dims, a.dims) || !proven_broadcast(dims, b.dims)) {
    BATON_OK(context.report(Rule::kBroadcast,
                            fmt::format("{} with {}: a form nobody has shown to work", to_string(a), to_string(b))));
  }
  *type = {a.type, std::move(dims)};
  return {};
}

Status check_unary(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_TRY(const int32_t x, operand(context, "x"));
  op->inputs = {x};
  *type = {context.at(x).type.type, context.at(x).type.dims};
  if (context.argument("epsilon") != nullptr) {
    BATON_TRY(const GraphValue* epsilon, constant(context, "epsilon", {type->type, 0}, Rule::kParameterType));
    op->epsilon = static_cast<float>(epsilon->numbers[0]);
  }
  return {};
}

Status check_gelu(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_OK(check_unary(context, op, type));
  BATON_TRY(const std::string mode, text(context, "mode", Rule::kGeluMode));
  if (mode == "TANH_APPROXIMATION") {
    op->gelu = GeluMode::kTanh;
  } else if (mode == "SIGMOID_APPROXIMATION") {
    op->gelu = GeluMode::kSigmoid;
  } else if (mode != "EXACT") {
    return context.refuse(Rule::kGeluMode, fmt::format("mode '{}'", mode));
  }
  return context.report(Rule::kGelu, "sources disagree whether gelu compiles; write it with tanh");
}

Status check_softmax(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_OK(check_unary(context, op, type));
  BATON_TRY(const int64_t axis, integer(context, "axis", Rule::kSoftmaxAxis));
  BATON_TRY(op->axis, axis_in(context, axis, type->dims.size(), Rule::kSoftmaxAxis));
  return {};
}

Status check_layer_norm(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_TRY(const int32_t x, operand(context, "x"));
  op->inputs = {x};
  *type = {context.at(x).type.type, context.at(x).type.dims};
  BATON_TRY(op->list, axes_in(context, "axes", type->dims.size(), Rule::kParameterType));
  std::vector<int64_t> normal;
  for (const int64_t axis : op->list) normal.push_back(type->dims[static_cast<size_t>(axis)]);
  for (const std::string_view name : {"gamma", "beta"}) {
    if (context.argument(name) == nullptr) {
      if (name == "gamma" && context.argument("beta") != nullptr) {
        return context.refuse(Rule::kParameterMissing, "beta without gamma");
      }
      continue;
    }
    BATON_TRY(const int32_t index, operand(context, name));
    if (!context.at(index).is_const || context.at(index).type.dims != normal ||
        context.at(index).type.type != type->type) {
      return context.refuse(Rule::kParameterType, fmt::format("'{}' must be a constant of the normalised shape", name));
    }
    op->inputs.push_back(index);
  }
  op->epsilon = 1e-5f;
  if (context.argument("epsilon") != nullptr) {
    BATON_TRY(const GraphValue* epsilon, constant(context, "epsilon", {type->type, 0}, Rule::kParameterType));
    op->epsilon = static_cast<float>(epsilon->numbers[0]);
  }
  return {};
}

Status check_reduce(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_TRY(const int32_t x, operand(context, "x"));
  op->inputs = {x};
  *type = {context.at(x).type.type, context.at(x).type.dims};
  BATON_TRY(op->list, axes_in(context, "axes", type->dims.size(), Rule::kReduceAxes));
  BATON_TRY(const bool keep, boolean(context, "keep_dims", Rule::kParameterType));
  for (size_t i = op->list.size(); i-- > 0;) {
    const auto at = type->dims.begin() + op->list[i];
    if (keep) {
      *at = 1;
    } else {
      type->dims.erase(at);
    }
  }
  return {};
}

Status check_concat(const OpContext& context, GraphOp* op, MilTensorType* type) {
  const MilArgument* values = context.argument("values");
  if (values->kind == MilArgument::Kind::kLiteral || values->names.empty()) {
    return context.refuse(Rule::kParameterType, "'values' must be a list of names");
  }
  BATON_TRY(op->axis, integer(context, "axis", Rule::kConcatAxis));
  BATON_TRY(const bool interleave, boolean(context, "interleave", Rule::kConcatInterleave));
  if (interleave) return context.refuse(Rule::kConcatInterleave, "interleave is true");
  for (const std::string& name : values->names) {
    const int32_t index = context.names.at(name);
    const MilTensorType& part = context.at(index).type;
    if (op->inputs.empty()) {
      *type = {part.type, part.dims};
      if (op->axis < 0 || op->axis >= static_cast<int64_t>(part.dims.size())) {
        return context.refuse(Rule::kConcatAxis, fmt::format("axis {} of rank {}", op->axis, part.dims.size()));
      }
    } else {
      const size_t axis = static_cast<size_t>(op->axis);
      if (part.type != type->type || part.dims.size() != type->dims.size()) {
        return context.refuse(Rule::kConcatShape, fmt::format("'{}' is {}", name, to_string(part)));
      }
      for (size_t i = 0; i < part.dims.size(); ++i) {
        if (i != axis && part.dims[i] != type->dims[i]) {
          return context.refuse(Rule::kConcatShape, fmt::format("'{}' is {}, the first is {}", name, to_string(part),
                                                                to_string(context.at(op->inputs[0]).type)));
        }
      }
      type->dims[axis] += part.dims[axis];
    }
    if (!is_float(part.type))
      return context.refuse(Rule::kIntegerTensor, fmt::format("'{}' is {}", name, to_string(part)));
    op->inputs.push_back(index);
  }
  return {};
}

// Both slices become begin and step per dim; the sizes are the result's dims.
Status check_slice(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_TRY(const int32_t x, operand(context, "x"));
  op->inputs = {x};
  const std::vector<int64_t>& in = context.at(x).type.dims;
  const int64_t rank = static_cast<int64_t>(in.size());
  const bool by_size = context.statement.op == "slice_by_size";
  BATON_TRY(op->list, integers(context, "begin", rank));
  BATON_TRY(const std::vector<int64_t> ends, integers(context, by_size ? "size" : "end", rank));
  op->list2.assign(in.size(), 1);
  if (context.argument("stride") != nullptr) {
    BATON_TRY(op->list2, integers(context, "stride", rank));
  }
  *type = {context.at(x).type.type, in};
  for (size_t i = 0; i < in.size(); ++i) {
    int64_t &begin = op->list[i], end = ends[i];
    if (begin < 0 && !by_size) begin += in[i];
    if (by_size) {
      end = end == -1 ? in[i] : begin + end;
    } else if (end < 0) {
      end += in[i];
    }
    if (begin < 0 || end <= begin || end > in[i] || op->list2[i] < 1) {
      return context.refuse(Rule::kParameterType, fmt::format("dim {}: from {} to {} of {}", i, begin, end, in[i]));
    }
    type->dims[i] = (end - begin + op->list2[i] - 1) / op->list2[i];
  }
  return {};
}

Status check_reshape(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_TRY(const int32_t x, operand(context, "x"));
  op->inputs = {x};
  BATON_TRY(std::vector<int64_t> dims, integers(context, "shape", -1));
  const uint64_t total = element_count(context.at(x).type.dims).value_or(0);
  const auto unknown = std::find(dims.begin(), dims.end(), -1);
  if (unknown != dims.end()) {
    *unknown = 1;
    const auto known = element_count(dims);
    if (known && *known > 0) *unknown = static_cast<int64_t>(total / *known);
  }
  if (element_count(dims) != total)
    return context.refuse(Rule::kParameterType, "the shape holds another number of values");
  *type = {context.at(x).type.type, std::move(dims)};
  return {};
}

Status check_transpose(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_TRY(const int32_t x, operand(context, "x"));
  op->inputs = {x};
  const std::vector<int64_t>& in = context.at(x).type.dims;
  BATON_TRY(op->list, integers(context, "perm", static_cast<int64_t>(in.size())));
  std::vector<bool> seen(in.size());
  *type = {context.at(x).type.type, {}};
  for (int64_t& axis : op->list) {
    BATON_TRY(axis, axis_in(context, axis, in.size(), Rule::kParameterType));
    if (seen[static_cast<size_t>(axis)]) return context.refuse(Rule::kParameterType, "'perm' names an axis twice");
    seen[static_cast<size_t>(axis)] = true;
    type->dims.push_back(in[static_cast<size_t>(axis)]);
  }
  return {};
}

Status check_cast(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_TRY(const int32_t x, operand(context, "x"));
  op->inputs = {x};
  BATON_TRY(const std::string dtype, text(context, "dtype", Rule::kParameterType));
  if (dtype != "fp16" && dtype != "fp32") {
    return context.refuse(Rule::kIntegerTensor, fmt::format("cast to '{}'; fp16 or fp32", dtype));
  }
  *type = {dtype == "fp16" ? MilType::kFp16 : MilType::kFp32, context.at(x).type.dims};
  return {};
}

Status check_tile(const OpContext& context, GraphOp* op, MilTensorType* type) {
  BATON_OK(context.report(Rule::kTile, "after one evaluation of tile every later evaluation in the process fails"));
  BATON_TRY(const int32_t x, operand(context, "x"));
  op->inputs = {x};
  *type = {context.at(x).type.type, context.at(x).type.dims};
  BATON_TRY(op->list, integers(context, "reps", static_cast<int64_t>(type->dims.size())));
  for (size_t i = 0; i < op->list.size(); ++i) {
    if (op->list[i] < 1 || !checked_mul(type->dims[i], op->list[i], &type->dims[i])) {
      return context.refuse(Rule::kParameterType, fmt::format("dim {} {} times", i, op->list[i]));
    }
  }
  return {};
}

constexpr Rule kConvRule = Rule::kConvAttribute;

constexpr OpEntry kOps[] = {
    {"conv",
     OpCode::kConv,
     check_conv,
     {{{"x", true, kConvRule},
       {"weight", true, kConvRule},
       {"strides", true, kConvRule},
       {"pad_type", true, kConvRule},
       {"pad", true, kConvRule},
       {"dilations", true, kConvRule},
       {"groups", true, kConvRule},
       {"bias", false}}}},
    {"matmul", OpCode::kMatmul, check_matmul, {{{"x"}, {"y"}, {"transpose_x"}, {"transpose_y"}}}},
    {"linear", OpCode::kLinear, check_linear, {{{"x"}, {"weight"}, {"bias", false}}}},
    {"add", OpCode::kAdd, check_binary, {{{"x"}, {"y"}}}},
    {"sub", OpCode::kSub, check_binary, {{{"x"}, {"y"}}}},
    {"mul", OpCode::kMul, check_binary, {{{"x"}, {"y"}}}},
    {"real_div", OpCode::kRealDiv, check_binary, {{{"x"}, {"y"}}}},
    {"maximum", OpCode::kMaximum, check_binary, {{{"x"}, {"y"}}}},
    {"minimum", OpCode::kMinimum, check_binary, {{{"x"}, {"y"}}}},
    {"pow", OpCode::kPow, check_binary, {{{"x"}, {"y"}}}},
    {"sqrt", OpCode::kSqrt, check_unary, {{{"x"}}}},
    {"rsqrt", OpCode::kRsqrt, check_unary, {{{"x"}, {"epsilon", false}}}},
    {"exp", OpCode::kExp, check_unary, {{{"x"}}}},
    {"log", OpCode::kLog, check_unary, {{{"x"}, {"epsilon", false}}}},
    {"tanh", OpCode::kTanh, check_unary, {{{"x"}}}},
    {"sigmoid", OpCode::kSigmoid, check_unary, {{{"x"}}}},
    {"silu", OpCode::kSilu, check_unary, {{{"x"}}}},
    {"relu", OpCode::kRelu, check_unary, {{{"x"}}}},
    {"gelu", OpCode::kGelu, check_gelu, {{{"x"}, {"mode", true, Rule::kGeluMode}}}},
    {"softmax", OpCode::kSoftmax, check_softmax, {{{"x"}, {"axis", true, Rule::kSoftmaxAxis}}}},
    {"layer_norm",
     OpCode::kLayerNorm,
     check_layer_norm,
     {{{"x"}, {"axes"}, {"gamma", false}, {"beta", false}, {"epsilon", false}}}},
    {"reduce_sum", OpCode::kReduceSum, check_reduce, {{{"x"}, {"axes", true, Rule::kReduceAxes}, {"keep_dims"}}}},
    {"reduce_mean", OpCode::kReduceMean, check_reduce, {{{"x"}, {"axes", true, Rule::kReduceAxes}, {"keep_dims"}}}},
    {"reduce_max", OpCode::kReduceMax, check_reduce, {{{"x"}, {"axes", true, Rule::kReduceAxes}, {"keep_dims"}}}},
    {"concat",
     OpCode::kConcat,
     check_concat,
     {{{"values"}, {"axis", true, Rule::kConcatAxis}, {"interleave", true, Rule::kConcatInterleave}}}},
    {"slice_by_size", OpCode::kSlice, check_slice, {{{"x"}, {"begin"}, {"size"}}}},
    {"slice_by_index", OpCode::kSlice, check_slice, {{{"x"}, {"begin"}, {"end"}, {"stride", false}}}},
    {"reshape", OpCode::kReshape, check_reshape, {{{"x"}, {"shape"}}}},
    {"transpose", OpCode::kTranspose, check_transpose, {{{"x"}, {"perm"}}}},
    {"cast", OpCode::kCast, check_cast, {{{"x"}, {"dtype"}}}},
    {"tile", OpCode::kTile, check_tile, {{{"x"}, {"reps"}}}},
};

const OpEntry* entry_of(std::string_view name) {
  for (const OpEntry& entry : kOps) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

Status check_parameters(const OpContext& context, std::span<const Parameter> parameters) {
  for (const MilArgument& argument : context.statement.arguments) {
    const auto known = [&](const Parameter& parameter) {
      return !parameter.name.empty() && parameter.name == argument.parameter;
    };
    if (std::none_of(parameters.begin(), parameters.end(), known)) {
      return context.refuse(Rule::kParameterUnknown, fmt::format("there is no parameter '{}'", argument.parameter));
    }
    if (&argument != context.argument(argument.parameter)) {
      return context.refuse(Rule::kParameterUnknown, fmt::format("'{}' is given twice", argument.parameter));
    }
    if (argument.kind == MilArgument::Kind::kNames && argument.parameter != "values") {
      return context.refuse(Rule::kParameterType, fmt::format("'{}' takes one name", argument.parameter));
    }
  }
  for (const Parameter& parameter : parameters) {
    if (!parameter.name.empty() && parameter.required && context.argument(parameter.name) == nullptr) {
      return context.refuse(parameter.missing, fmt::format("'{}' is missing", parameter.name));
    }
  }
  return {};
}

// value = scale * (quantized - zero_point), per channel of `axis`; quantized int8 or uint8.
Status dequantize(const OpContext& context, MilTensorType* type, std::vector<uint16_t>* computed) {
  static constexpr std::array<Parameter, 4> kParameters = {{{"quantized_data"}, {"zero_point"}, {"scale"}, {"axis"}}};
  BATON_OK(check_parameters(context, kParameters));
  const GraphValue &data = context.at(context.value("quantized_data")), &scale = context.at(context.value("scale")),
                   &zero = context.at(context.value("zero_point"));
  BATON_TRY(const int64_t axis_written, integer(context, "axis", Rule::kParameterType));
  BATON_TRY(const int64_t axis, axis_in(context, axis_written, data.type.dims.size(), Rule::kParameterType));
  const bool bytes = data.type.type == MilType::kInt8 || data.type.type == MilType::kUint8;
  const uint64_t channels = static_cast<uint64_t>(data.type.dims[static_cast<size_t>(axis)]);
  const auto per_channel = [&](const GraphValue& value) {
    return value.is_const && (value.numbers.size() == 1 || value.numbers.size() == channels);
  };
  if (!data.is_const || !bytes || !per_channel(scale) || !per_channel(zero) || scale.type.type != MilType::kFp16 ||
      zero.type.type != data.type.type) {
    return context.refuse(Rule::kParameterType,
                          "needs int8 or uint8 data, its zero_point, and an fp16 scale per channel");
  }
  uint64_t inner = 1;
  for (size_t i = static_cast<size_t>(axis) + 1; i < data.type.dims.size(); ++i)
    inner *= static_cast<uint64_t>(data.type.dims[i]);
  const uint64_t count = element_count(data.type.dims).value_or(0);
  computed->resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t channel = i / inner % channels;
    double value = data.file_data.empty() ? data.numbers[i] : 0;
    if (!data.file_data.empty()) {
      value =
          data.type.type == MilType::kInt8 ? load_as<int8_t>(&data.file_data[i]) : load_as<uint8_t>(&data.file_data[i]);
    }
    const auto at = [&](const GraphValue& per) { return per.numbers[per.numbers.size() == 1 ? 0 : channel]; };
    (*computed)[i] = to_fp16(static_cast<float>(at(scale) * (value - at(zero))));
  }
  *type = {MilType::kFp16, data.type.dims};
  return {};
}

// data times scale, each scale for a block of the data: dims of scale divide those of data. Written for opset ios18,
// where operands of constexpr operations are inputs.
Status shift_scale(const OpContext& context, MilTensorType* type, std::vector<uint16_t>* computed) {
  static constexpr std::array<Parameter, 2> kParameters = {{{"data"}, {"scale"}}};
  BATON_OK(check_parameters(context, kParameters));
  const int32_t data_index = context.value("data"), scale_index = context.value("scale");
  if (data_index < 0 || scale_index < 0)
    return context.refuse(Rule::kParameterType, "data and scale are one value each");
  const GraphValue &data = context.at(data_index), &scale = context.at(scale_index);
  const auto &dims = data.type.dims, &blocks = scale.type.dims;
  bool fits = data.is_const && scale.is_const && scale.type.type == MilType::kFp16 && dims.size() == blocks.size() &&
              (data.type.type == MilType::kInt8 || data.type.type == MilType::kUint8);
  for (size_t i = 0; fits && i < dims.size(); ++i) fits = blocks[i] > 0 && dims[i] % blocks[i] == 0;
  if (!fits) return context.refuse(Rule::kParameterType, "needs int8 or uint8 data and an fp16 scale for each block");
  const bool is_signed = data.type.type == MilType::kInt8;
  const auto data_at = [&](uint64_t i) -> double {
    if (data.file_data.empty()) return data.numbers[i];
    return is_signed ? load_as<int8_t>(&data.file_data[i]) : load_as<uint8_t>(&data.file_data[i]);
  };
  const auto scale_at = [&](uint64_t i) -> double {
    return scale.file_data.empty() ? scale.numbers[i] : from_fp16(load_as<uint16_t>(&scale.file_data[2 * i]));
  };
  const uint64_t count = element_count(dims).value_or(0);
  computed->resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t rest = i, block = 0, stride = 1;
    for (size_t d = dims.size(); d-- > 0;) {
      const auto size = static_cast<uint64_t>(dims[d]), parts = static_cast<uint64_t>(blocks[d]);
      block += rest % size / (size / parts) * stride;
      stride *= parts;
      rest /= size;
    }
    (*computed)[i] = to_fp16(static_cast<float>(scale_at(block) * data_at(i)));
  }
  *type = {MilType::kFp16, dims};
  return {};
}

}  // namespace

Status check_forbidden(const OpContext& context) {
  const std::string_view op = context.statement.op;
  if (op == "cond" || op == "while_loop") return context.refuse(Rule::kControlFlow, "programs here are straight lines");
  if (op.starts_with("scatter")) return context.refuse(Rule::kScatter, "no chip has scatter");
  if (op.starts_with("gather"))
    return context.refuse(Rule::kGather, "gather with a runtime index; look up on the host");
  if (op == "read_state" || op == "write_state") return context.refuse(Rule::kStateOp, "states need Core ML");
  if (op == "scaled_dot_product_attention" && context.argument("attn_mask") != nullptr) {
    return context.refuse(Rule::kAttentionMask, "the mask is reported to be ignored; write softmax(q k + mask) v");
  }
  return {};
}

bool is_parameter(std::string_view op, std::string_view parameter) {
  const OpEntry* entry = entry_of(op);
  return entry != nullptr && std::any_of(entry->parameters.begin(), entry->parameters.end(),
                                         [&](const Parameter& known) { return known.name == parameter; });
}

Result<std::optional<GraphOp>> check_op(const OpContext& context, MilTensorType* type,
                                        std::vector<uint16_t>* computed) {
  if (context.statement.op == "constexpr_affine_dequantize") {
    BATON_OK(dequantize(context, type, computed));
    return std::nullopt;
  }
  if (context.statement.op == "constexpr_blockwise_shift_scale") {
    BATON_OK(shift_scale(context, type, computed));
    return std::nullopt;
  }
  const OpEntry* entry = entry_of(context.statement.op);
  if (entry == nullptr) {
    return context.refuse(Rule::kOpList, "not an operation that is known to work, and the emulator cannot run it");
  }
  BATON_OK(check_parameters(context, entry->parameters));
  GraphOp op;
  op.code = entry->code;
  op.name = context.statement.name;
  op.line = context.statement.line;
  BATON_OK(entry->check(context, &op, type));
  return op;
}

}  // namespace baton::apple

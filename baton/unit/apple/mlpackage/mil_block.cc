// Statements, constants and shapes.
#include "baton/unit/apple/mlpackage/mil_block.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "baton/base/bytes.h"
#include "baton/base/float.h"

namespace baton::apple {
namespace {

constexpr size_t kBlobValuesMin = 10;  // fewer are written into the program

MilDims broadcast(const MilDims& a, const MilDims& b) {
  BATON_CHECK(a.size() == b.size() || a.empty() || b.empty());
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  MilDims out = a;
  for (size_t i = 0; i < a.size(); ++i) {
    BATON_CHECK(a[i] == b[i] || a[i] == 1 || b[i] == 1);
    out[i] = std::max(a[i], b[i]);
  }
  return out;
}

MilLiteral string_literal(std::string_view text) {
  MilLiteral value;
  value.type.type = MilType::kString;
  value.strings = {std::string(text)};
  return value;
}

MilArgument attribute(std::string parameter, MilLiteral value) {
  MilArgument out;
  out.parameter = std::move(parameter);
  out.kind = MilArgument::Kind::kLiteral;
  out.literal = std::move(value);
  return out;
}

}  // namespace

const MilBlock::Entry& MilBlock::at(Value value) const {
  BATON_CHECK(value.index >= 0 && static_cast<size_t>(value.index) < entries_.size());
  return entries_[static_cast<size_t>(value.index)];
}

std::string MilBlock::unique(std::string_view name) {
  const std::string full = prefix_ + std::string(name);
  const int32_t times = names_[full]++;
  return times == 0 ? full : fmt::format("{}_x{}", full, times);
}

MilBlock::Value MilBlock::add(std::string name, MilTensorType type) {
  entries_.push_back({std::move(name), std::move(type)});
  return {static_cast<int32_t>(entries_.size() - 1)};
}

MilBlock::Value MilBlock::input(std::string_view name, MilDims dims) {
  const MilTensorType type{MilType::kFp16, std::move(dims), false};
  function_.inputs.push_back({type, std::string(name), 0});
  names_[std::string(name)] = 1;
  return add(std::string(name), type);
}

MilBlock::Value MilBlock::literal(std::string name, MilLiteral value) {
  MilStatement statement;
  statement.type = value.type;
  statement.name = name;
  statement.op = "const";
  statement.attributes.push_back(attribute("name", string_literal(name)));
  statement.attributes.push_back(attribute("val", value));
  function_.statements.push_back(std::move(statement));
  return add(std::move(name), std::move(value.type));
}

std::string MilBlock::parameter(const std::string& key, MilLiteral value) {
  const auto found = parameters_.find(key);
  if (found != parameters_.end()) return found->second;
  const std::string name = fmt::format("p{}", parameters_.size());
  names_[name] = 1;
  parameters_.emplace(key, name);
  literal(name, std::move(value));
  return name;
}

std::string MilBlock::integers(const MilDims& values) {
  MilLiteral value;
  value.type = {MilType::kInt32, {static_cast<int64_t>(values.size())}, false};
  value.numbers.assign(values.begin(), values.end());
  return parameter(fmt::format("[{}]", fmt::join(values, ",")), std::move(value));
}

std::string MilBlock::integer(int64_t number) {
  MilLiteral value;
  value.type = {MilType::kInt32, {}, false};
  value.numbers = {static_cast<double>(number)};
  return parameter(fmt::format("int {}", number), std::move(value));
}

std::string MilBlock::boolean(bool yes) {
  MilLiteral value;
  value.type = {MilType::kBool, {}, false};
  value.numbers = {yes ? 1.0 : 0.0};
  return parameter(yes ? "true" : "false", std::move(value));
}

std::string MilBlock::text(std::string_view words) {
  return parameter(fmt::format("'{}'", words), string_literal(words));
}

MilBlock::Value MilBlock::scalar(float value) {
  const uint16_t bits = f32_to_f16(value);
  const std::string key = fmt::format("fp16 {:04x}", bits);
  const auto found = constants_.find(key);
  if (found != constants_.end()) return found->second;
  MilLiteral literal_value;
  literal_value.type = {MilType::kFp16, {}, false};
  literal_value.numbers = {f16_to_f32(bits)};
  std::string name = fmt::format("c{}", constants_.size());
  names_[name] = 1;
  return constants_[key] = literal(std::move(name), std::move(literal_value));
}

MilBlock::Value MilBlock::constant(const std::string& key, MilDims dims,
                                   const std::function<float(size_t index)>& value) {
  const auto found = constants_.find(key);
  if (found != constants_.end()) return found->second;
  const size_t count = static_cast<size_t>(element_count(dims).value_or(0));
  BATON_CHECK(count > 0);
  MilLiteral constant_value;
  constant_value.type = {MilType::kFp16, std::move(dims), false};
  if (count < kBlobValuesMin) {
    for (size_t i = 0; i < count; ++i) constant_value.numbers.push_back(f16_to_f32(f32_to_f16(value(i))));
  } else {
    std::vector<uint16_t> halves(count);
    for (size_t i = 0; i < count; ++i) halves[i] = f32_to_f16(value(i));
    constant_value.in_file = true;
    constant_value.path = file_;
    constant_value.offset = weights_.add(MilType::kFp16, std::as_bytes(std::span<const uint16_t>(halves)));
  }
  std::string name = fmt::format("c{}_{}", constants_.size(), key);
  names_[name] = 1;
  return constants_[key] = literal(std::move(name), std::move(constant_value));
}

Result<MilBlock::Value> MilBlock::weight(std::string_view name, const Weight& weight, const MatrixPart& part,
                                         MilDims dims, RangeReport* report) {
  MilLiteral value;
  value.type = {MilType::kFp16, std::move(dims), false};
  BATON_CHECK(element_count(value.type.dims) == static_cast<uint64_t>(part.row_count * part.column_count));
  value.in_file = true;
  value.path = file_;
  BATON_TRY(value.offset, weights_.add_fp16(weight, part, OutOfRange::kRefuse, report));
  return literal(unique(name), std::move(value));
}

MilBlock::Value MilBlock::op(std::string_view op, std::string_view name, MilDims dims,
                             std::vector<std::pair<std::string, std::vector<std::string>>> arguments) {
  MilStatement statement;
  statement.type = {MilType::kFp16, std::move(dims), false};
  statement.name = unique(name);
  statement.op = op;
  for (auto& [parameter, names] : arguments) {
    MilArgument argument;
    argument.parameter = parameter;
    argument.kind = parameter == "values" ? MilArgument::Kind::kNames : MilArgument::Kind::kName;
    argument.names = std::move(names);
    statement.arguments.push_back(std::move(argument));
  }
  statement.attributes.push_back(attribute("name", string_literal(statement.name)));
  const Value out = add(statement.name, statement.type);
  function_.statements.push_back(std::move(statement));
  ++ops_;
  return out;
}

MilBlock::Value MilBlock::conv(std::string_view name, Value x, Value weight, int64_t groups) {
  const MilDims &in = dims(x), &kernel = dims(weight);
  BATON_CHECK(in.size() == 4 && kernel.size() == 4 && kernel[1] * groups == in[1] && kernel[2] <= in[2] &&
              kernel[3] <= in[3]);
  MilDims out = {in[0], kernel[0], in[2] - kernel[2] + 1, in[3] - kernel[3] + 1};
  return op("conv", name, std::move(out),
            {{"x", {at(x).name}},
             {"weight", {at(weight).name}},
             {"strides", {integers({1, 1})}},
             {"pad_type", {text("valid")}},
             {"pad", {integers({0, 0, 0, 0})}},
             {"dilations", {integers({1, 1})}},
             {"groups", {integer(groups)}}});
}

MilBlock::Value MilBlock::matmul(std::string_view name, Value x, Value y, bool transpose_x, bool transpose_y) {
  MilDims a = dims(x), b = dims(y);
  BATON_CHECK(a.size() >= 2 && a.size() == b.size());
  const size_t rank = a.size();
  if (transpose_x) std::swap(a[rank - 1], a[rank - 2]);
  if (transpose_y) std::swap(b[rank - 1], b[rank - 2]);
  BATON_CHECK(a[rank - 1] == b[rank - 2]);
  MilDims out = broadcast(MilDims(a.begin(), a.end() - 2), MilDims(b.begin(), b.end() - 2));
  out.push_back(a[rank - 2]);
  out.push_back(b[rank - 1]);
  return op("matmul", name, std::move(out),
            {{"x", {at(x).name}},
             {"y", {at(y).name}},
             {"transpose_x", {boolean(transpose_x)}},
             {"transpose_y", {boolean(transpose_y)}}});
}

MilBlock::Value MilBlock::unary(std::string_view operation, std::string_view name, Value x) {
  return op(operation, name, dims(x), {{"x", {at(x).name}}});
}

MilBlock::Value MilBlock::binary(std::string_view operation, std::string_view name, Value x, Value y) {
  return op(operation, name, broadcast(dims(x), dims(y)), {{"x", {at(x).name}}, {"y", {at(y).name}}});
}

MilBlock::Value MilBlock::softmax(std::string_view name, Value x, int64_t axis) {
  return op("softmax", name, dims(x), {{"x", {at(x).name}}, {"axis", {integer(axis)}}});
}

MilBlock::Value MilBlock::layer_norm(std::string_view name, Value x, int64_t axis, float epsilon) {
  const Value eps = scalar(epsilon);
  return op("layer_norm", name, dims(x),
            {{"x", {at(x).name}}, {"axes", {integers({axis})}}, {"epsilon", {at(eps).name}}});
}

MilBlock::Value MilBlock::concat(std::string_view name, std::span<const Value> values, int64_t axis) {
  BATON_CHECK(!values.empty());
  if (values.size() == 1) return values[0];
  MilDims out = dims(values[0]);
  std::vector<std::string> names = {at(values[0]).name};
  for (const Value value : values.subspan(1)) {
    const MilDims& part = dims(value);
    BATON_CHECK(part.size() == out.size());
    for (size_t i = 0; i < out.size(); ++i) BATON_CHECK(static_cast<int64_t>(i) == axis || part[i] == out[i]);
    out[static_cast<size_t>(axis)] += part[static_cast<size_t>(axis)];
    names.push_back(at(value).name);
  }
  return op("concat", name, std::move(out),
            {{"values", std::move(names)}, {"axis", {integer(axis)}}, {"interleave", {boolean(false)}}});
}

MilBlock::Value MilBlock::slice(std::string_view name, Value x, int64_t axis, int64_t begin, int64_t count) {
  MilDims out = dims(x), from(out.size(), 0);
  int64_t& size = out[static_cast<size_t>(axis)];
  BATON_CHECK(begin >= 0 && count > 0 && begin + count <= size);
  if (count == size) return x;
  size = count;
  from[static_cast<size_t>(axis)] = begin;
  const std::string begins = integers(from), sizes = integers(out);
  return op("slice_by_size", name, std::move(out), {{"x", {at(x).name}}, {"begin", {begins}}, {"size", {sizes}}});
}

MilBlock::Value MilBlock::reshape(std::string_view name, Value x, MilDims out) {
  BATON_CHECK(element_count(out) == element_count(dims(x)));
  if (out == dims(x)) return x;
  const std::string shape = integers(out);
  return op("reshape", name, std::move(out), {{"x", {at(x).name}}, {"shape", {shape}}});
}

MilBlock::Value MilBlock::transpose(std::string_view name, Value x, MilDims permutation) {
  MilDims out;
  for (const int64_t axis : permutation) out.push_back(dim(x, static_cast<size_t>(axis)));
  return op("transpose", name, std::move(out), {{"x", {at(x).name}}, {"perm", {integers(permutation)}}});
}

void MilBlock::output(std::string_view name, Value x) {
  // The statement that made x takes the output's name, where nothing else has named it.
  MilStatement* made = nullptr;
  for (MilStatement& statement : function_.statements) {
    if (statement.name == at(x).name && statement.op != "const") made = &statement;
  }
  BATON_CHECK(made != nullptr && !names_.contains(name) &&
              std::find(function_.outputs.begin(), function_.outputs.end(), at(x).name) == function_.outputs.end());
  const std::string old = made->name;
  for (MilStatement& statement : function_.statements) {
    for (MilArgument& argument : statement.arguments)
      std::replace(argument.names.begin(), argument.names.end(), old, std::string(name));
  }
  made->name = name;
  made->attributes[0].literal = string_literal(name);
  entries_[static_cast<size_t>(x.index)].name = name;
  names_[std::string(name)] = 1;
  function_.outputs.emplace_back(name);
}

MilFunction MilBlock::take() && {
  function_.name = "main";
  return std::move(function_);
}

}  // namespace baton::apple

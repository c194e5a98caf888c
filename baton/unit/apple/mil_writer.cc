// MIL text, statement by statement. Constants that every conv or concat needs are written before the first of them.
#include "baton/unit/apple/mil_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/unit/apple/fp16.h"

namespace baton::apple {
namespace {

constexpr int64_t kColumnsMultiple = 32;  // fp16 values in the 64 bytes of a row
constexpr int64_t kWrittenChannelsMax = 65536;

std::string activation_type(int64_t channels, int64_t columns) {
  return fmt::format("tensor<fp16, [1, {}, 1, {}]>", channels, columns);
}

constexpr std::string_view kUnaryNames[] = {"sigmoid", "silu", "tanh", "relu", "exp", "sqrt"};
constexpr std::string_view kBinaryNames[] = {"add", "sub", "mul", "maximum", "minimum"};

bool is_name(std::string_view name) {
  const auto lower = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && lower(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return lower(c) || digit(c); });
}

// Hexadecimal, exact: 0x1.8p-3. `value` is finite.
std::string hex_float(float value) {
  if (value == 0) return "0x0p+0";
  int exponent = 0;
  const double mantissa = std::frexp(static_cast<double>(std::fabs(value)), &exponent) * 2;  // [1, 2)
  uint32_t digits = static_cast<uint32_t>((mantissa - 1) * 0x1p24);
  std::string text = fmt::format("{}0x1", value < 0 ? "-" : "");
  if (digits != 0) {
    text += '.';
    for (; digits != 0; digits = (digits << 4) & 0xffffffu) text += "0123456789abcdef"[digits >> 20];
  }
  return text + fmt::format("p{:+}", exponent - 1);
}

}  // namespace

const MilWriter::Entry& MilWriter::at(Value value) const {
  BATON_CHECK(value.index >= 0 && static_cast<size_t>(value.index) < entries_.size());
  return entries_[static_cast<size_t>(value.index)];
}

void MilWriter::wrong(std::string message) {
  if (!error_) error_ = Error{Code::kInvalidInput, "MIL text: " + std::move(message)};
}

bool MilWriter::good(Value value, Kind kind, std::string_view name) {
  const bool yes = value.index >= 0 && static_cast<size_t>(value.index) < entries_.size() && at(value).kind == kind;
  if (!yes) wrong(fmt::format("'{}': an operand of the wrong kind", name));
  return yes;
}

MilWriter::Value MilWriter::add(std::string_view name, Kind kind, int64_t channels, int64_t columns, bool from_op) {
  if (!is_name(name)) wrong(fmt::format("'{}' is not a name of [a-z0-9_]", name));
  for (const Entry& entry : entries_) {
    if (entry.name == name) wrong(fmt::format("the name '{}' is used twice", name));
  }
  for (const std::string& other : consts_) {
    if (other == name) wrong(fmt::format("the name '{}' is used twice", name));
  }
  if (channels < 1 || columns < 1 || channels > kWrittenChannelsMax) {
    wrong(fmt::format("'{}': {} by {} is not a shape the engine takes", name, channels, columns));
  }
  entries_.push_back({std::string(name), kind, channels, columns, from_op});
  return {static_cast<int32_t>(entries_.size() - 1)};
}

std::string MilWriter::scalar_type(std::string_view type) const {
  return dialect_ == MilDialect::kIos16 ? fmt::format("tensor<{}, []>", type) : std::string(type);
}

void MilWriter::named_const(std::string_view name, std::string_view type, std::string_view value) {
  if (!is_name(name)) wrong(fmt::format("'{}' is not a name of [a-z0-9_]", name));
  for (const std::string& other : consts_) {
    if (other == name) wrong(fmt::format("the name '{}' is used twice", name));
  }
  consts_.emplace_back(name);
  body_ += fmt::format("    {} {} = const()[name = {}(\"{}\"), val = {}({})];\n", type, name, scalar_type("string"),
                       name, type, value);
}

void MilWriter::file_const(std::string_view name, std::string_view type, std::string_view path, uint64_t offset) {
  named_const(name, type,
              fmt::format("BLOBFILE(path = {}(\"@model_path/{}\"), offset = {}({}))", scalar_type("string"), path,
                          scalar_type("uint64"), offset));
}

void MilWriter::op(Value value, std::string_view name, std::string_view arguments) {
  const Entry& entry = at(value);
  body_ += fmt::format("    {} {} = {}({})[name = {}(\"{}\")];\n", activation_type(entry.channels, entry.columns),
                       entry.name, name, arguments, scalar_type("string"), entry.name);
}

void MilWriter::conv_constants() {
  if (has_conv_constants_) return;
  has_conv_constants_ = true;
  named_const("conv_pad_type", scalar_type("string"), "\"valid\"");
  named_const("conv_strides", "tensor<int32, [2]>", "[1, 1]");
  named_const("conv_pad", "tensor<int32, [4]>", "[0, 0, 0, 0]");
  named_const("conv_dilations", "tensor<int32, [2]>", "[1, 1]");
  named_const("conv_groups", scalar_type("int32"), "1");
}

void MilWriter::concat_constants() {
  if (has_concat_constants_) return;
  has_concat_constants_ = true;
  named_const("concat_axis", scalar_type("int32"), "1");
  named_const("concat_interleave", scalar_type("bool"), "false");
}

MilWriter::Value MilWriter::input(std::string_view name, int64_t channels, int64_t columns) {
  if (columns % kColumnsMultiple != 0) {
    wrong(
        fmt::format("input '{}' has {} columns; rows of ports hold a multiple of {}", name, columns, kColumnsMultiple));
  }
  if (!inputs_.empty()) wrong("a second input: ports are bound by name on some systems, so programs here have one");
  const Value value = add(name, Kind::kActivation, channels, columns, false);
  inputs_ = fmt::format("{} {}", activation_type(channels, columns), name);
  return value;
}

MilWriter::Value MilWriter::conv_weight(std::string_view name, int64_t out, int64_t in, std::string_view path,
                                        uint64_t offset) {
  const Value value = add(name, Kind::kConvWeight, out, in, false);
  file_const(name, fmt::format("tensor<fp16, [{}, {}, 1, 1]>", out, in), path, offset);
  return value;
}

MilWriter::Value MilWriter::channel_weight(std::string_view name, int64_t channels, std::string_view path,
                                           uint64_t offset) {
  const Value value = add(name, Kind::kChannelWeight, channels, 1, false);
  file_const(name, activation_type(channels, 1), path, offset);
  return value;
}

MilWriter::Value MilWriter::scalar(std::string_view name, float number) {
  const float rounded = round_to_fp16(number);
  if (!std::isfinite(rounded)) wrong(fmt::format("scalar '{}' is beyond fp16", name));
  const Value value = add(name, Kind::kScalar, 1, 1, false);
  named_const(name, scalar_type("fp16"), std::isfinite(rounded) ? hex_float(rounded) : "0");
  return value;
}

MilWriter::Value MilWriter::conv(std::string_view name, Value x, Value weight) {
  if (!good(x, Kind::kActivation, name) || !good(weight, Kind::kConvWeight, name)) {
    return add(name, Kind::kActivation, 1, kColumnsMultiple, true);
  }
  if (at(weight).columns != at(x).channels) {
    wrong(fmt::format("conv '{}': weight '{}' takes {} channels, '{}' has {}", name, at(weight).name,
                      at(weight).columns, at(x).name, at(x).channels));
  }
  conv_constants();
  const Value value = add(name, Kind::kActivation, at(weight).channels, at(x).columns, true);
  op(value, "conv",
     fmt::format(
         "dilations = conv_dilations, groups = conv_groups, pad = conv_pad, pad_type = conv_pad_type, strides = "
         "conv_strides, weight = {}, x = {}",
         at(weight).name, at(x).name));
  return value;
}

MilWriter::Value MilWriter::unary(std::string_view name, MilUnary kind, Value x) {
  if (!good(x, Kind::kActivation, name)) return add(name, Kind::kActivation, 1, kColumnsMultiple, true);
  const Value value = add(name, Kind::kActivation, at(x).channels, at(x).columns, true);
  op(value, kUnaryNames[static_cast<size_t>(kind)], fmt::format("x = {}", at(x).name));
  return value;
}

MilWriter::Value MilWriter::binary(std::string_view name, MilBinary kind, Value x, Value y) {
  if (!good(x, Kind::kActivation, name) || y.index < 0 || static_cast<size_t>(y.index) >= entries_.size()) {
    wrong(fmt::format("'{}': an operand of the wrong kind", name));
    return add(name, Kind::kActivation, 1, kColumnsMultiple, true);
  }
  const Entry &a = at(x), &b = at(y);
  const bool fits = b.kind == Kind::kScalar || (b.kind == Kind::kChannelWeight && b.channels == a.channels) ||
                    (b.kind == Kind::kActivation && b.channels == a.channels && b.columns == a.columns);
  if (!fits) wrong(fmt::format("'{}': the shapes of '{}' and '{}' do not fit", name, a.name, b.name));
  const std::string arguments = fmt::format("x = {}, y = {}", a.name, b.name);
  const Value value = add(name, Kind::kActivation, a.channels, a.columns, true);
  op(value, kBinaryNames[static_cast<size_t>(kind)], arguments);
  return value;
}

MilWriter::Value MilWriter::concat(std::string_view name, std::span<const Value> values) {
  int64_t channels_sum = 0, columns = 0;
  std::string names;
  for (const Value value : values) {
    if (!good(value, Kind::kActivation, name)) return add(name, Kind::kActivation, 1, kColumnsMultiple, true);
    if (columns != 0 && at(value).columns != columns) wrong(fmt::format("concat '{}': columns differ", name));
    columns = at(value).columns;
    channels_sum += at(value).channels;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", at(value).name);
  }
  concat_constants();
  const Value value = add(name, Kind::kActivation, channels_sum, columns, true);
  op(value, "concat", fmt::format("axis = concat_axis, interleave = concat_interleave, values = ({})", names));
  return value;
}

MilWriter::Value MilWriter::slice_channels(std::string_view name, Value x, int64_t begin, int64_t count) {
  if (!good(x, Kind::kActivation, name)) return add(name, Kind::kActivation, 1, kColumnsMultiple, true);
  if (begin < 0 || count < 1 || begin > at(x).channels - count) {
    wrong(fmt::format("slice '{}': channels {} to {} of {}", name, begin, begin + count, at(x).channels));
  }
  const std::string begin_name = fmt::format("{}_begin", name), size_name = fmt::format("{}_size", name);
  named_const(begin_name, "tensor<int32, [4]>", fmt::format("[0, {}, 0, 0]", begin));
  named_const(size_name, "tensor<int32, [4]>", fmt::format("[1, {}, 1, {}]", count, at(x).columns));
  const std::string arguments = fmt::format("begin = {}, size = {}, x = {}", begin_name, size_name, at(x).name);
  const Value value = add(name, Kind::kActivation, count, at(x).columns, true);
  op(value, "slice_by_size", arguments);
  return value;
}

Result<std::string> MilWriter::finish(Value output) && {
  const bool known = output.index >= 0 && static_cast<size_t>(output.index) < entries_.size();
  if (!known || !at(output).from_op) wrong("the output is not the result of an operation");
  if (inputs_.empty()) wrong("there is no input");
  if (error_) return fail(*error_);
  const bool first = dialect_ == MilDialect::kIos16;
  const std::string string = scalar_type("string");
  return fmt::format(
      "program({})\n[buildInfo = dict<{}, {}>({{{{\"coremlc-version\", \"3505.4.1\"}}}})]\n{{\n  func "
      "main<{}>({}) {{\n{}  "
      "}} -> ({});\n}}\n",
      first ? "1.0" : "1.3", string, string, first ? "ios16" : "ios18", inputs_, body_, at(output).name);
}

}  // namespace baton::apple

// The rules about a program as a whole: header, names, constants, ports and sizes. Statements go to mil_ops.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "baton/base/bytes.h"
#include "baton/unit/apple/fp16.h"
#include "baton/unit/apple/mil_blob.h"
#include "baton/unit/apple/mil_graph.h"
#include "baton/unit/apple/mil_ops.h"

namespace baton::apple {
namespace {

constexpr std::array<std::string_view, 4> kOpsets = {"ios15", "ios16", "ios17", "ios18"};
constexpr int64_t kOuterDimMax = 65536, kInnerDimMax = 16384;  // N, C and H, W
constexpr uint64_t kMegabyte = 1000 * 1000;
constexpr uint64_t kActivationBytesMax = 1024 * kMegabyte;  // the emulator's own bound

class Checker {
 public:
  Checker(const MilProgram& program, const WeightFiles& files, Diagnostics& diagnostics, size_t function)
      : program_(program), files_(files), diagnostics_(diagnostics), index_(function) {}
  Result<Graph> check();

 private:
  Status header();
  Status input(const MilPort& port);
  Status statement(const MilStatement& statement);
  Status constant(const MilStatement& statement);
  Result<GraphValue> literal(const MilLiteral& literal, const std::string& where);
  Status arguments(MilStatement* statement, const OpContext& context);
  Status operation(MilStatement statement);
  Status outputs();
  Status port(int32_t value, const char* kind);
  Status port_list(const std::vector<int32_t>& declared, const char* kind, std::vector<int32_t>* bound);
  Status activation_shape(const MilTensorType& type, const std::string& where);
  Status limits();
  Status define(const std::string& name, GraphValue value, uint32_t line);
  void count_flops(const GraphOp& op);

  const MilProgram& program_;
  const WeightFiles& files_;
  Diagnostics& diagnostics_;
  const size_t index_;
  const MilFunction* function_ = nullptr;
  Graph graph_;
  std::unordered_map<std::string, int32_t> names_;
  std::map<std::string, bool, std::less<>> files_used_;
};

Status Checker::header() {
  if (program_.version != "1.0" && program_.version != "1.3") {
    return fail(rule_error(Rule::kProgramVersion, fmt::format("program({}); 1.0 or 1.3", program_.version)));
  }
  if (!program_.has_build_info) return fail(rule_error(Rule::kBuildInfo, "there is no buildInfo after program(...)"));
  if (program_.typed_build_info) {
    BATON_OK(diagnostics_.report(Rule::kBuildInfoTyped,
                                 "strings of buildInfo with types of their own; every program known to run has them "
                                 "bare: {{\"coremlc-version\", \"3505.4.1\"}}"));
  }
  // Several functions are the procedures of a bank: any names, in ascending order so that both ways of counting them
  // agree.
  const std::vector<MilFunction>& functions = program_.functions;
  if (index_ >= functions.size() || (functions.size() == 1 && functions[0].name != "main")) {
    return fail(rule_error(Rule::kFunctionName, "a program has one function, main, or several"));
  }
  for (size_t i = 0; index_ == 0 && i + 1 < functions.size(); ++i) {
    for (size_t j = i + 1; j < functions.size(); ++j) {
      if (functions[i].name == functions[j].name)
        return fail(rule_error(Rule::kFunctionName, fmt::format("two functions are called '{}'", functions[i].name)));
    }
    if (functions[i].name > functions[i + 1].name) {
      BATON_OK(diagnostics_.report(Rule::kFunctionOrder,
                                   fmt::format("'{}' stands before '{}': the index of a function may be its place in "
                                               "the text or among the names",
                                               functions[i].name, functions[i + 1].name)));
    }
  }
  function_ = &functions[index_];
  if (std::find(kOpsets.begin(), kOpsets.end(), function_->opset) == kOpsets.end()) {
    return fail(rule_error(Rule::kOpset, fmt::format("opset '{}'; ios15 to ios18", function_->opset)));
  }
  const bool first = program_.version == "1.0";
  if (const uint32_t line = first ? program_.dialect2_line : program_.dialect1_line; line != 0) {
    return diagnostics_.report(Rule::kDialect, fmt::format("line {}: scalars of program({}) are written {}", line,
                                                           program_.version, first ? "tensor<T, []>(v)" : "T(v)"));
  }
  return {};
}

Status Checker::define(const std::string& name, GraphValue value, uint32_t line) {
  value.name = name;
  if (!names_.emplace(name, static_cast<int32_t>(graph_.values.size())).second) {
    return fail(rule_error(Rule::kNameDuplicate, fmt::format("line {}: '{}' is already defined", line, name)));
  }
  graph_.values.push_back(std::move(value));
  return {};
}

Status Checker::activation_shape(const MilTensorType& type, const std::string& where) {
  const size_t rank = type.dims.size();
  if (rank > 5) return fail(rule_error(Rule::kRank, fmt::format("{}: rank {}; at most 5", where, rank)));
  if (rank != 4) BATON_OK(diagnostics_.report(Rule::kRankFour, fmt::format("{}: rank {}; use 4", where, rank)));
  for (size_t i = 0; i < rank; ++i) {
    const int64_t most = i + 2 >= rank ? kInnerDimMax : kOuterDimMax;
    if (type.dims[i] < 0)
      return fail(rule_error(Rule::kDynamicShape, fmt::format("{}: dim {} is not a number", where, i)));
    if (type.dims[i] > most) {
      return fail(
          rule_error(Rule::kDimension, fmt::format("{}: dim {} is {}; at most {}", where, i, type.dims[i], most)));
    }
  }
  if (element_count(type.dims).value_or(kActivationBytesMax) >= kActivationBytesMax) {
    return fail(rule_error(Rule::kActivationsTooLarge, fmt::format("{}: {}", where, to_string(type))));
  }
  return {};
}

Status Checker::input(const MilPort& port) {
  const std::string where = fmt::format("line {}: input '{}'", port.line, port.name);
  BATON_OK(activation_shape(port.type, where));
  GraphValue value;
  value.type = port.type;
  value.is_input = true;
  return define(port.name, std::move(value), port.line);
}

// A literal as a constant value: numbers, strings, or checked bytes of a weight file.
Result<GraphValue> Checker::literal(const MilLiteral& literal, const std::string& where) {
  GraphValue value;
  value.type = literal.type;
  value.is_const = true;
  for (const int64_t dim : literal.type.dims) {
    if (dim < 0) return fail(rule_error(Rule::kDynamicShape, where + ": a constant of unknown shape"));
    if (dim > kOuterDimMax) {
      return fail(rule_error(Rule::kDimension, fmt::format("{}: {}; at most {}", where, dim, kOuterDimMax)));
    }
  }
  if (literal.type.dims.size() > 5) {
    return fail(rule_error(Rule::kRank, fmt::format("{}: rank {}; at most 5", where, literal.type.dims.size())));
  }
  value.numbers = literal.numbers;
  value.strings = literal.strings;
  if (!literal.in_file) {
    if (element_count(literal.type.dims) == literal.numbers.size() + literal.strings.size()) return value;
    return fail(
        rule_error(Rule::kParameterType, fmt::format("{}: not the values of {}", where, to_string(literal.type))));
  }
  const auto file = files_.find(literal.path);
  if (file == files_.end()) {
    return fail(rule_error(Rule::kWeightKey, fmt::format("{}: no weights were given for '{}'", where, literal.path)));
  }
  bool& used = files_used_[literal.path];
  if (!used) BATON_OK(check_blob_file(file->second, literal.path, diagnostics_));
  used = true;
  BATON_TRY(value.file_data, read_blob(file->second, literal.offset, literal.type, literal.path, diagnostics_));
  graph_.weight_bytes += value.file_data.size();
  return value;
}

Status Checker::constant(const MilStatement& statement) {
  const std::string where = fmt::format("line {}: const '{}'", statement.line, statement.name);
  if (!statement.arguments.empty())
    return fail(rule_error(Rule::kParameterUnknown, where + ": a const takes no arguments"));
  const MilLiteral* found = nullptr;
  for (const MilArgument& attribute : statement.attributes) {
    if (attribute.parameter == "val") {
      found = &attribute.literal;
    } else if (attribute.parameter != "name" && attribute.kind != MilArgument::Kind::kNote) {
      return fail(rule_error(Rule::kParameterUnknown, fmt::format("{}: attribute '{}'", where, attribute.parameter)));
    }
  }
  if (found == nullptr) return fail(rule_error(Rule::kParameterMissing, where + ": 'val' is missing"));
  if (!(found->type == statement.type)) {
    return fail(rule_error(Rule::kResultType, fmt::format("{}: declared {}, the value is {}", where,
                                                          to_string(statement.type), to_string(found->type))));
  }
  BATON_TRY(GraphValue value, literal(*found, where));
  return define(statement.name, std::move(value), statement.line);
}

// Names exist. A value written into the call is refused in strict mode; else it becomes a constant of its own.
Status Checker::arguments(MilStatement* statement, const OpContext& context) {
  for (MilArgument& argument : statement->arguments) {
    if (argument.kind == MilArgument::Kind::kLiteral) {
      BATON_OK(
          context.report(Rule::kInlineLiteral, fmt::format("'{}' is a value; pass a named const", argument.parameter)));
      BATON_TRY(GraphValue value, literal(argument.literal, context.where()));
      argument.kind = MilArgument::Kind::kName;
      argument.names = {statement->name + "." + argument.parameter};
      BATON_OK(define(argument.names[0], std::move(value), statement->line));
    }
    for (const std::string& name : argument.names) {
      const auto found = names_.find(name);
      if (found == names_.end()) return context.refuse(Rule::kNameUndefined, fmt::format("'{}' is not defined", name));
      ++graph_.values[static_cast<size_t>(found->second)].uses;
    }
  }
  return {};
}

Status Checker::operation(MilStatement statement) {
  const OpContext context{graph_, diagnostics_, names_, statement, function_->opset};
  BATON_OK(check_forbidden(context));
  BATON_OK(arguments(&statement, context));
  for (const MilArgument& attribute : statement.attributes) {
    if (attribute.kind == MilArgument::Kind::kNote || attribute.parameter == "name") continue;
    if (statement.op != "constexpr_affine_dequantize" && is_parameter(statement.op, attribute.parameter))
      return context.refuse(Rule::kParameterUnknown, "parameters belong in parentheses");
  }
  MilTensorType type;
  std::vector<uint16_t> computed;
  BATON_TRY(std::optional<GraphOp> op, check_op(context, &type, &computed));
  GraphValue value;
  value.type = type;
  if (op) {
    BATON_OK(activation_shape(type, context.where()));
    if (!(type == statement.type)) {
      return context.refuse(Rule::kResultType,
                            fmt::format("declared {}, computed {}", to_string(statement.type), to_string(type)));
    }
    op->out = static_cast<int32_t>(graph_.values.size());
    count_flops(*op);
    graph_.activation_bytes += element_count(type.dims).value_or(0) * element_bytes(type.type);
    graph_.ops.push_back(std::move(*op));
  } else {
    if (!(type == statement.type)) {
      return context.refuse(Rule::kResultType,
                            fmt::format("declared {}, computed {}", to_string(statement.type), to_string(type)));
    }
    value.is_const = true;
    value.computed = std::move(computed);
  }
  return define(statement.name, std::move(value), statement.line);
}

Status Checker::statement(const MilStatement& statement) {
  const std::string where = fmt::format("line {}: {} '{}'", statement.line, statement.op, statement.name);
  const auto name = std::find_if(statement.attributes.begin(), statement.attributes.end(),
                                 [](const MilArgument& attribute) { return attribute.parameter == "name"; });
  if (name == statement.attributes.end() || name->literal.strings.size() != 1) {
    BATON_OK(diagnostics_.report(Rule::kOpName, where + ": the attribute 'name' is missing"));
  }
  for (const int64_t dim : statement.type.dims) {
    if (dim < 0) return fail(rule_error(Rule::kDynamicShape, where + ": a dimension is not a number"));
  }
  if (statement.op == "const") return constant(statement);
  if (statement.op != "constexpr_affine_dequantize") return operation(statement);
  // Up to opset ios17 its operands are attributes: they become constants of their own.
  MilStatement copy = statement;
  for (const MilArgument& attribute : statement.attributes) {
    if (attribute.parameter == "name" || attribute.kind == MilArgument::Kind::kNote) continue;
    BATON_TRY(GraphValue value, literal(attribute.literal, where));
    const std::string hidden = statement.name + "." + attribute.parameter;
    BATON_OK(define(hidden, std::move(value), statement.line));
    MilArgument argument;
    argument.parameter = attribute.parameter;
    argument.names = {hidden};
    copy.arguments.push_back(std::move(argument));
  }
  return operation(copy);
}

Status Checker::port(int32_t index, const char* kind) {
  const GraphValue& value = graph_.values[static_cast<size_t>(index)];
  const std::string where = fmt::format("{} '{}'", kind, value.name);
  const bool number = value.type.type == MilType::kFp16 || value.type.type == MilType::kFp32;
  if (!number || value.type.dims.empty()) {
    return fail(rule_error(Rule::kPortType, fmt::format("{} is {}; fp16", where, to_string(value.type))));
  }
  if (value.type.type == MilType::kFp32) BATON_OK(diagnostics_.report(Rule::kPortFp32, where + " is fp32; use fp16"));
  const uint64_t row = static_cast<uint64_t>(value.type.dims.back()) * element_bytes(value.type.type);
  if (row % 64 != 0) {
    return diagnostics_.report(Rule::kRowPitch,
                               fmt::format("{} has rows of {} bytes; a multiple of 64 leaves no question "
                                           "how rows are laid out",
                                           where, row));
  }
  return {};
}

// Ports are bound by ascending byte order of their names, whatever order declares them.
Status Checker::port_list(const std::vector<int32_t>& declared, const char* kind, std::vector<int32_t>* bound) {
  *bound = declared;
  const auto by_name = [&](int32_t a, int32_t b) {
    return graph_.values[static_cast<size_t>(a)].name < graph_.values[static_cast<size_t>(b)].name;
  };
  std::stable_sort(bound->begin(), bound->end(), by_name);
  for (const int32_t index : declared) BATON_OK(port(index, kind));
  if (declared.size() > 1)
    diagnostics_.warn(Rule::kManyPorts, fmt::format("{} {}s; one is safest", declared.size(), kind));
  if (*bound != declared) {
    BATON_OK(
        diagnostics_.report(Rule::kPortOrder, fmt::format("{}s are declared in another order than that of their names, "
                                                          "in which they are bound",
                                                          kind)));
  }
  for (const int32_t index : declared) {
    if (port_bytes(graph_.type(index)) != port_bytes(graph_.type(declared[0]))) {
      BATON_OK(diagnostics_.report(Rule::kPortSizes, fmt::format("{}s of different sizes", kind)));
      break;
    }
  }
  return {};
}

Status Checker::outputs() {
  std::vector<int32_t> inputs, declared;
  for (const MilPort& port : function_->inputs) inputs.push_back(names_.at(port.name));
  for (const std::string& name : function_->outputs) {
    const auto found = names_.find(name);
    if (found == names_.end()) {
      return fail(rule_error(Rule::kNameUndefined, fmt::format("the output '{}' is not defined", name)));
    }
    if (std::find(declared.begin(), declared.end(), found->second) != declared.end()) {
      return fail(rule_error(Rule::kNameDuplicate, fmt::format("the output '{}' is named twice", name)));
    }
    GraphValue& value = graph_.values[static_cast<size_t>(found->second)];
    ++value.uses;
    if (value.is_input) {
      BATON_OK(diagnostics_.report(Rule::kOutputIsInput, fmt::format("the output '{}' is an input", name)));
    }
    if (value.is_const) {
      BATON_OK(diagnostics_.report(Rule::kOutputIsConst, fmt::format("the output '{}' is a constant", name)));
      BATON_OK(activation_shape(value.type, fmt::format("output '{}'", name)));
    }
    declared.push_back(found->second);
  }
  if (inputs.empty() || declared.empty()) {
    return fail(rule_error(Rule::kSyntax, "a program has at least one input and one output"));
  }
  BATON_OK(port_list(inputs, "input", &graph_.inputs));
  return port_list(declared, "output", &graph_.outputs);
}

Status Checker::limits() {
  for (const int32_t index : graph_.inputs) graph_.activation_bytes += port_bytes(graph_.type(index));
  const uint64_t weights = graph_.weight_bytes, activations = graph_.activation_bytes;
  if (weights > 128 * kMegabyte) {
    BATON_OK(
        diagnostics_.report(Rule::kWeightsTooLarge, fmt::format("{} bytes of weights; split the kernel", weights)));
  } else if (weights > 64 * kMegabyte) {
    diagnostics_.warn(Rule::kWeightsLarge, fmt::format("{} bytes of weights; 64 MB is proven", weights));
  }
  if (activations > kActivationBytesMax) {
    return fail(rule_error(Rule::kActivationsTooLarge, fmt::format("{} bytes of activations", activations)));
  }
  if (activations > 16 * kMegabyte) {
    diagnostics_.warn(Rule::kActivationsLarge,
                      fmt::format("{} bytes of activations; about 16 MB stay on chip", activations));
  }
  for (const GraphValue& value : graph_.values) {
    if (value.is_const && value.uses == 0) {
      diagnostics_.warn(Rule::kConstUnused, fmt::format("const '{}' is not used", value.name));
    }
  }
  for (const auto& [path, bytes] : files_) {
    if (!files_used_.contains(path) && program_.functions.size() == 1)
      diagnostics_.warn(Rule::kWeightKeyUnused, fmt::format("'{}' is not in the text", path));
  }
  return {};
}

void Checker::count_flops(const GraphOp& op) {
  // `out` is not in values yet: sizes come from the operands.
  if (op.code == OpCode::kConv) {
    const auto &x = graph_.type(op.inputs[0]).dims, &w = graph_.type(op.inputs[1]).dims;
    const int64_t positions = x[0] * ((x[2] + op.list[0] - 1) / op.list[0]) * ((x[3] + op.list[1] - 1) / op.list[1]);
    graph_.flops += 2 * element_count(w).value_or(0) * static_cast<uint64_t>(positions);
  } else if (op.code == OpCode::kMatmul || op.code == OpCode::kLinear) {
    const auto &x = graph_.type(op.inputs[0]).dims, &y = graph_.type(op.inputs[1]).dims;
    const bool last = op.code == OpCode::kLinear || op.transpose_y;
    const int64_t columns = last ? y[y.size() - 2] : y.back();
    graph_.flops += 2 * element_count(x).value_or(0) * static_cast<uint64_t>(columns);
  }
}

Result<Graph> Checker::check() {
  BATON_OK(header());
  for (const MilPort& port : function_->inputs) BATON_OK(input(port));
  for (const MilStatement& next : function_->statements) BATON_OK(statement(next));
  BATON_OK(outputs());
  BATON_OK(limits());
  return std::move(graph_);
}

}  // namespace

uint64_t port_row_bytes(const MilTensorType& type) {
  const uint64_t row = static_cast<uint64_t>(type.dims.empty() ? 1 : type.dims.back()) * element_bytes(type.type);
  return (row + 63) / 64 * 64;
}

uint64_t port_bytes(const MilTensorType& type) {
  uint64_t rows = 1;
  for (size_t i = 0; i + 1 < type.dims.size(); ++i) rows *= static_cast<uint64_t>(type.dims[i]);
  return rows * port_row_bytes(type);
}

Result<Graph> check_mil(const MilProgram& program, const WeightFiles& files, Diagnostics& diagnostics,
                        size_t function) {
  return Checker(program, files, diagnostics, function).check();
}

}  // namespace baton::apple

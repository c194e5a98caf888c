// From the package's program to the checker's form, and values in and out at the rows of ports.
#include "baton/unit/apple/mlpackage/interpreter.h"

#include <fmt/format.h>

#include <cstring>

namespace baton::apple {
namespace {

// The checker infers types and refuses what does not fit; the rules of the in-memory path are warnings in this mode.
Result<Graph> graph_of(const Package& package) {
  BATON_OK(check_package(package.spec));
  MilProgram program;
  program.version = "1.0";
  program.has_build_info = true;
  program.functions = {package.spec.main};
  program.functions[0].opset = "ios16";
  WeightFiles files;
  files.emplace(std::string(kWeightFile), package.weights.bytes());
  Diagnostics diagnostics(Mode::kLenient);
  auto graph = check_mil(program, files, diagnostics);
  if (!graph) return fail(std::move(graph).error().in(package.folder.string()));
  return graph;
}

// Dense rows to rows at the pitch of ports, and back.
void spread_rows(const std::vector<uint16_t>& from, const MilTensorType& type, std::vector<std::byte>* to) {
  const size_t width = static_cast<size_t>(type.dims.back()), pitch = port_row_bytes(type);
  to->assign(port_bytes(type), std::byte{0});
  for (size_t row = 0; row * width < from.size(); ++row)
    std::memcpy(to->data() + row * pitch, from.data() + row * width, 2 * width);
}

void gather_rows(const std::vector<std::byte>& from, const MilTensorType& type, std::vector<uint16_t>* to) {
  const size_t width = static_cast<size_t>(type.dims.back()), pitch = port_row_bytes(type);
  to->resize(static_cast<size_t>(element_count(type.dims).value_or(0)));
  for (size_t row = 0; row * width < to->size(); ++row)
    std::memcpy(to->data() + row * width, from.data() + row * pitch, 2 * width);
}

}  // namespace

PackageInterpreter::PackageInterpreter(Package package, Graph graph, uint32_t threads, const Numerics& numerics)
    : package_(std::move(package)), graph_(std::move(graph)), pool_(threads) {
  runner_ = std::make_unique<Runner>(graph_, numerics);
  scratch_.resize(runner_->scratch_floats());
}

Result<std::unique_ptr<PackageInterpreter>> PackageInterpreter::open(const std::filesystem::path& folder,
                                                                     uint32_t threads, const Numerics& numerics) {
  BATON_TRY(Package package, open_package(folder));
  BATON_TRY(Graph graph, graph_of(package));
  return std::unique_ptr<PackageInterpreter>(
      new PackageInterpreter(std::move(package), std::move(graph), threads, numerics));
}

Result<HalfArrays> PackageInterpreter::predict(const HalfArrays& inputs) {
  std::vector<std::vector<std::byte>> in(graph_.inputs.size()), out(graph_.outputs.size());
  std::vector<std::span<const std::byte>> in_spans;
  std::vector<std::span<std::byte>> out_spans;
  for (size_t i = 0; i < in.size(); ++i) {
    const GraphValue& value = graph_.values[static_cast<size_t>(graph_.inputs[i])];
    const auto found = inputs.find(value.name);
    if (found == inputs.end()) return fail(Code::kInvalidInput, fmt::format("input '{}' is missing", value.name));
    if (found->second.size() != element_count(value.type.dims)) {
      return fail(Code::kInvalidInput,
                  fmt::format("input '{}' has {} values, {} takes {}", value.name, found->second.size(),
                              to_string(value.type), element_count(value.type.dims).value_or(0)));
    }
    spread_rows(found->second, value.type, &in[i]);
    in_spans.emplace_back(in[i]);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].resize(port_bytes(graph_.type(graph_.outputs[i])));
    out_spans.emplace_back(out[i]);
  }
  Diagnostics diagnostics(Mode::kLenient);
  runner_->run(in_spans, out_spans, scratch_, pool_, diagnostics);
  for (const Warning& warning : diagnostics.warnings()) {
    const bool undefined =
        warning.rule == Rule::kNotANumber || warning.rule == Rule::kUndefined || warning.rule == Rule::kOverflow;
    if (undefined) return fail(Code::kDevice, fmt::format("{}: {}", package_.folder.filename().string(), warning.text));
  }
  HalfArrays outputs;
  for (size_t i = 0; i < out.size(); ++i) {
    const GraphValue& value = graph_.values[static_cast<size_t>(graph_.outputs[i])];
    gather_rows(out[i], value.type, &outputs[value.name]);
  }
  return outputs;
}

}  // namespace baton::apple

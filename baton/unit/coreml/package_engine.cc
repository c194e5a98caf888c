// Names, sums of shares, and the interpreter as an engine.
#include "baton/unit/coreml/package_engine.h"

#include <fmt/format.h>

#include <array>

#include "baton/unit/apple/mlpackage/interpreter.h"

namespace baton::coreml {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kUnitNames = {"cpu", "gpu", "all", "ane"};

class InterpretedPackage final : public LoadedPackage {
 public:
  explicit InterpretedPackage(std::unique_ptr<apple::PackageInterpreter> interpreter)
      : interpreter_(std::move(interpreter)) {
    shares_.unknown = "emulated: no device of a Mac is here";
  }
  Result<apple::HalfArrays> predict(const apple::HalfArrays& inputs) override { return interpreter_->predict(inputs); }
  const DeviceShares& shares() const override { return shares_; }

 private:
  std::unique_ptr<apple::PackageInterpreter> interpreter_;
  DeviceShares shares_;
};

class InterpreterEngine final : public PackageEngine {
 public:
  explicit InterpreterEngine(uint32_t threads) : threads_(threads) {}
  std::string_view name() const override { return "interpreter"; }
  bool emulated() const override { return true; }
  std::string system_version() const override { return "interpreter 1"; }
  bool has_neural_engine() const override { return false; }
  Status compile(const fs::path& package, const fs::path& compiled) override {
    std::error_code error;
    fs::copy(package, compiled, fs::copy_options::recursive, error);
    if (!error) return {};
    return fail(Code::kInvalidInput,
                fmt::format("{}: cannot copy the package there: {}", compiled.string(), error.message()));
  }
  Result<std::unique_ptr<LoadedPackage>> load(const fs::path& compiled, const apple::PackageSpec&) override {
    auto interpreter = apple::PackageInterpreter::open(compiled, threads_);
    if (!interpreter) {
      // The rules begin with the words of the system; here no system has said anything.
      Error error = std::move(interpreter).error();
      const std::string_view message = error.message;
      const size_t rule = message.find("[");
      const std::string_view detail = message.substr(rule == message.npos ? 0 : rule);
      return fail(error.code, fmt::format("the interpreter refuses {}: {}", compiled.filename().string(), detail));
    }
    return std::make_unique<InterpretedPackage>(std::move(*interpreter));
  }

 private:
  const uint32_t threads_;
};

}  // namespace

std::string_view to_string(ComputeUnits units) { return kUnitNames[static_cast<size_t>(units)]; }

Result<ComputeUnits> compute_units_by_name(std::string_view name) {
  for (size_t i = 0; i < kUnitNames.size(); ++i) {
    if (kUnitNames[i] == name) return static_cast<ComputeUnits>(i);
  }
  return fail(Code::kInvalidInput,
              fmt::format("'{}' is not a choice of compute units; there are: ane, all, gpu, cpu", name));
}

void add_shares(const DeviceShares& one, DeviceShares* sum) {
  if (one.operations == 0) {
    if (sum->operations == 0) sum->unknown = one.unknown;
    return;
  }
  const auto before = static_cast<double>(sum->operations), own = static_cast<double>(one.operations);
  const auto mean = [&](double a, double b) { return (a * before + b * own) / (before + own); };
  sum->neural_engine = mean(sum->neural_engine, one.neural_engine);
  sum->gpu = mean(sum->gpu, one.gpu);
  sum->cpu = mean(sum->cpu, one.cpu);
  sum->by_cost = sum->operations == 0 ? one.by_cost : sum->by_cost && one.by_cost;
  sum->operations += one.operations;
  sum->unknown.clear();
}

std::unique_ptr<PackageEngine> interpreter_engine(uint32_t threads) {
  return std::make_unique<InterpreterEngine>(threads);
}

}  // namespace baton::coreml

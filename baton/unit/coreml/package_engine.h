// What runs Core ML packages: the system's framework on a Mac, or the interpreter of this repository anywhere, which is
// an emulation and says so. The unit, its cache and its executor know only this page.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "baton/base/status.h"
#include "baton/unit/apple/mlpackage/package.h"

namespace baton::coreml {

// The values are those of MLComputeUnits.
enum class ComputeUnits : uint8_t { kCpuOnly = 0, kCpuAndGpu = 1, kAll = 2, kCpuAndNeuralEngine = 3 };
// "cpu", "gpu", "all", "ane".
std::string_view to_string(ComputeUnits units);
Result<ComputeUnits> compute_units_by_name(std::string_view name);
inline bool asks_for_neural_engine(ComputeUnits units) {
  return units == ComputeUnits::kAll || units == ComputeUnits::kCpuAndNeuralEngine;
}

// Where a plan puts the work: parts of 1, weighted by estimated cost, or by the number of operations where the plan has
// no costs. A plan is a prediction, not a measurement.
struct DeviceShares {
  double neural_engine = 0, gpu = 0, cpu = 0;
  uint64_t operations = 0;  // that the plan names a device for
  bool by_cost = false;
  std::string unknown;  // why there is no plan; empty when there is one
};
// Adds one program's shares, weighted by its number of operations.
void add_shares(const DeviceShares& one, DeviceShares* sum);

// One compiled program, loaded. Used from one thread at a time.
class LoadedPackage {
 public:
  virtual ~LoadedPackage() = default;
  // Every input of the specification by name; others are ignored.
  virtual Result<apple::HalfArrays> predict(const apple::HalfArrays& inputs) = 0;
  virtual const DeviceShares& shares() const = 0;
};

class PackageEngine {
 public:
  virtual ~PackageEngine() = default;
  virtual std::string_view name() const = 0;
  virtual bool emulated() const = 0;
  // System version and build: compiled programs are valid for one only.
  virtual std::string system_version() const = 0;
  // Whether the machine has a Neural Engine, as far as the system tells.
  virtual bool has_neural_engine() const = 0;
  // Puts the compiled form of `package` at `compiled`, which does not exist.
  virtual Status compile(const std::filesystem::path& package, const std::filesystem::path& compiled) = 0;
  // `spec` tells names and shapes.
  virtual Result<std::unique_ptr<LoadedPackage>> load(const std::filesystem::path& compiled,
                                                      const apple::PackageSpec& spec) = 0;
};

// The interpreter. `threads` 0: all cores.
std::unique_ptr<PackageEngine> interpreter_engine(uint32_t threads);

}  // namespace baton::coreml

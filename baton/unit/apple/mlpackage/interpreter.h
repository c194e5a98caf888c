// Runs a Core ML package on the host: the program is checked and executed by the same code as those of the engine's
// emulator, every result in fp16 with f32 sums, without the engine's rules for ports and without its NaN habits: a NaN
// or an infinity is an error. A model of what the system's framework computes, never a measurement of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "baton/base/thread_pool.h"
#include "baton/unit/apple/mil_graph.h"
#include "baton/unit/apple/mlpackage/package.h"
#include "baton/unit/apple/runner.h"

namespace baton::apple {

// Used from one thread at a time. Move by unique_ptr.
class PackageInterpreter {
 public:
  // `numerics`: what the multipliers do at their edges. By default nothing is lost, as on the CPU and the latest chips;
  // tests run the profiles of those that flush.
  static Result<std::unique_ptr<PackageInterpreter>> open(const std::filesystem::path& folder, uint32_t threads,
                                                          const Numerics& numerics = kKeepsSubnormals);
  static constexpr Numerics kKeepsSubnormals = {Profile::kModern, false, false};

  const PackageSpec& spec() const { return package_.spec; }
  const Graph& graph() const { return graph_; }

  // Every input of the spec by name with as many values as its shape. kInvalidInput names what is missing; kDevice when
  // the arithmetic left fp16's range.
  Result<HalfArrays> predict(const HalfArrays& inputs);
  // Largest finite magnitude so far.
  float abs_max() const { return runner_->abs_max(); }

 private:
  PackageInterpreter(Package package, Graph graph, uint32_t threads, const Numerics& numerics);

  Package package_;
  Graph graph_;
  std::unique_ptr<Runner> runner_;
  std::vector<float> scratch_;
  ThreadPool pool_;
};

}  // namespace baton::apple

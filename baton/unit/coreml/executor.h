// Prefill through packages: a prompt is cut into pieces of the lengths that are exported, the first from an empty
// state, the others from the state before them. Decode is not here: another unit does it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "baton/unit/coreml/package_cache.h"
#include "baton/unit/host/host_state.h"
#include "baton/unit/unit.h"

namespace baton::coreml {

// Below this part of the plan on the Neural Engine, a placement that asked for it is called a mismatch.
inline constexpr double kNeuralEngineShareMin = 0.5;

struct ExecutorOptions {
  std::filesystem::path cache;
  ComputeUnits units = ComputeUnits::kAll;
  std::vector<int32_t> seqs = {64, 256, 512};  // ascending
  int32_t chunks = 0;                          // 0: by size
};

class CoreMlExecutor final : public Executor {
 public:
  // Borrows `engine`. Exports, compiles and loads the packages of the shortest length that begin at an empty state: a
  // model that cannot run this way is refused here. The other lengths, and those that go on from a state, come when a
  // prompt first needs them.
  static Result<std::unique_ptr<CoreMlExecutor>> load(std::shared_ptr<const Model> model, PackageEngine& engine,
                                                      const ExecutorOptions& options);

  const Model& model() const override { return *model_; }
  const StateShape& shape() const override { return states_.shape(); }
  uint64_t state_bytes(uint64_t tokens) const override { return states_.bytes_for(tokens); }
  std::optional<StateMemory> state_memory() const override { return states_.memory(); }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override { return states_.make(tokens_max); }
  // Seat by seat, in pieces of the lengths that are exported. Decodes are kUnsupported: the message says whom to ask.
  Status step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) override;
  Placement placement() const override;
  std::string arithmetic() const override;

  const CacheEvents& cache_events() const { return cache_.events(); }
  // What the plan says about all packages that are loaded.
  DeviceShares shares() const;

 private:
  using Packages = std::vector<std::unique_ptr<LoadedPackage>>;  // by chunk

  CoreMlExecutor(std::shared_ptr<const Model> model, PackageEngine& engine, ExecutorOptions options,
                 std::vector<apple::LayerRange> chunks);
  apple::PrefillShape shape_for(uint64_t position, size_t tokens) const;
  Result<Packages*> packages_for(const apple::PrefillShape& shape);
  std::string cache_note() const;
  Status run(const Seat& seat, std::span<float> out, const StepContext& context);
  Status piece(host::HostState& state, std::span<const int32_t> tokens, std::span<float> hidden);

  std::shared_ptr<const Model> model_;
  PackageEngine& engine_;
  const ExecutorOptions options_;
  const std::vector<apple::LayerRange> chunks_;
  host::StatePool states_;
  PackageCache cache_;
  std::map<std::pair<int32_t, int32_t>, Packages> packages_;  // by length and past
};

}  // namespace baton::coreml

// The cpu executor: every step of a model's plan on the host's kernels, in chunks of a prefill or one decode step.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "baton/base/affinity.h"
#include "baton/base/thread_pool.h"
#include "baton/unit/host/pass.h"
#include "baton/unit/unit.h"

namespace baton::cpu {

// Tokens per pass over the weights in prefill. Matrix tiles are so quick that unpacking the weights would show.
inline int64_t chunk_tokens(const host::Kernels& kernels) {
  return host::form_of(kernels, host::Packing::kQ8_0, true) == host::Form::kTiles ? 512 : 256;
}
inline constexpr uint32_t kStepTokensMin = 64;    // fewer take nearly as long: all weights are read for them
inline constexpr uint32_t kPrefillSeatsMax = 16;  // each has logits to make and a state to read of its own
inline constexpr uint32_t kDecodeSeatsMax = host::kRunsMax;

class CpuExecutor final : public Executor {
 public:
  // Quick; weights are packed beside the first passes. Errors: kOutOfMemory, kUnsupported (a shape the kernels cannot
  // do, with the weight's name).
  // `cores`: where its threads are kept, and the caller's for as long as a call takes; empty: anywhere. `kv`: type of
  // keys and values.
  static Result<std::unique_ptr<Executor>> load(std::shared_ptr<const Model> model, const host::Kernels& kernels,
                                                uint32_t threads, std::vector<uint32_t> cores = {},
                                                DType kv = DType::kF16, host::ExpertRoom experts = {});

  const Model& model() const override { return *model_; }
  const StateShape& shape() const override { return states_.shape(); }
  uint64_t state_bytes(uint64_t tokens) const override { return states_.bytes_for(tokens); }
  std::optional<StateMemory> state_memory() const override { return states_.memory(); }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override { return states_.make(tokens_max); }
  // Seats that prefill are cut into passes; up to kPrefillSeatsMax share one, and those that decode ride with the last
  // of them. Each gets the bits of a step of its own.
  Status step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) override;
  // Draws in its threads.
  Status step_on(std::span<const Seat> seats, std::span<float> out, const StepLimits& limits,
                 const StepContext& context) override;
  Result<std::unique_ptr<SequenceState>> fork(const SequenceState& from, uint64_t position) override {
    return static_cast<const host::HostState&>(from).fork(position);
  }
  Status rewind(SequenceState& state, uint64_t position) override {
    return static_cast<host::HostState&>(state).rewind(position);
  }
  Status settle() override;
  Placement placement() const override;
  std::vector<ExpertLoad> expert_loads() const override { return pass_->expert_loads(); }
  std::string arithmetic() const override;

 private:
  CpuExecutor(std::shared_ptr<const Model> model, const host::Kernels& kernels, uint32_t threads,
              std::vector<uint32_t> cores, DType kv);
  void pack_some();
  // The caller works too: it is kept where the pool's threads are.
  struct Pinned : PinnedThread {
    explicit Pinned(CpuExecutor& executor);
  };
  // All steps of a pass. `ended`: of each run its seat, where it ends with it, else SIZE_MAX.
  Status run_all(const StepContext& context);
  Status run_watched(std::span<const host::RunInput> runs, std::span<const size_t> ended, const StepContext& context);

  const std::shared_ptr<const Model> model_;
  const host::Kernels& kernels_;
  const int64_t rows_max_;  // of a pass, but for those that decode
  const DType kv_;
  host::StatePool states_;
  ThreadPool pool_;
  std::unique_ptr<host::Weights> weights_;
  std::unique_ptr<host::Pass> pass_;
  uint64_t passes_ = 0;
  std::atomic<bool> strayed_{false};  // a caller could not be kept on the cores
};

}  // namespace baton::cpu

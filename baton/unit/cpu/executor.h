// The cpu executor: every step of a model's plan on the host's kernels, in chunks of a prefill or one decode step.
#pragma once

#include <memory>

#include "baton/base/thread_pool.h"
#include "baton/unit/host/pass.h"
#include "baton/unit/unit.h"

namespace baton::cpu {

inline constexpr int64_t kChunkTokens = 256;  // tokens per pass over the weights in prefill
inline constexpr uint32_t kDecodeSlotsMax = host::kRunsMax;

class CpuExecutor final : public Executor {
 public:
  // Packs the weights; slow. Errors: kOutOfMemory, kUnsupported (a shape the kernels cannot do, with the weight's
  // name).
  static Result<std::unique_ptr<Executor>> load(std::shared_ptr<const Model> model, const host::Kernels& kernels,
                                                uint32_t threads);

  const Model& model() const override { return *model_; }
  const Layout& layout() const override { return layout_; }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override;
  Result<std::unique_ptr<SequenceState>> clone(const SequenceState& state) override;
  Status prefill(SequenceState& state, std::span<const int32_t> tokens, std::span<float> logits) override;
  Status decode(std::span<const DecodeSlot> slots) override;
  Estimate estimate(const WorkShape& work) const override;
  Placement placement() const override;

 private:
  CpuExecutor(std::shared_ptr<const Model> model, const host::Kernels& kernels, uint32_t threads);

  const std::shared_ptr<const Model> model_;
  const host::Kernels& kernels_;
  Layout layout_;
  ThreadPool pool_;
  std::unique_ptr<const host::Weights> weights_;
  std::unique_ptr<host::Pass> pass_;

  // What earlier calls took, for estimates.
  double prefill_ms_per_token_ = 0;
  double decode_ms_[kDecodeSlotsMax + 1] = {};
};

}  // namespace baton::cpu

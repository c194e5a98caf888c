// A model's weights in a card's memory: one allocation, filled at load through two buffers of pinned memory in turn, so
// that threads pack the next while the card copies the last.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baton/model/model.h"
#include "baton/unit/cuda/card.h"
#include "baton/unit/cuda/weight_plan.h"

namespace baton::cuda {

struct WeightOptions {
  uint32_t threads = 0;                         // that pack; 0: one for each core, 16 at most
  uint64_t staging_bytes = uint64_t{32} << 20;  // of each of the two buffers
  uint64_t spared_bytes = 0;                    // of the card's memory that must be free afterwards
  std::function<void(uint64_t done, uint64_t all)> on_progress = {};  // bytes; on the calling thread
};

class Weights {
 public:
  // `card` outlives it. Before anything is allocated: kUnsupported for shapes that no kernel takes (limits.h),
  // kOutOfMemory with the numbers where not all of it fits. Errors of the card.
  static Result<std::unique_ptr<Weights>> load(Card& card, std::shared_ptr<const Model> model,
                                               const WeightOptions& options = {});

  const Model& model() const { return *model_; }
  const WeightPlan& plan() const { return plan_; }
  // Empty of a weight that no op uses as a matrix; that of the first expert goes for all.
  Matrix matrix(WeightId id) const;
  // f32, zeros behind it up to a multiple of kPadding; 0 of a weight that no op uses as a vector.
  Address vector(WeightId id) const;
  // Of op kExperts and Op::kGates, kUps or kDowns: Instruction::expert_bytes, 0 where there is no such piece.
  std::array<uint64_t, kPieces> expert_strides(const Op& op, size_t which) const;
  uint64_t bytes() const { return memory_.bytes(); }

 private:
  Weights() = default;
  std::shared_ptr<const Model> model_;
  WeightPlan plan_;
  DeviceMemory memory_;
};

}  // namespace baton::cuda

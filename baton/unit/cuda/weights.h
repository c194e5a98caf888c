// A model's weights in a card's memory: one allocation, filled at load through a ring of buffers of pinned memory:
// threads read the file and pack into some, in order and without waiting for each other, while the card copies others.
//
// All is read from the file (MappedFile::copy), right into a buffer what is held as it is stored: pages of a mapping
// would have to come and go, and their going alone takes 30 to 45 ms a GiB, in which a link takes 0.4 to 2 GB.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baton/model/model.h"
#include "baton/unit/cuda/card.h"
#include "baton/unit/cuda/weight_plan.h"
#include "baton/unit/unit.h"

namespace baton::cuda {

inline constexpr size_t kUploadBuffers = 8;

struct WeightOptions {
  uint32_t threads = 0;                        // that pack; 0: one for each core, 16 at most
  uint64_t staging_bytes = uint64_t{4} << 20;  // of each of the kUploadBuffers: what a cache holds
  uint64_t spared_bytes = 0;                   // of the card's memory that must be free afterwards
  std::function<void(uint64_t done, uint64_t all)> on_progress = {};  // bytes; on the calling thread
};

// Packing: what the calling thread packed, and waited for others to pack, with fewer than two copies on their way.
// "weights 1.50 GB in 0.120 s, 12.5 GB/s (packing 0.040 s, waiting for copies 0.070 s; the link: 13.1 GB/s measured)".
std::string load_text(const WeightLoad& load);

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
  // Of op kExperts and Op::kGates, kUps or kDowns: Instruction::expert_bytes.
  uint64_t expert_stride(const Op& op, size_t which) const { return plan_.of(op.weights[which]).stride; }
  uint64_t bytes() const { return memory_.bytes(); }
  // How the load went, on an emulated card too.
  const WeightLoad& loaded() const { return loaded_; }

 private:
  Weights() = default;
  std::shared_ptr<const Model> model_;
  WeightPlan plan_;
  DeviceMemory memory_;
  WeightLoad loaded_;
};

}  // namespace baton::cuda

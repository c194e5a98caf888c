// What every pass over a model shares, made once at load: matrices packed for the kernels, f32 vectors, the plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "baton/base/thread_pool.h"
#include "baton/model/model.h"
#include "baton/unit/host/kernels.h"
#include "baton/unit/host/memory.h"
#include "baton/unit/host/plan.h"

namespace baton::host {

inline constexpr int32_t kTapsMax = 64;  // of a convolution

class Weights {
 public:
  // Slow. `packed[id]`: whether that matrix is multiplied here; the others are some device's. Errors: kOutOfMemory,
  // kUnsupported (a shape the kernels cannot do, with the weight's name). `unit` begins the messages.
  static Result<std::unique_ptr<const Weights>> load(std::shared_ptr<const Model> model, const Kernels& kernels,
                                                     const std::vector<bool>& packed, ThreadPool& pool,
                                                     std::string_view unit);

  const Model& model() const { return *model_; }
  const Program& program() const { return model_->program; }
  const Kernels& kernels() const { return kernels_; }
  const Plan& plan() const { return plan_; }
  // Norms, gates, frequency factors; convolutions as [taps, channels].
  const float* vector(WeightId id) const { return vectors_[static_cast<size_t>(id)]; }
  // Empty where the matrix is not packed.
  const Matrix& matrix(WeightId id) const { return matrices_[static_cast<size_t>(id)]; }
  // Angles per position, rotary / 2 of them, by index of plan().ropes.
  const std::vector<float>& frequencies(size_t rope) const { return frequencies_[rope]; }
  size_t decoded_count() const { return decoded_; }  // packed matrices of a type without kernels
  const std::string& unit() const { return unit_; }

 private:
  Weights(std::shared_ptr<const Model> model, const Kernels& kernels, std::string_view unit)
      : model_(std::move(model)), kernels_(kernels), unit_(unit) {}
  Status make_vectors();
  Status pack(const std::vector<bool>& packed, ThreadPool& pool);
  void make_frequencies();

  const std::shared_ptr<const Model> model_;
  const Kernels& kernels_;
  const std::string unit_;
  Plan plan_;
  std::vector<Matrix> matrices_;       // by WeightId
  std::vector<const float*> vectors_;  // by WeightId
  std::vector<std::vector<float>> frequencies_;
  Memory packed_memory_, vector_memory_;
  size_t decoded_ = 0;
};

}  // namespace baton::host

// What every pass over a model shares: matrices packed for the kernels, f32 vectors, the plan.
//
// Packing a model takes as long as copying it, on a machine that must clear the pages first several times that. So a
// model answers before it is packed: what is not packed yet is packed piece by piece into a thread's scratch for each
// product, and the owner has some more packed for good between passes. Bits do not depend on it.
//
// Experts of a model that takes much of the machine's memory stay in the file's pages until a pass chooses them. Then
// they are packed for good while the machine has memory left, and for each product where it has not.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "baton/base/thread_pool.h"
#include "baton/model/model.h"
#include "baton/unit/host/kernels.h"
#include "baton/unit/host/memory.h"
#include "baton/unit/host/plan.h"
#include "baton/unit/unit.h"

namespace baton::host {

inline constexpr int32_t kTapsMax = 64;  // of a convolution

enum class ExpertPlace : uint8_t {
  kAuto,    // kMemory where all packed matrices take at most half of the machine's, else kUsed
  kMemory,  // packed for good as the others are
  kUsed,    // packed for good when a pass first chooses them, while there is memory
  kFile,    // packed for each product
};

struct ExpertRoom {
  ExpertPlace place = ExpertPlace::kAuto;
  // kUsed: bytes of packed experts at most, whatever the machine has left; 0: all that it can spare.
  uint64_t bytes_max = 0;
};

// Of kUsed: what stays free of the machine's memory, for states, other programs and the file's own pages.
uint64_t spared_bytes(uint64_t memory_bytes);

// What Weights::load would reserve for all matrices and vectors, and what is read where the file has it (an embedding
// that is not the output head too), as stored.
KeptBytes kept_bytes(const Model& model);

class Weights {
 public:
  // Quick: nothing is packed yet. `here[id]`: whether that matrix is multiplied here; the others are some device's.
  // Errors: kOutOfMemory, kUnsupported (a shape the kernels cannot do, with the weight's name). `unit` begins the
  // messages.
  static Result<std::unique_ptr<Weights>> load(std::shared_ptr<const Model> model, const Kernels& kernels,
                                               const std::vector<bool>& here, std::string_view unit,
                                               ExpertRoom experts = {});

  const Model& model() const { return *model_; }
  const Program& program() const { return model_->program; }
  const Kernels& kernels() const { return kernels_; }
  const Plan& plan() const { return plan_; }
  // Norms, gates, frequency factors; convolutions as [taps, channels].
  const float* vector(WeightId id) const { return vectors_[static_cast<size_t>(id)]; }
  // Empty where the matrix is some device's.
  const Matrix& matrix(WeightId id) const { return matrices_[static_cast<size_t>(id)].matrix; }

  // `m` but for the matrix, which is `id`'s; scratch of scratch_bytes(). Panels that are not packed yet are packed into
  // the scratch for this product alone.
  void multiply(WeightId id, Multiply m) const;
  int64_t scratch_bytes() const;
  // Packs about `bytes` more, in the order of use; all when that is less. Not beside a pass.
  void pack_more(int64_t bytes, ThreadPool& pool);
  bool packed() const { return next_ == order_.size(); }
  // kUsed: packs those of these matrices that are not, in full, while there is room. Not beside multiply().
  void keep(std::span<const WeightId> used, ThreadPool& pool);
  // Angles per position, rotary / 2 of them, by index of plan().ropes.
  const std::vector<float>& frequencies(size_t rope) const { return frequencies_[rope]; }
  size_t decoded_count() const { return decoded_; }            // packed matrices of a type without kernels
  ExpertPlace expert_place() const { return experts_.place; }  // never kAuto
  int64_t kept_expert_bytes() const { return experts_kept_.load(std::memory_order_relaxed); }  // kUsed; any thread
  // In whole pages, but for the experts of kUsed.
  size_t reserved_bytes() const { return packed_memory_.bytes() + vector_memory_.bytes(); }
  const std::string& unit() const { return unit_; }

 private:
  Weights(std::shared_ptr<const Model> model, const Kernels& kernels, std::string_view unit)
      : model_(std::move(model)), kernels_(kernels), unit_(unit) {}
  Status make_vectors();
  Status reserve(const std::vector<bool>& here);
  // Bytes that keep() may still take, of those it has asked of the system.
  int64_t room();
  void make_frequencies();

  const std::shared_ptr<const Model> model_;
  const Kernels& kernels_;
  const std::string unit_;
  Plan plan_;
  struct Packed {
    Matrix matrix;  // its panels from `ready` on are not written yet
    unsigned char* to = nullptr;
    int64_t ready = 0;
  };  // `to` is null where there is no place

  void pack_panels_of(const Packed& packed, const Weight& weight, int64_t begin, int64_t count, unsigned char* to,
                      float* row) const;

  std::vector<Packed> matrices_;  // by WeightId
  std::vector<size_t> order_;     // WeightIds of the matrices here, in order of use
  size_t next_ = 0;               // of order_: the first that is not packed in full
  int64_t columns_max_ = 0, panel_bytes_max_ = 0;
  std::vector<const float*> vectors_;  // by WeightId
  std::vector<std::vector<float>> frequencies_;
  Memory packed_memory_, vector_memory_, expert_memory_;
  size_t decoded_ = 0;
  ExpertRoom experts_;
  std::atomic<int64_t> experts_kept_ = 0;  // bytes of expert_memory_ that are written
  int64_t held_ = 0;                       // bytes of them whose pages of the file are held as well
  int32_t full_for_ = 0;                   // calls of keep() until it asks for room again
};

}  // namespace baton::host

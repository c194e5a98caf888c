// A model in use: while somebody holds a lease of it, it stays loaded.
#pragma once

#include <cstdint>
#include <utility>

#include "baton/base/status.h"

namespace baton::serve {

class ModelPool;
class PooledModel;

// What a pool loads: a model that writes (ServedModel), or one that makes vectors (ServedEmbedder).
class Served {
 public:
  virtual ~Served() = default;
  // Before it is let go of; nothing can be asked then.
  virtual Status save() { return {}; }
  // Of memory of devices, held now. Any thread.
  virtual uint64_t device_bytes() const { return 0; }
};

// Any thread, one at a time. The pool outlives it.
class ModelLease {
 public:
  ModelLease() = default;
  ModelLease(ModelLease&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), model_(other.model_), served_(other.served_) {}
  ModelLease& operator=(ModelLease&& other) noexcept {
    if (this == &other) return *this;
    reset();
    pool_ = std::exchange(other.pool_, nullptr);
    model_ = other.model_;
    served_ = other.served_;
    return *this;
  }
  ~ModelLease() { reset(); }

  explicit operator bool() const { return pool_ != nullptr; }
  PooledModel& model() const { return *model_; }
  // `Kind`: as the model's facts say.
  template <class Kind>
  Kind& as() const {
    return static_cast<Kind&>(*served_);
  }
  void reset();

 private:
  friend class ModelPool;
  ModelLease(ModelPool& pool, PooledModel& model, Served& served) : pool_(&pool), model_(&model), served_(&served) {}

  ModelPool* pool_ = nullptr;  // null: none
  PooledModel* model_ = nullptr;
  Served* served_ = nullptr;
};

}  // namespace baton::serve

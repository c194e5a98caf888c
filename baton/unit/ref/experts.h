// Experts in plain f32, and the count of which were chosen.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "baton/unit/ref/ref.h"
#include "baton/unit/unit.h"

namespace baton::ref {

// Added to by steps, read by any thread.
class LoadCounter {
 public:
  void add(int32_t layer, int64_t tokens, std::span<const uint64_t> rows);
  std::vector<ExpertLoad> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<int32_t, ExpertLoad> loads_;
};

// out[t] = the op of x[t] for `tokens` dense rows, expert by expert, so that each matrix is decoded once.
void run_experts(const Model& model, const Product& product, const Op& op, const float* x, float* out, int64_t tokens,
                 LoadCounter& loads);

}  // namespace baton::ref

// The rows of a pass as int8 activations, for one product after another.
#pragma once

#include <vector>

#include "baton/base/thread_pool.h"
#include "baton/unit/host/kernels.h"
#include "baton/unit/host/memory.h"

namespace baton::host {

class QuantizedRows {
 public:
  // For up to `rows` rows of `columns` values. kOutOfMemory names `unit`.
  static Result<QuantizedRows> create(int64_t rows, int64_t columns, std::string_view unit);

  // Row `row` becomes `columns` values at `x`. Distinct rows may be done by several threads.
  void quantize(const Kernels& kernels, int64_t row, const float* x, int64_t columns, bool precise);

  // Points `a` at `count` rows from `first` on, all quantised with so many columns; valid until one of them changes.
  // Sorts their low planes where a product of so many tokens wants it.
  void describe(const Kernels& kernels, int64_t first, int64_t count, int64_t columns, ThreadPool& pool,
                Activations& a);

 private:
  void sort_batch(int64_t first, int64_t count, int64_t blocks, int64_t batch);

  Memory memory_;
  ActivationBlock* blocks_ = nullptr;  // [rows][columns / 32], likewise the planes
  LowPlane* lows_ = nullptr;
  LowPlane* sorted_ = nullptr;
  std::vector<int32_t> low_counts_;  // by row
  std::vector<int32_t> starts_;
};

}  // namespace baton::host

// Low planes in the order of rows, as they are made, and of blocks, as products of many tokens read them.
#include "baton/unit/host/quantized.h"

#include <algorithm>

namespace baton::host {

Result<QuantizedRows> QuantizedRows::create(int64_t rows, int64_t columns, std::string_view unit) {
  QuantizedRows made;
  const int64_t blocks = columns / kBlock + 1, all = rows * blocks, batches = rows / kSortedTokens + 1;
  constexpr size_t kBytes = sizeof(ActivationBlock) + 2 * sizeof(LowPlane);
  BATON_TRY(made.memory_, Memory::allocate(static_cast<size_t>(all) * kBytes, "quantised activations", unit));
  made.blocks_ = reinterpret_cast<ActivationBlock*>(made.memory_.data());
  made.lows_ = reinterpret_cast<LowPlane*>(made.blocks_ + all);
  made.sorted_ = made.lows_ + all;
  made.low_counts_.resize(static_cast<size_t>(rows));
  made.starts_.resize(static_cast<size_t>(batches * (blocks + 1)));
  return made;
}

void QuantizedRows::quantize(const Kernels& kernels, int64_t row, const float* x, int64_t columns, bool precise) {
  const int64_t at = row * (columns / kBlock);
  low_counts_[static_cast<size_t>(row)] =
      static_cast<int32_t>(kernels.quantize(x, columns, precise, blocks_ + at, lows_ + at));
}

void QuantizedRows::describe(const Kernels& kernels, int64_t first, int64_t count, int64_t columns, ThreadPool& pool,
                             Activations& a) {
  const int64_t blocks = columns / kBlock;
  a.blocks = blocks_ + first * blocks;
  a.lows = lows_ + first * blocks;
  a.sorted_starts = starts_.data();
  a.sorted_lows = sorted_;
  if (count <= kernels.direct_tokens) return;
  pool.parallel_for((count + kSortedTokens - 1) / kSortedTokens, 1, [&](int64_t begin, int64_t end, uint32_t) {
    for (int64_t batch = begin; batch < end; ++batch) sort_batch(first, count, blocks, batch);
  });
}

// By counting.
void QuantizedRows::sort_batch(int64_t first, int64_t count, int64_t blocks, int64_t batch) {
  const int64_t row_begin = first + batch * kSortedTokens, row_end = std::min(row_begin + kSortedTokens, first + count);
  int32_t* const starts = starts_.data() + batch * (blocks + 1);
  const auto each_plane = [&](auto&& f) {
    for (int64_t row = row_begin; row < row_end; ++row) {
      const LowPlane* const planes = lows_ + row * blocks;
      for (int32_t i = 0; i < low_counts_[static_cast<size_t>(row)]; ++i) f(planes[i], row - row_begin);
    }
  };
  // starts[b + 1] counts those of block b, then is where the next of them goes, then where they end.
  std::fill_n(starts, blocks + 1, 0);
  each_plane([&](const LowPlane& plane, int64_t) { ++starts[plane.at + 1]; });
  int32_t next = static_cast<int32_t>(batch * kSortedTokens * blocks);
  starts[0] = next;
  for (int64_t b = 1; b <= blocks; ++b) {
    const int32_t those = starts[b];
    starts[b] = next;
    next += those;
  }
  each_plane([&](const LowPlane& plane, int64_t token) {
    LowPlane& to = sorted_[starts[plane.at + 1]++];
    to = plane;
    to.at = static_cast<int32_t>(token);
  });
}

}  // namespace baton::host

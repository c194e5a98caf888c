// How weights of products come to a block (kernels/feed.cuh) and where they lie in its shared memory: behind what kinds
// work in (staging.h) a ring of pieces for each warp. The same for kernels and for the host that launches them.
#pragma once

#include <span>

#include "baton/unit/cuda/staging.h"

namespace baton::cuda {

inline constexpr uint32_t kScaleWords = 3;        // of a lane's group: d, m or a second d, parts
inline constexpr uint32_t kKeptBytes = 8 * 1024;  // what kernels have beside: instructions, and where warps stand

// Bytes of a piece, `span` columns of a row: of each lane 16-byte places of dense values, or a group's planes and the
// words of its scales.
BATON_BOTH constexpr uint32_t piece_bytes(const Matrix& matrix, int32_t span) {
  if (matrix.form == Form::kF32) return static_cast<uint32_t>(span) * 4;
  if (matrix.form != Form::kCodes) return static_cast<uint32_t>(span) * 2;
  return 32 * 4 * (matrix.bits + kScaleWords);
}

// Shared memory of a block, beside what its kernel keeps.
uint32_t feed_bytes(const FeedPlan& plan);

// For the products among `instructions`, in a kernel whose blocks may have shared_bytes of shared memory. set 0: there
// is no room for them.
FeedPlan plan_feed(std::span<const Instruction> instructions, uint32_t shared_bytes);

}  // namespace baton::cuda

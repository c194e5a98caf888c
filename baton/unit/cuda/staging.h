// Shared memory of a block of kThreads: how much there is, and what rows of x take of it on their way into a product.
// The same numbers for kernels, for who launches them, and for the check at load (limits.h).
#pragma once

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

inline constexpr uint32_t kSharedBytes = 96 * 1024;
inline constexpr uint32_t kAttendShared = 68 * 1024;  // of it, kAttend
inline constexpr uint32_t kSmallShared = 8 * 1024;    // kAttendJoin, kDelta, kConvDelta
inline constexpr uint32_t kBeforeRows = 2048;         // sums of warps; what products have in front of rows of x
inline constexpr int kStagedRows = 4;                 // rows of x at a time, where they fit; else one by one

// kMultiply: rows of x as `matrix` is multiplied with them. f32, in multiples of 256 values; of codes 64 bytes of
// integers and 16 of facts for each group, and one row of f32 that they are made of.
BATON_BOTH constexpr uint64_t staged_bytes(const Matrix& matrix, int rows) {
  const uint64_t floats = static_cast<uint64_t>((matrix.pitch + 255) / 256 * 256) * sizeof(float);
  const bool codes = matrix.form == Form::kCodes;
  const uint64_t row = codes ? static_cast<uint64_t>(matrix.pitch / kGroup) * 80 : floats;
  return kBeforeRows + static_cast<uint64_t>(rows) * row + (codes ? floats : 0);
}

}  // namespace baton::cuda

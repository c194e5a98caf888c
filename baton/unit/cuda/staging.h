// Shared memory of a block of kThreads: how much kinds need, and what rows of x take of it on their way into a product.
// The same numbers for kernels, for who launches them, and for the check at load (limits.h).
#pragma once

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

inline constexpr uint32_t kSharedBytes = 96 * 1024;   // kAttendTile, kAttendAll: the most, but for products
inline constexpr uint32_t kAttendShared = 76 * 1024;  // kAttend: the most of what a list holds, but for products
inline constexpr uint32_t kSmallShared = 8 * 1024;    // kAttendJoin, kDelta, kConvDelta
inline constexpr uint32_t kDeltaRowRoom = 24 * 1024;  // kConvDelta in a list of one row
inline constexpr uint32_t kDrawShared = 24 * 1024;    // kDraw
inline constexpr uint32_t kBeforeRows = 4096;         // sums of warps, factors: what products have before rows of x
inline constexpr int kTile = 4;                       // rows of x at a time, where they fit; else one by one

// kMultiply: whether rows of x go through the prologue four values at a time, each read once.
BATON_BOTH constexpr bool by_fours(const Instruction& in) {
  const int32_t width = in.x_width, group = in.op.width;
  if (width % 4 != 0) return false;
  if (in.prologue == Prologue::kNone) return true;
  if (in.prologue == Prologue::kGate) return group <= 1;
  return in.prologue == Prologue::kRms ? group == width : in.prologue == Prologue::kGated && group == 128;
}

// kMultiply: rows of x as the matrices are multiplied with them, and what lies before. f32, in multiples of 256 values;
// of codes 64 bytes of integers and 16 of facts for each group, and a row of f32 that they are made of where that does
// not go by fours.
BATON_BOTH constexpr uint64_t staged_bytes(const Instruction& in, int rows) {
  const Matrix& matrix = in.matrix[0];
  const uint64_t floats = static_cast<uint64_t>((matrix.pitch + 255) / 256 * 256) * sizeof(float);
  const bool codes = matrix.form == Form::kCodes;
  const uint64_t row = codes ? static_cast<uint64_t>(matrix.pitch / kGroup) * 80 : floats;
  return kBeforeRows + static_cast<uint64_t>(rows) * row + (codes && !by_fours(in) ? floats : 0);
}

// Rows of x at a time, with room for so many bytes.
BATON_BOTH constexpr int32_t tile_rows(const Instruction& in, int32_t rows, uint32_t work_bytes) {
  return rows > 1 && staged_bytes(in, kTile) <= work_bytes ? kTile : 1;
}

}  // namespace baton::cuda

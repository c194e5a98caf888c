// How weights of products come to a block (kernels/feed.cuh) and where they lie in its shared memory: rows of x and
// what other kinds need, then a ring of pieces for each warp. The same for kernels and for the host that launches them.
#pragma once

#include <cstdint>
#include <span>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

inline constexpr uint32_t kScaleWords = 3;         // of a lane's group: d, m or a second d, parts
inline constexpr int32_t kTile = 4;                // rows of x at a time
inline constexpr uint32_t kWorkBytes = 68 * 1024;  // what every kind finds; kAttend needs all of it
inline constexpr uint32_t kBeforeRows = 4096;      // before rows of x: sums, and factors of rows
inline constexpr uint32_t kKeptBytes = 16 * 1024;  // what kernels have beside: instructions, and where warps stand

// Bytes of a piece, `span` columns of a row: of each lane 16-byte places of dense values, or a group's planes and the
// words of its scales.
BATON_BOTH constexpr uint32_t piece_bytes(const Matrix& matrix, int32_t span) {
  if (matrix.form == Form::kF32) return static_cast<uint32_t>(span) * 4;
  if (matrix.form != Form::kCodes) return static_cast<uint32_t>(span) * 2;
  return 32 * 4 * (matrix.bits + kScaleWords);
}

// Whether rows of x go through the prologue four values at a time, each read once.
BATON_BOTH constexpr bool by_fours(const Instruction& in) {
  const int32_t width = in.x_width, group = in.op.width;
  if (width % 4 != 0) return false;
  if (in.prologue == Prologue::kNone) return true;
  if (width > 8 * kThreads) return false;
  return in.prologue == Prologue::kRms ? group == width : in.prologue == Prologue::kGated && group == 128;
}

// Shared memory for `rows` rows of x of a product, and what lies before and behind them.
BATON_BOTH constexpr uint32_t staged_bytes(const Instruction& in, int32_t rows) {
  const Matrix& matrix = in.matrix[0];
  const bool codes = matrix.form == Form::kCodes;
  const uint32_t floats = static_cast<uint32_t>((matrix.pitch + 255) / 256 * 256) * sizeof(float);
  const uint32_t row = codes ? static_cast<uint32_t>(matrix.pitch / kGroup) * 80 : floats;
  return kBeforeRows + static_cast<uint32_t>(rows) * row + (codes && !by_fours(in) ? floats : 0);
}

// Rows of x at a time, with room for so many bytes.
BATON_BOTH constexpr int32_t tile_rows(const Instruction& in, int32_t rows, uint32_t work_bytes) {
  return rows > 1 && staged_bytes(in, kTile) <= work_bytes ? kTile : 1;
}

// Of a block in all, beside what its kernel keeps.
BATON_BOTH constexpr uint32_t shared_bytes_of(const FeedPlan& plan) {
  const uint32_t bytes = plan.work_bytes + plan.slots * plan.slot_bytes * (kThreads / 32);
  return bytes < kWorkBytes ? kWorkBytes : bytes;
}

// For the products among `instructions`, in a kernel that may have shared_bytes of shared memory. set 0: there is no
// room for them.
FeedPlan plan_feed(std::span<const Instruction> instructions, uint32_t shared_bytes);

}  // namespace baton::cuda

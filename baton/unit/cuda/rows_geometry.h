// Which part of kinds that see one row at a time is whose, the same for kernels and host.
#pragma once

#include <cstdint>
#include <string_view>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

inline constexpr int32_t kWarpGroup = 512;  // values of a group that one warp norms; those of more have a block
inline constexpr int32_t kRowWarps = 4;     // have a whole row and its norm of roots of squares

// kPrepare.
BATON_BOTH constexpr bool norms(const Instruction& in) {
  return in.prologue != Prologue::kNone && in.prologue != Prologue::kGate;
}
// Rows of which each is one group, with such a norm.
BATON_BOTH constexpr bool has_whole_rows(const Instruction& in) {
  return in.prologue == Prologue::kRms && in.op.width == in.x_width && in.op.width > kWarpGroup && in.x_width % 4 == 0;
}
// Groups of 128 with a norm and gates: a warp has kGatedGroups of them at a time.
inline constexpr int32_t kGatedGroup = 128, kGatedGroups = 4;
BATON_BOTH constexpr bool has_gated_groups(const Instruction& in) {
  return in.prologue == Prologue::kGated && in.op.width == kGatedGroup && in.x_width % kGatedGroup == 0;
}
// Values that are looked at together.
BATON_BOTH constexpr int32_t group_width(const Instruction& in) {
  return norms(in) && in.op.width > 0 ? in.op.width : in.x_width;
}
// Blocks that have something to do.
BATON_BOTH constexpr int64_t prepare_blocks(const Instruction& in, int64_t rows) {
  if (has_whole_rows(in)) return (rows * kRowWarps + kWarps - 1) / kWarps;
  const int32_t group = group_width(in);
  const int64_t groups = rows * ((in.x_width + group - 1) / group);
  constexpr int64_t kGated = int64_t{kGatedGroups} * kWarps;
  if (has_gated_groups(in)) return (groups + kGated - 1) / kGated;
  return group > kWarpGroup ? groups : (groups + kWarps - 1) / kWarps;
}
// The kernel of one that is launched by itself.
constexpr std::string_view prepare_kernel(const Instruction& in) {
  return has_whole_rows(in) ? "baton_prepare_rows" : has_gated_groups(in) ? "baton_prepare_gated" : "baton_prepare";
}

}  // namespace baton::cuda

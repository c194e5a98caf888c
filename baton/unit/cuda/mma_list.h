// A step's instructions as the kernel for many rows takes them (kernels/list_together.cu): its products on tensor
// cores.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

// Products of matrices of several forms become several, in their order. None: some product does not go there.
std::optional<std::vector<Instruction>> mma_list(std::span<const Instruction> step);

// Bytes that rows of x take as products take them (mma_layout.h): those of the largest, kPlaneBuffers times. So many
// are for rows that products hand on, the last for what a kPrepare makes.
inline constexpr int kPlanesHanded = 2, kPlaneBuffers = kPlanesHanded + 1;
uint64_t planes_bytes_of(std::span<const Instruction> list);
// The same list where rows of x lie there: products put them there that one behind them takes, and before each of all
// others is a kPrepare.
std::vector<Instruction> with_planes(std::span<const Instruction> list, Address planes);

// Shares a product out to `blocks` blocks: units of 16 rows of a matrix, or of 8 of each of a pair, `outputs` and
// `more` count them; 2^slices_log2 warps share a unit, a span of kMmaSpan columns each in turn.
void share_mma(Instruction& in, uint32_t blocks);

}  // namespace baton::cuda

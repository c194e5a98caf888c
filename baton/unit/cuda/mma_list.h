// A step's instructions as the kernel for many rows takes them (kernels/list_together.cu): its products on tensor
// cores.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

// Products of matrices of several forms become several, in their order; before each is a kPrepare of its rows of x,
// for their scratch, which all share. None: some product does not go there.
std::optional<std::vector<Instruction>> mma_list(std::span<const Instruction> step);

// Bytes that products want of scratch, and their scratch: that of all.
uint64_t planes_bytes_of(std::span<const Instruction> list);
void set_planes(std::span<Instruction> list, Address planes);

}  // namespace baton::cuda

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

}  // namespace baton::cuda

// How an instruction is launched alone: kernels, blocks, threads, shared memory. Which instructions a list may hold.
#pragma once

#include <span>
#include <string_view>

#include "baton/unit/cuda/card.h"
#include "baton/unit/cuda/lowering.h"

namespace baton::cuda {

// For a pass whose runs and counts are as they say. Rows of no kind that it works on: nothing is launched.
Status launch(Stream& stream, const CardFacts& facts, const Instruction& instruction, const Pass& pass,
              Address on_card);

// Shared memory that a block of kThreads needs for its part of an instruction of any kind but kMultiply.
uint32_t shared_bytes_of(const Instruction& instruction);

// A list in one launch, on all of the card.
Status launch_list(Stream& stream, const CardFacts& facts, const ListWork& list);

// Whether the kernel that runs lists has all of these kinds.
bool fits_list(std::span<const Instruction> instructions);

}  // namespace baton::cuda

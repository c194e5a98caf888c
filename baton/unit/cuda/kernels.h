// The kernels by name.
#pragma once

#include <string_view>
#include <vector>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

// "baton_embed": of the kernel that does it, alone. kMultiply: of the emulated card; others have it in baton_list.
std::string_view kernel_name(Do what);

// vectors[3] of kRope and kHeads: of each pair of the op what a position is multiplied with. Angles of late positions
// show the last bit of these, so they are made by the host, as other units make them; without them a kernel makes its
// own.
std::vector<float> rope_frequencies(const Op& rope, const float* factors);

inline constexpr Do kKinds[] = {
#define BATON_KIND(name, word) Do::k##name,
#include "baton/unit/cuda/kind_list.inc"
#undef BATON_KIND
};

}  // namespace baton::cuda

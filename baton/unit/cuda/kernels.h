// The kernels by name.
#pragma once

#include <string_view>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

// "baton_embed": of the kernel that does it, alone.
std::string_view kernel_name(Do what);

inline constexpr Do kKinds[] = {
#define BATON_KIND(name, word) Do::k##name,
#include "baton/unit/cuda/kind_list.inc"
#undef BATON_KIND
};

}  // namespace baton::cuda

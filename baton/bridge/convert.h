// Runs of values from one type of state to another, round to nearest even.
#pragma once

#include <cstddef>

#include "baton/quant/format.h"

namespace baton {

// `count` values, kF32, kF16 or kBF16 on either side; neither side needs alignment, they do not overlap. The values are
// finite and round to finite values of `to` (see first_overflow): others come out wrong. Denormals are exact even where
// the thread flushes them to zero.
void convert_run(const std::byte* values, DType from, std::byte* out, DType to, size_t count);

}  // namespace baton

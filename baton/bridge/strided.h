// Between a unit's strided segment and the dense canonical order of a seal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "baton/state/layout.h"

namespace baton {

// A row is one run of dims[2] values: row r is [r / dims[1], r % dims[1]]. `dims` fit in the segment, whose layout
// check_layout accepts; rows lie in [0, dims[0] * dims[1]).

// Copies rows first .. first + count - 1 of the segment to `out`, dense, in the segment's own type.
void gather_rows(const Segment& segment, const Dims& dims, uint64_t first, uint64_t count, std::byte* out);

// Fills the segment with the dense `values`, all rows of them, converted from `from` (see convert_run).
void scatter(const std::byte* values, DType from, const Dims& dims, const Segment& into);

}  // namespace baton

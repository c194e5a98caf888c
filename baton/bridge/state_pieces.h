// How the bridge looks at values of a state: piece by piece, each searched. For the bridge's own files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "baton/base/fault.h"
#include "baton/bridge/segment_fill.h"
#include "baton/unit/sequence_state.h"

namespace baton {

// The same values with one that is no number, for a fault.
const std::byte* with_nan(const std::byte* values, uint64_t bytes, std::vector<std::byte>& piece);

// The values are numbers, and zeros in a state of no tokens.
Status check_sound(const Segment& segment, uint64_t tokens, RowRange rows, std::span<const std::byte> values);

// Calls visit(rows, values) -> Status for the rows of a segment in order, all or those of `part`, in pieces that stay
// in cache; `piece` is for those that the state does not show.
template <class Visit>
Status for_values(const SequenceState& state, uint64_t tokens, size_t index, std::optional<RowRange> part,
                  std::vector<std::byte>& piece, Visit visit) {
  const Segment& segment = state.shape().segments[index];
  Dims dims = dims_at(segment, tokens);
  if (part) dims = {1, part->count, dims[2]};
  return for_pieces(dims, segment.dtype, [&](RowRange rows) -> Status {
    if (part) rows.first += part->first;
    const uint64_t bytes = rows.count * row_bytes_of(segment.dtype, segment.dims[2]);
    if (BATON_FAULT(kMoveRead)) return fail(Code::kDevice, "a fault was asked for: the state cannot be read");
    BATON_TRY(const std::byte* first, rows_of(state, index, rows, bytes, piece));
    if (BATON_FAULT(kStateNan)) first = with_nan(first, bytes, piece);
    const std::span<const std::byte> values(first, bytes);
    BATON_OK(check_sound(segment, tokens, rows, values));
    return visit(rows, values);
  });
}

// Calls act(rows) -> Status for rows that lie dense, all at once; where that fails again in pieces, so that an error
// names the rows that it names where pieces are all there is. Beside an H200 64 KiB took a thread 13 us at once, and 20
// in pieces of 8.
template <class Act>
Status for_run(uint64_t rows, const Segment& segment, Act act) {
  Status done = act(RowRange{0, rows});
  if (done) return done;
  Status again = for_pieces({1, rows, segment.dims[2]}, segment.dtype, act);
  return again ? done : again;
}

}  // namespace baton

// How the bridge puts values into a state: a segment piece by piece, converted, written, and compared with what comes
// back. For the bridge's own files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "baton/bridge/plan.h"
#include "baton/unit/sequence_state.h"

namespace baton {

inline std::string name_of(const Segment& segment) { return segment_name(segment.kind, segment.layer); }

// plan_bridge, for a state of so many tokens: kMismatch when it is longer than `to`.
Result<BridgePlan> plan_move(const StateShape& from, uint64_t tokens, const SequenceState& to);

// Rows of a state that fill `bytes`: where they are, or read into `piece`.
Result<const std::byte*> rows_of(const SequenceState& state, size_t index, RowRange rows, uint64_t bytes,
                                 std::vector<std::byte>& piece);

class SegmentFill {
 public:
  // `into` is borrowed, and being filled.
  SegmentFill(const SegmentPlan& plan, size_t index, SequenceState& into) : plan_(plan), index_(index), into_(into) {}

  // `values` of the plan's `from` type, numbers all. Where the receiver asks for larger pieces (piece_bytes), rows that
  // follow each other wait here until they are one. Errors of move_state. Throws std::bad_alloc.
  Status put(RowRange rows, std::span<const std::byte> values);
  // Writes what waits.
  Status flush();
  // After all rows: kUnsupported when the receiver's type keeps nothing of them.
  Status finish();

 private:
  // `values` in the receiver's type: they stay here, or where they were.
  Result<std::span<const std::byte>> convert(RowRange rows, std::span<const std::byte> values);
  // And compares.
  Status write(RowRange rows, std::span<const std::byte> values);
  Status check_range(RowRange rows, std::span<const std::byte> values, DType from);
  tl::unexpected<Error> too_large(uint64_t row) const;

  const SegmentPlan plan_;
  const size_t index_;
  SequenceState& into_;
  bool too_small_ = false, of_size_ = false;  // values below the receiver's normal numbers were seen, and others
  std::vector<float> floats_;
  std::vector<std::byte> converted_, back_, waiting_;
  RowRange waiting_rows_;
};

}  // namespace baton

// How the bridge puts values into a state: a segment piece by piece, converted, written, and compared with what comes
// back. For the bridge's own files.
#pragma once

#include <algorithm>
#include <atomic>
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

// What one thread needs to fill with. Kept from segment to segment.
struct FillScratch {
  std::vector<float> floats;
  std::vector<std::byte> converted, back;
};

class SegmentFill {
 public:
  // `into` is borrowed, and being filled.
  SegmentFill(const SegmentPlan& plan, size_t index, SequenceState& into) : plan_(plan), index_(index), into_(into) {}

  // `values` of the plan's `from` type, numbers all. Where the receiver asks for larger pieces (piece_bytes), rows that
  // follow each other wait here until they are one. Errors of move_state. Throws std::bad_alloc.
  Status put(RowRange rows, std::span<const std::byte> values);
  // The same at once, from any threads at once, where the receiver's writes are shared (share_writes).
  Status put_beside(RowRange rows, std::span<const std::byte> values, FillScratch& scratch);
  // In two parts: the values of the receiver's type to `staged`; and, when it came back (from what was staged, in
  // `back`), compared: with `values` where those are of that type, else with what was staged.
  Status put_staged(RowRange rows, std::span<const std::byte> values, std::byte* staged, FillScratch& scratch);
  Status check_back(RowRange rows, std::span<const std::byte> values, const std::byte* staged, const std::byte* back);
  // Of so many rows, in the receiver's type.
  uint64_t bytes_there(uint64_t rows) const { return rows * row_bytes_of(plan_.to, plan_.from.dims[2]); }
  uint64_t rows_together() const {
    return std::max<uint64_t>(1, into_.piece_bytes() / std::max<uint64_t>(1, bytes_there(1)));
  }
  // Writes what waits.
  Status flush();
  // After all rows: kUnsupported when the receiver's type keeps nothing of them.
  Status finish();

 private:
  // That is set once, by any thread.
  struct Flag {
    Flag() = default;
    Flag(const Flag& other) : set(other.set.load()) {}
    explicit operator bool() const { return set.load(std::memory_order_relaxed); }
    void raise() { set.store(true, std::memory_order_relaxed); }
    std::atomic<bool> set{false};
  };
  // `values` in the receiver's type: they stay in the scratch, or where they were.
  Result<std::span<const std::byte>> convert(RowRange rows, std::span<const std::byte> values, FillScratch& scratch);
  // And compares.
  Status write(RowRange rows, std::span<const std::byte> values, FillScratch& scratch);
  Status check_range(RowRange rows, std::span<const std::byte> values, DType from);
  tl::unexpected<Error> too_large(uint64_t row) const;
  tl::unexpected<Error> not_back(RowRange rows) const;

  const SegmentPlan plan_;
  const size_t index_;
  SequenceState& into_;
  Flag too_small_, of_size_;  // values below the receiver's normal numbers were seen, and others
  FillScratch own_;
  std::vector<std::byte> waiting_;
  RowRange waiting_rows_;
};

}  // namespace baton

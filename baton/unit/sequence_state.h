// One sequence's memory on one unit, as everybody but the unit sees it: rows that are read and written in canonical
// order, and a position. Where the bytes lie (host memory, pages, a card, another machine) only the unit knows.
//
// A state is what its rows and its position say, and nothing beside them (but what it kept for rewind): one that is
// filled with another's rows goes on as that one, to the bit on an executor of the same arithmetic(). Seals, bridges
// and checkpoints stand on it; tests/state_contract_test.cc holds every unit to it.
//
// Threads: used by one thread at a time, which need not be its lane's (unit.h). Reads and writes are ordered behind the
// last step of the state. A state dies before the executor that made it (checked); its destructor may run on any
// thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "baton/base/status.h"
#include "baton/state/shape.h"

namespace baton {

// Counts an executor's states that are alive.
class LiveStates {
 public:
  LiveStates() = default;
  ~LiveStates() { BATON_CHECK(count_ == 0); }  // a state outlived its executor
  LiveStates(const LiveStates&) = delete;
  LiveStates& operator=(const LiveStates&) = delete;
  int64_t count() const { return count_; }

 private:
  friend class SequenceState;
  std::atomic<int64_t> count_{0};
};

// Rows of a segment's canonical array, dims = dims_at(segment, tokens): row r is the run of dims[2] values at
// [r / dims[1], r % dims[1]].
struct RowRange {
  uint64_t first = 0, count = 0;
};

// Bytes in the pieces that states of the host are read and written in: they stay in the first level of cache.
inline constexpr uint64_t kStatePieceBytes = 8 * 1024;

class SequenceState {
 public:
  virtual ~SequenceState() { --live_.count_; }
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  virtual const StateShape& shape() const = 0;
  // Memory it takes on its unit now; what it shares with others counts whole.
  virtual uint64_t bytes() const = 0;

  // Tokens processed so far, and the most it can hold.
  uint64_t position() const { return position_; }
  uint64_t tokens_max() const { return tokens_max_; }

  // Copies rows at position() tokens (while it is filled: at those it is filled with; see LayerWatch) to `out`, dense,
  // in the segment's type. Rows outside are a bug. kDevice.
  Status read(size_t segment, RowRange rows, std::byte* out) const;
  // The same rows where they are, until the state is looked at again, changes or goes; null when they do not lie dense
  // in memory that the host reads quickly: read them then.
  const std::byte* view(size_t segment, RowRange rows) const;
  // The same of as many of the first of these rows as lie dense; none: read them.
  std::span<const std::byte> view_first(size_t segment, RowRange rows) const;
  // So many of the last views stay, and not one alone, while the state does not change: views of rows in order.
  virtual uint32_t views_kept() const { return 1; }
  static constexpr uint32_t kAllViews = UINT32_MAX;

  // Bytes to write at a time, where they are read back at once: fewer cost as much where each call goes to a device.
  virtual uint64_t piece_bytes() const { return kStatePieceBytes; }

  // A state at position 0 is filled with one of `tokens` tokens: each row of each segment is written once, in any order
  // and in pieces of any size, and finish_write moves the position. In between, and when something failed, nothing may
  // be done with it but drop it. More tokens than it holds, rows outside, or a state that holds something already are
  // bugs. kDevice; kOutOfMemory where states grow (unit.h); kInternal from finish_write when the rows written are not
  // as many as there are. Which they were is not recorded: a row written twice hides one that is missing.
  // `searched`: the writer has looked at each value, and all are numbers.
  void begin_write(uint64_t tokens);
  Status write(size_t segment, RowRange rows, const std::byte* in);
  Status finish_write(bool searched = false);
  // Before the first write: whether from here to finish_write any threads may write at once, each rows of its own, and
  // view and read those. All memory that it takes is taken then: kOutOfMemory.
  Result<bool> share_writes();
  // Where rows go over a link, another way to write, of which several pieces may be on their way: stages() of them; 0:
  // there is none. `stage` gives memory for rows, as many as piece_bytes() bytes hold or one, which any threads may
  // fill. `send` begins to write the next piece that was staged, all of which is filled then, and to bring back what
  // lies there behind it. `sent_back` waits for the next that was sent, and gives what came back. Both memories stay
  // until so many others were staged. No write, read or view in between: all that was staged is sent and came back
  // before. Errors of write and read.
  virtual uint32_t stages() const { return 0; }
  Result<std::byte*> stage(size_t segment, RowRange rows);
  Status send();
  Result<std::span<const std::byte>> sent_back();
  // Whether rows of `from`, a state of the same shape, come to its stages without the host, now: a link between cards
  // may be found out about here. Then `stage_copy` stages such rows, from `first` of `from` on, instead of memory that
  // is filled; they have been looked at before, by a view, and stay as they are until they came back.
  virtual bool reaches(const SequenceState&) { return false; }
  Status stage_copy(size_t segment, RowRange rows, const SequenceState& from, uint64_t first);

  // Every value that it holds is known to be a number: its writer has looked at each, or its unit has as its steps made
  // them, while they were in cache. False says nothing: look.
  bool searched() const { return searched_; }

  // A state at position 0 takes over all that `from` holds, another unit's or its own, by taking over its memory: no
  // byte is copied, and `from` is a new state then, at position 0. Both units' counts of memory are right behind it. A
  // `from` of more tokens than this one holds is a bug. False, and nothing has changed, where can_adopt says no, or
  // `from` shares memory with a fork, or the system has no memory for a list.
  bool adopt(SequenceState& from);
  // Whether the memory of the two is alike; does not change while they live.
  bool can_adopt(const SequenceState& from) const { return &from != this && fits_memory(from); }

 protected:
  SequenceState(uint64_t tokens_max, LiveStates& live) : tokens_max_(tokens_max), live_(live) { ++live_.count_; }
  // For its unit, after a step or a rewind. `searched`: of all that it holds now.
  void set_position(uint64_t position, bool searched = false) {
    BATON_CHECK(position <= tokens_max_);
    position_ = position;
    searched_ = searched;
    coming_.reset();
  }
  // For its unit, within a step: rows are read at the position that set_position will bring.
  void show_coming(uint64_t position) {
    BATON_CHECK(position <= tokens_max_);
    coming_ = position;
  }
  // For its unit: the position that rows are read and written at.
  uint64_t shown_position() const { return filling_.value_or(coming_.value_or(position_)); }

 private:
  // Rows that are inside; `dims` those of the segment at the tokens meant.
  virtual Status read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const = 0;
  virtual Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) = 0;
  // Of view_first.
  virtual std::span<const std::byte> view_rows(size_t, const Dims&, RowRange) const { return {}; }
  // Of share_writes, for a state of so many tokens.
  virtual Result<bool> share_row_writes(uint64_t) { return false; }
  // Of stage, send and sent_back.
  virtual Result<std::byte*> stage_rows(size_t, const Dims&, RowRange) { return nullptr; }
  virtual Status stage_row_copy(size_t, const Dims&, RowRange, const SequenceState&, uint64_t) { return {}; }
  virtual Status send_rows() { return {}; }
  virtual Result<std::span<const std::byte>> back_rows() { return std::span<const std::byte>(); }
  // Within finish_write: what was written and is still on its way.
  virtual Status finish_rows() { return {}; }
  // For adopt: whether `from` is a state of memory like its own; and all but the positions, of such a one.
  virtual bool fits_memory(const SequenceState&) const { return false; }
  virtual bool exchange_memory(SequenceState&) { return false; }

  Dims checked_dims(size_t segment, RowRange rows) const;

  uint64_t position_ = 0;
  std::optional<uint64_t> filling_, coming_;  // tokens
  std::atomic<uint64_t> rows_written_{0};
  bool searched_ = true;  // new ones hold zeros
  const uint64_t tokens_max_;
  LiveStates& live_;
};

// Calls visit(RowRange) -> Status for the rows of an array in order, as many at a time as make a piece, one at least.
template <class Visit>
Status for_pieces(const Dims& dims, DType dtype, Visit visit) {
  const uint64_t rows = dims[0] * dims[1];
  const uint64_t most = std::max<uint64_t>(1, kStatePieceBytes / std::max<uint64_t>(1, row_bytes_of(dtype, dims[2])));
  for (uint64_t row = 0; row < rows; row += most) BATON_OK(visit(RowRange{row, std::min(most, rows - row)}));
  return {};
}

}  // namespace baton

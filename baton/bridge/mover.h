// Moves rows of a state with the help of a crew: one thread asks the sender for rows, as many at a time as lie dense
// there, and all search, convert, write and compare them behind it. Where the receiver has stages, all search and
// convert into one, one thread sends it, and all compare what came back of an earlier one. Where the receiver reaches
// the sender's memory, rows go there by themselves, and what the sender shows of them is searched and compared all the
// same. For the bridge's own files.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "baton/bridge/crew.h"
#include "baton/bridge/segment_fill.h"
#include "baton/unit/sequence_state.h"

namespace baton {

enum class MoveEnd : uint8_t {
  kNo,      // others of the segment follow
  kFlush,   // what waits in its fill is written
  kFinish,  // all of the segment was moved
};

// Rows of a segment, and where they go.
struct MovePart {
  size_t segment = 0;
  RowRange rows;                // of the sender, at its position
  uint64_t first_there = 0;     // the receiver's row that is the first of them
  SegmentFill* fill = nullptr;  // null: they are searched, and that is all
  MoveEnd end = MoveEnd::kNo;   // what is done with the fill behind them
};

// One move after the other, each from one thread; what its threads need is kept from one to the next.
class Mover final : private ShiftWork {
 public:
  // `crew`: null, or borrowed. `shared`: the receiver's writes are (SequenceState::share_writes). `staged`: null, or
  // the receiver, which has stages.
  Mover(Crew* crew, bool shared, SequenceState* staged) : crew_(crew), shared_(shared), staged_(staged) {}

  // In the order of the parts, the error of the first row that has one, whoever found it; rows behind it may not have
  // been written. `from` is at `tokens` tokens, or shown there. Throws std::bad_alloc.
  Status move(const SequenceState& from, uint64_t tokens, std::span<const MovePart> parts);

  // Of all that was moved so far, what came to the receiver without the host (SequenceState::reaches).
  uint64_t reached_bytes() const { return reached_bytes_; }

  static uint64_t bytes_of(const SequenceState& from, const MovePart& part);

 private:
  // Of a stage: rows that lie dense at the sender, which one thread takes.
  struct Run {
    RowRange rows;  // from the stage's first on
    const std::byte* values;
  };
  struct Stage {
    const MovePart* part = nullptr;
    RowRange rows;  // of the sender
    uint64_t number = 0;
    std::vector<Run> runs;
    std::vector<std::byte> read;
    std::byte* there = nullptr;
    const std::byte* back = nullptr;
    uint64_t filled = 0, compared = 0;  // batches of the shift that must be done
  };
  // Rows that lie dense, a part of a MovePart; or the runs of a stage.
  struct Batch {
    Stage* stage = nullptr;
    bool compares = false;
    const MovePart* part = nullptr;
    RowRange rows;
    const std::byte* values = nullptr;
    uint64_t row_bytes = 0, piece_rows = 0;
    uint64_t number = 0;          // of its first piece, among all of the move
    std::vector<std::byte> read;  // of rows that the sender does not show
  };
  Status move_alone(const MovePart& part);
  Status move_together(std::span<const MovePart> parts, uint32_t helpers);
  // By stages.
  void deal_stages(Shift& shift, std::span<const MovePart> parts);
  // How many rows of the part it takes.
  uint64_t fill_stage(Shift& shift, const MovePart& part, uint64_t done);
  Status find_runs(Stage& stage);
  // Where the receiver reaches the sender: rows of one view, which stay until they are compared. Those are searched,
  // then the receiver copies the rows themselves, and what comes back from there is compared with the view.
  Status find_reached(Stage& stage, uint64_t done);
  void add_stage(Shift& shift, Stage& stage, bool compares);
  // Sends and compares those that are so far; all of them, at the end.
  void advance_stages(Shift& shift, bool all);
  // The next; false: something failed, there or before.
  bool send_stage(Shift& shift);
  bool compare_stage(Shift& shift);
  void carry(const Batch& batch, uint32_t run, uint32_t thread);
  Status carry_run(const Batch& batch, const Run& run, FillScratch& scratch);
  // Puts a part's rows into batches, until something failed.
  Status deal(Shift& shift, const MovePart& part);
  // Of the rows left, as many of the first as go together.
  Status look(Batch& batch, RowRange left);
  void piece(uint32_t batch, uint32_t piece, uint32_t thread) override;
  Status move_rows(const Batch& batch, RowRange rows, const std::byte* values, uint32_t thread);
  // The first error.
  void note(uint64_t number, const MovePart* part, Status status);

  Crew* const crew_;
  const bool shared_;
  SequenceState* const staged_;
  bool reaches_ = false;
  const SequenceState* from_ = nullptr;
  uint64_t tokens_ = 0, pieces_ = 0, reached_bytes_ = 0;
  std::array<Batch, Shift::kBatches> batches_;
  std::vector<Stage> stages_;                   // a ring
  uint64_t filling_ = 0, sent_ = 0, back_ = 0;  // stages so far
  std::array<FillScratch, Crew::kThreadsMax> scratch_;
  std::vector<std::byte> piece_;           // of who is alone
  std::atomic<uint64_t> bad_{UINT64_MAX};  // the first piece that failed
  std::mutex mutex_;
  const MovePart* bad_part_ = nullptr;  // whose it was; guarded by mutex_, as is the next
  Status status_;                       // its error
};

}  // namespace baton

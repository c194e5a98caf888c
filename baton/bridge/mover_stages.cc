// Moves by stages: filled, sent, and compared when they are back.
#include <algorithm>
#include <new>
#include <utility>

#include "baton/base/status.h"
#include "baton/bridge/mover.h"
#include "baton/bridge/state_pieces.h"

namespace baton {
namespace {

constexpr uint64_t kRunBytes = uint64_t{64} << 10;
// Of one stage: the runs that are filled, then what is said of sending it, then the runs that are compared.
constexpr uint64_t kNumbers = uint64_t{1} << 40, kSending = kNumbers / 4, kComparing = kNumbers / 2;

}  // namespace

// The first stage that failed ends it; what was staged before is sent and compared all the same, so that of all errors
// it is the first that is told.
void Mover::deal_stages(Shift& shift, std::span<const MovePart> parts) {
  // Whatever ends it, nothing is left on its way from a sender that may go next.
  struct Drain {
    explicit Drain(Mover& of) : mover(of) {}
    ~Drain() {
      while (mover.back_ < mover.sent_ && mover.staged_->sent_back()) ++mover.back_;
    }
    Mover& mover;
  } const drain(*this);
  stages_.resize(std::min({staged_->stages(), Shift::kBatches / 2, reaches_ ? from_->views_kept() : UINT32_MAX}));
  for (Stage& stage : stages_) stage.filled = stage.compared = 0;  // those were batches of an earlier shift
  filling_ = sent_ = back_ = 0;
  for (const MovePart& part : parts) {
    for (uint64_t done = 0; done < part.rows.count && bad_ == UINT64_MAX;) {
      done += fill_stage(shift, part, done);
      advance_stages(shift, false);
    }
  }
  advance_stages(shift, true);
}

uint64_t Mover::fill_stage(Shift& shift, const MovePart& part, uint64_t done) {
  BATON_CHECK(part.fill != nullptr);  // what is only searched has no receiver
  Stage& stage = stages_[filling_ % stages_.size()];
  shift.wait(stage.compared);
  stage.part = &part;
  stage.rows = {part.rows.first + done, std::min(part.rows.count - done, part.fill->rows_together())};
  stage.number = filling_ * kNumbers;
  Status found;
  if (reaches_) {
    stage.there = nullptr;
    found = find_reached(stage, done);
  } else if (const auto there = staged_->stage(part.segment, {part.first_there + done, stage.rows.count}); there) {
    stage.there = *there;
    found = find_runs(stage);
  } else {
    found = fail(there.error());
  }
  if (!found) {
    note(stage.number, &part, std::move(found));
    return stage.rows.count;
  }
  ++filling_;
  add_stage(shift, stage, false);
  stage.filled = stage.compared = shift.added();
  return stage.rows.count;
}

Status Mover::find_reached(Stage& stage, uint64_t done) {
  const MovePart& part = *stage.part;
  const Segment& segment = from_->shape().segments[part.segment];
  const uint64_t row_bytes = row_bytes_of(segment.dtype, segment.dims[2]);
  if (BATON_FAULT(kMoveRead)) return fail(Code::kDevice, "a fault was asked for: the state cannot be read");
  const auto values = from_->view_first(part.segment, stage.rows);
  if (values.empty()) {  // a read says why
    stage.read.resize(row_bytes);
    BATON_OK(from_->read(part.segment, {stage.rows.first, 1}, stage.read.data()));
    return fail(Code::kDevice, "bridge: rows of a state cannot be looked at");
  }
  if (BATON_FAULT(kMoveWrite)) return fail(Code::kDevice, "a fault was asked for: the state cannot be written");
  stage.runs.clear();
  stage.rows.count = values.size() / row_bytes;
  const uint64_t most = std::max<uint64_t>(1, kRunBytes / std::max<uint64_t>(1, row_bytes));
  for (uint64_t row = 0; row < stage.rows.count; row += most)
    stage.runs.push_back({{row, std::min(most, stage.rows.count - row)}, values.data() + row * row_bytes});
  return staged_->stage_copy(part.segment, {part.first_there + done, stage.rows.count}, *from_, stage.rows.first);
}

Status Mover::find_runs(Stage& stage) {
  const MovePart& part = *stage.part;
  const Segment& segment = from_->shape().segments[part.segment];
  const uint64_t row_bytes = row_bytes_of(segment.dtype, segment.dims[2]);
  const uint64_t most = std::max<uint64_t>(1, kRunBytes / std::max<uint64_t>(1, row_bytes));
  if (BATON_FAULT(kMoveRead)) return fail(Code::kDevice, "a fault was asked for: the state cannot be read");
  stage.runs.clear();
  stage.read.clear();
  // They are looked at again when the stage is back: views that would be gone then are read.
  const bool stay = from_->views_kept() == SequenceState::kAllViews;
  for (uint64_t done = 0; done < stage.rows.count;) {
    const RowRange left{stage.rows.first + done, stage.rows.count - done};
    auto values = stay ? from_->view_first(part.segment, left) : std::span<const std::byte>();
    if (values.empty()) {
      stage.read.resize(stage.rows.count * row_bytes);  // once: runs point there
      const std::span<std::byte> read = std::span(stage.read).subspan(done * row_bytes);
      BATON_OK(from_->read(part.segment, left, read.data()));
      values = read;
    }
    for (uint64_t rows = values.size() / row_bytes; rows > 0;) {
      const uint64_t count = std::min(rows, most);
      stage.runs.push_back({{done, count}, values.data()});
      values = values.subspan(count * row_bytes);
      rows -= count;
      done += count;
    }
  }
  return {};
}

void Mover::add_stage(Shift& shift, Stage& stage, bool compares) {
  Batch& batch = batches_[shift.next_batch(Shift::kBatches - 1)];
  batch.stage = &stage;
  batch.compares = compares;
  shift.add(static_cast<uint32_t>(stage.runs.size()));
}

// A quarter of them, or one, are filled while the one before is sent; those before are on their way, and the last is
// compared. With one alone of twelve this thread waited 13 us for each to be filled, half of a hand-over's time.
void Mover::advance_stages(Shift& shift, bool all) {
  const uint64_t filled = all ? 0 : std::max<uint64_t>(1, stages_.size() / 4);
  while (sent_ + filled < filling_ && send_stage(shift)) {
  }
  while (back_ < sent_ && (all || filling_ - back_ + 1 >= stages_.size()) && compare_stage(shift)) {
  }
}

bool Mover::send_stage(Shift& shift) {
  const Stage& stage = stages_[sent_ % stages_.size()];
  shift.wait(stage.filled);
  if (bad_ < stage.number + kSending) return false;
  Status sent = staged_->send();
  sent ? static_cast<void>(++sent_) : note(stage.number + kSending, stage.part, sent);
  return sent.has_value();
}

bool Mover::compare_stage(Shift& shift) {
  Stage& stage = stages_[back_ % stages_.size()];
  const auto back = staged_->sent_back();
  if (!back) {
    note(stage.number + kSending, stage.part, fail(back.error()));
    return false;
  }
  ++back_;
  stage.back = back->data();
  add_stage(shift, stage, true);
  stage.compared = shift.added();
  return true;
}

void Mover::carry(const Batch& batch, uint32_t run, uint32_t thread) {
  const uint64_t number = batch.stage->number + (batch.compares ? kComparing : 0) + run;
  if (number > bad_.load(std::memory_order_relaxed)) return;
  try {
    Status carried = carry_run(batch, batch.stage->runs[run], scratch_[thread]);
    if (!carried) note(number, batch.stage->part, std::move(carried));
  } catch (const std::bad_alloc&) {
    note(number, batch.stage->part,
         fail(Code::kOutOfMemory, "bridge: no memory for a piece of a state: use a shorter context"));
  }
}

Status Mover::carry_run(const Batch& batch, const Run& run, FillScratch& scratch) {
  const Stage& stage = *batch.stage;
  const MovePart& part = *stage.part;
  const Segment& segment = from_->shape().segments[part.segment];
  const uint64_t row_bytes = row_bytes_of(segment.dtype, segment.dims[2]);
  const uint64_t first_there = part.first_there + stage.rows.first - part.rows.first;
  if (batch.compares) {
    const uint64_t offset = part.fill->bytes_there(run.rows.first);
    const std::byte* const staged = reaches_ ? run.values : stage.there + offset;
    return part.fill->check_back({first_there + run.rows.first, run.rows.count},
                                 {run.values, run.rows.count * row_bytes}, staged, stage.back + offset);
  }
  std::vector<std::byte> spoilt;
  return for_run(run.rows.count, segment, [&](RowRange rows) -> Status {
    const uint64_t bytes = rows.count * row_bytes;
    const std::byte* first = run.values + rows.first * row_bytes;
    if (BATON_FAULT(kStateNan)) first = with_nan(first, bytes, spoilt);
    rows.first += run.rows.first;
    BATON_OK(check_sound(segment, tokens_, {stage.rows.first + rows.first, rows.count}, {first, bytes}));
    if (reaches_) return {};
    return part.fill->put_staged({first_there + rows.first, rows.count}, {first, bytes},
                                 stage.there + part.fill->bytes_there(rows.first), scratch);
  });
}

}  // namespace baton

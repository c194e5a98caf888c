// Windows and runs of rows as strided copies.
#include "baton/unit/cuda/state_ferry.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace baton::cuda {
namespace {

// Copies between a state's memory and dense rows of the host, one way or the other.
class Strides {
 public:
  Strides(Stream& stream, bool to_card) : stream_(stream), to_card_(to_card) {}

  Status copy(const FerryPlace& state, const Window& window, std::byte* dense) {
    const Places::Slot& slot = state.places.slots[window.segment];
    if (slot.grows()) return pages(state, slot, window, dense);
    return slot.kind == SlotKind::kConv ? ring(state, slot, window, dense) : block(state, slot, window, dense);
  }

 private:
  Status rows(Address card, uint64_t card_pitch, std::byte* dense, uint64_t dense_pitch, uint64_t bytes,
              uint64_t count) {
    if (count == 0) return {};
    if (card_pitch == bytes && dense_pitch == bytes) bytes *= std::exchange(count, 1);
    if (count == 1) return to_card_ ? stream_.copy_in(card, dense, bytes) : stream_.copy_out(dense, card, bytes);
    return to_card_ ? stream_.copy_rows_in(card, card_pitch, dense, dense_pitch, bytes, count)
                    : stream_.copy_rows_out(dense, dense_pitch, card, card_pitch, bytes, count);
  }

  Status block(const FerryPlace& state, const Places::Slot& slot, const Window& window, std::byte* dense) {
    const auto pitch = static_cast<uint64_t>(slot.at.row_bytes);
    const Address first = state.parts + slot.at.offset + window.head * slot.slab() + window.row * pitch;
    return rows(first, slot.slab(), dense, window.rows * slot.dense_row, window.rows * slot.dense_row, window.heads);
  }

  // Row r is the column of position `position` - rows + r.
  Status ring(const FerryPlace& state, const Places::Slot& slot, const Window& window, std::byte* dense) {
    const auto pitch = static_cast<uint64_t>(slot.at.row_bytes);
    const uint64_t taps = slot.rows, oldest = state.position % taps + 1;  // (position - (taps - 1)) mod taps
    for (uint64_t done = 0; done < window.rows;) {
      const uint64_t column = (oldest + window.row + done) % taps;
      const uint64_t count = std::min(window.rows - done, taps - column);
      BATON_OK(rows(state.parts + slot.at.offset + column * pitch, pitch, dense + done * slot.dense_row, slot.dense_row,
                    slot.dense_row, count));
      done += count;
    }
    return {};
  }

  Status pages(const FerryPlace& state, const Places::Slot& slot, const Window& window, std::byte* dense) {
    for (uint64_t done = 0; done < window.rows;) {
      const uint64_t row = window.row + done, inside = row % kPageTokens;
      const uint64_t count = std::min(window.rows - done, kPageTokens - inside);
      const uint64_t whole =
          count == kPageTokens ? run(state, row / kPageTokens, (window.rows - done) / kPageTokens) : 0;
      const bool by_heads = whole > window.heads && static_cast<uint64_t>(slot.at.row_bytes) == slot.dense_row;
      BATON_OK(by_heads ? heads(state, slot, window, done, whole, dense)
                        : page(state, slot, window, done, count, dense));
      done += by_heads ? whole * kPageTokens : count;
    }
    return {};
  }
  // Pages that lie one behind the other, `first` the first of them.
  static uint64_t run(const FerryPlace& state, uint64_t first, uint64_t most) {
    uint64_t count = 1;
    while (count < most &&
           state.pages[first + count]->address == state.pages[first]->address + count * state.places.page_bytes)
      ++count;
    return count;
  }
  // Rows of one page, of all heads at once.
  Status page(const FerryPlace& state, const Places::Slot& slot, const Window& window, uint64_t done, uint64_t count,
              std::byte* dense) {
    const auto pitch = static_cast<uint64_t>(slot.at.row_bytes);
    const uint64_t row = window.row + done;
    const Address first = state.pages[row / kPageTokens]->address + slot.at.offset + window.head * slot.slab() +
                          row % kPageTokens * pitch;
    std::byte* const to = dense + done * slot.dense_row;
    const uint64_t dense_slab = window.rows * slot.dense_row;
    if (pitch == slot.dense_row) return rows(first, slot.slab(), to, dense_slab, count * pitch, window.heads);
    for (uint64_t head = 0; head < window.heads; ++head)
      BATON_OK(rows(first + head * slot.slab(), pitch, to + head * dense_slab, slot.dense_row, slot.dense_row, count));
    return {};
  }
  // Whole pages, head by head.
  Status heads(const FerryPlace& state, const Places::Slot& slot, const Window& window, uint64_t done, uint64_t count,
               std::byte* dense) {
    const uint64_t first = (window.row + done) / kPageTokens;
    for (uint64_t head = 0; head < window.heads; ++head) {
      const Address from = state.pages[first]->address + slot.at.offset + (window.head + head) * slot.slab();
      BATON_OK(rows(from, state.places.page_bytes, dense + (head * window.rows + done) * slot.dense_row, slot.slab(),
                    slot.slab(), count));
    }
    return {};
  }

  Stream& stream_;
  const bool to_card_;
};

// Of a segment from some row on: all heads, or as many as a block holds, or a part of one head.
Window window_at(const FerryPlace& from, size_t segment, uint64_t head, uint64_t row, uint64_t begin) {
  const uint64_t held = std::max<uint64_t>(1, kFerryBytes / from.places.slots[segment].dense_row);
  const uint64_t left = from.rows(segment) - row, rows = std::min(left, held);
  const uint64_t heads = rows < left || row != begin ? 1 : std::min(from.places.heads[segment] - head, held / rows);
  return {segment, head, heads, row, rows, begin};
}

}  // namespace

uint64_t FerryPlace::rows(size_t segment) const {
  const Places::Slot& slot = places.slots[segment];
  return slot.grows() ? position : slot.rows - (slot.kind == SlotKind::kConv ? 1 : 0);
}

uint64_t Window::dense(size_t of, uint64_t each, RowRange range, uint64_t* place) const {
  const uint64_t first_head = range.first / each, first_row = range.first % each;
  if (of != segment || first_head < head || first_head >= head + heads || first_row < row || first_row >= row + rows)
    return 0;
  *place = (first_head - head) * rows + first_row - row;
  const uint64_t left = rows == each ? heads * rows - *place : row + rows - first_row;
  return std::min(range.count, left);
}

Ferry::~Ferry() { static_cast<void>(wait()); }

// All memory at once: to allocate or free some waits for the whole card, and so for what a step still computes.
Result<std::unique_ptr<Ferry>> Ferry::make(Card& card, const Places& places) {
  std::unique_ptr<Ferry> ferry(new Ferry);
  ferry->card_ = &card;
  ferry->block_bytes_ = kFerryBytes;
  for (const Places::Slot& slot : places.slots) ferry->block_bytes_ = std::max(ferry->block_bytes_, slot.dense_row);
  BATON_TRY(ferry->blocks_, card.allocate_pinned((kBlocks + 1) * ferry->block_bytes_));
  ferry->put_block_ = ferry->blocks_.data() + kBlocks * ferry->block_bytes_;
  for (Load& load : ferry->loads_) {
    BATON_TRY(load.came, card.event());
  }
  for (Stage& stage : ferry->stages_) {
    BATON_TRY(stage.there, card.event());
  }
  BATON_TRY(ferry->stream_, card.stream());
  BATON_TRY(ferry->back_stream_, card.stream());
  return ferry;
}

Status Ferry::wait() {
  if (!std::exchange(busy_, false)) return {};
  const Status waited = stream_.wait(), back = back_stream_.wait();
  return waited ? back : waited;
}

// What is still on its way to the block comes before.
Status Ferry::issue_out(const FerryPlace& from, const Window& window) {
  busy_ = true;
  BATON_OK(Strides(stream_, false).copy(from, window, block(issued_)));
  BATON_OK(stream_.record(load(issued_).came));
  load(issued_++).window = window;
  return {};
}

// The rest of the segment, else the next one: that from the row that this one began with, for a state that is read as
// it grows.
std::optional<Window> Ferry::following(const FerryPlace& from, std::span<const Segment> segments, const Window& window,
                                       Ahead ahead) const {
  if (ahead == Ahead::kNo) return std::nullopt;
  const size_t segment = window.segment;
  const uint64_t end = window.row + window.rows, head = window.head + window.heads;
  if (end < from.rows(segment)) return window_at(from, segment, window.head, end, window.begin);
  if (head < from.places.heads[segment]) return window_at(from, segment, head, window.begin, window.begin);
  const size_t next = segment + 1;
  if (!in_order_ || next >= segments.size()) return std::nullopt;
  if (ahead == Ahead::kLayer && segments[next].layer != segments[segment].layer) return std::nullopt;
  const bool both_grow = from.places.slots[segment].grows() && from.places.slots[next].grows();
  const uint64_t begin = both_grow ? window.begin : 0;
  if (from.rows(next) <= begin) return std::nullopt;
  return window_at(from, next, 0, begin, begin);
}

Status Ferry::noted(Status status) {
  if (!status && failed_) failed_ = status;
  return status;
}

Result<std::span<const std::byte>> Ferry::fetch(const FerryPlace& from, std::span<const Segment> segments,
                                                size_t segment, RowRange range, Ahead ahead) {
  BATON_OK(failed_);
  auto rows = look(from, segments, segment, range, ahead);
  if (!rows) BATON_OK(noted(fail(rows.error())));
  return rows;
}

Status Ferry::put(const FerryPlace& to, size_t segment, RowRange range, const std::byte* in) {
  BATON_OK(failed_);
  return noted(gather(to, segment, range, in));
}

Status Ferry::flush(const FerryPlace& to) {
  BATON_OK(failed_);
  return noted(deliver(to));
}

Result<std::span<const std::byte>> Ferry::look(const FerryPlace& from, std::span<const Segment> segments,
                                               size_t segment, RowRange range, Ahead ahead) {
  BATON_CHECK(staged_ == back_);
  if (put_.count > 0) BATON_OK(send_put(from));
  const uint64_t each = from.rows(segment), row_bytes = from.places.slots[segment].dense_row;
  uint64_t place = 0;
  uint64_t count = here_ ? load(shown_ - 1).window.dense(segment, each, range, &place) : 0;
  if (count == 0) {
    here_ = false;
    const bool foreseen = issued_ > shown_ && load(shown_).window.dense(segment, each, range, &place) > 0;
    if (issued_ > shown_) ahead_ = foreseen ? std::min(ahead_ + 1, kBlocks - kKept) : kAheadMiss;
    if (!foreseen) {
      issued_ = shown_;
      const uint64_t row = range.first % each;
      BATON_OK(issue_out(from, window_at(from, segment, range.first / each, row, row)));
    }
    BATON_OK(load(shown_).came.wait());
    busy_ = issued_ > shown_ + 1;
    here_ = true;
    const Window& window = load(shown_++).window;
    if (last_segment_ != segment) in_order_ = segment == (last_segment_ ? *last_segment_ + 1 : 0);
    last_segment_ = segment;
    count = window.dense(segment, each, range, &place);
    while (issued_ - shown_ < ahead_) {
      const auto next = following(from, segments, load(issued_ - 1).window, ahead);
      if (!next) break;
      BATON_OK(issue_out(from, *next));
    }
  }
  return std::span(block(shown_ - 1) + place * row_bytes, count * row_bytes);
}

// As windows: of the first head, of whole heads, of the last.
Status Ferry::issue_rows(Stream& stream, bool to_card, const FerryPlace& at, size_t segment, RowRange range,
                         std::byte* dense) {
  const uint64_t each = at.rows(segment), row_bytes = at.places.slots[segment].dense_row;
  for (uint64_t done = 0; done < range.count;) {
    const uint64_t row = (range.first + done) % each, left = range.count - done;
    const uint64_t rows = std::min(left, each - row), heads = rows == each ? left / each : 1;
    const Window window{segment, (range.first + done) / each, heads, row, rows, row};
    BATON_OK(Strides(stream, to_card).copy(at, window, dense + done * row_bytes));
    done += heads * rows;
  }
  return {};
}

Status Ferry::send_put(const FerryPlace& to) {
  busy_ = true;
  Status issued = issue_rows(stream_, true, to, put_segment_, put_, put_block_);
  put_.count = 0;
  forget();
  return issued;
}

Result<std::byte*> Ferry::stage(const FerryPlace& to, size_t segment, RowRange range) {
  BATON_OK(failed_);
  BATON_CHECK(staged_ - back_ < kStages && range.count * to.places.slots[segment].dense_row <= block_bytes_);
  if (staged_ == back_) {  // blocks may be in use by what was read or put
    forget();
    BATON_OK(noted(deliver(to)));
  }
  const uint64_t number = staged_++ % kStages;
  stages_[number].segment = segment;
  stages_[number].rows = range;
  stages_[number].from.reset();
  return block(2 * number);
}

Status Ferry::issue_sent(const FerryPlace& to) {
  const uint64_t number = sent_++ % kStages;
  Stage& stage = stages_[number];
  busy_ = true;
  BATON_OK(stage.from ? issue_copy(to, stage)
                      : issue_rows(stream_, true, to, stage.segment, stage.rows, block(2 * number)));
  BATON_OK(stream_.record(stage.there));
  BATON_OK(back_stream_.wait_for(stage.there));
  BATON_OK(issue_rows(back_stream_, false, to, stage.segment, stage.rows, block(2 * number + 1)));
  return back_stream_.record(load(2 * number + 1).came);
}

Status Ferry::send(const FerryPlace& to) {
  BATON_OK(failed_);
  BATON_CHECK(sent_ < staged_);
  Status issued = noted(issue_sent(to));
  if (!issued) static_cast<void>(wait());  // memory that rows come from may go behind this
  return issued;
}

Result<std::span<const std::byte>> Ferry::sent_back(const FerryPlace& to) {
  BATON_OK(failed_);
  BATON_CHECK(back_ < sent_);
  const uint64_t number = back_++ % kStages;
  const Status came = noted(load(2 * number + 1).came.wait());
  if (!came) static_cast<void>(wait());
  BATON_OK(came);
  const Stage& stage = stages_[number];
  return std::span(block(2 * number + 1), stage.rows.count * to.places.slots[stage.segment].dense_row);
}

Status Ferry::deliver(const FerryPlace& to) {
  if (put_.count > 0) BATON_OK(send_put(to));
  return wait();
}

Status Ferry::gather(const FerryPlace& to, size_t segment, RowRange range, const std::byte* in) {
  const uint64_t row_bytes = to.places.slots[segment].dense_row;
  const uint64_t held = std::max<uint64_t>(1, kFerryBytes / row_bytes);
  while (range.count > 0) {
    const bool follows = segment == put_segment_ && range.first == put_.first + put_.count && put_.count < held;
    if (!follows || put_.count == 0) {
      BATON_OK(deliver(to));
      put_segment_ = segment;
      put_ = {range.first, 0};
    }
    const uint64_t count = std::min(range.count, held - put_.count);
    std::memcpy(put_block_ + put_.count * row_bytes, in, count * row_bytes);
    put_.count += count;
    range = {range.first + count, range.count - count};
    in += count * row_bytes;
  }
  return {};
}

void Ferry::forget() {
  here_ = false;
  issued_ = shown_;
}

Status Ferry::rest() {
  forget();
  put_.count = 0;
  staged_ = sent_ = back_ = 0;
  last_segment_.reset();
  in_order_ = false;
  ahead_ = kBlocks - kKept;
  Status waited = wait();
  return failed_ ? waited : failed_;
}

Result<std::unique_ptr<Ferry>> FerryDock::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Ferry> ferry = std::move(idle_.back());
      idle_.pop_back();
      return ferry;
    }
  }
  return Ferry::make(card_, places_);
}

Status FerryDock::stock() {
  BATON_TRY(auto ferry, take());
  give(std::move(ferry));
  return {};
}

// One that failed is not kept.
void FerryDock::give(std::unique_ptr<Ferry> ferry) {
  if (ferry == nullptr || !ferry->rest()) return;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleMax) idle_.push_back(std::move(ferry));
}

}  // namespace baton::cuda

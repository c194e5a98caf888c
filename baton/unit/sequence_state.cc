// The checks around a unit's own reads and writes.
#include "baton/unit/sequence_state.h"

#include <fmt/format.h>

namespace baton {

Dims SequenceState::checked_dims(size_t segment, RowRange rows) const {
  BATON_CHECK(segment < shape().segments.size());
  const Dims dims = dims_at(shape().segments[segment], shown_position());
  const uint64_t all = dims[0] * dims[1];
  BATON_CHECK(rows.first <= all && rows.count <= all - rows.first);
  return dims;
}

Status SequenceState::read(size_t segment, RowRange rows, std::byte* out) const {
  const Dims dims = checked_dims(segment, rows);
  return rows.count == 0 ? Status() : read_rows(segment, dims, rows, out);
}

const std::byte* SequenceState::view(size_t segment, RowRange rows) const {
  const Dims dims = checked_dims(segment, rows);
  if (rows.count == 0) return nullptr;
  const auto first = view_rows(segment, dims, rows);
  return first.size() == rows.count * row_bytes_of(shape().segments[segment].dtype, dims[2]) ? first.data() : nullptr;
}

std::span<const std::byte> SequenceState::view_first(size_t segment, RowRange rows) const {
  const Dims dims = checked_dims(segment, rows);
  return rows.count == 0 ? std::span<const std::byte>() : view_rows(segment, dims, rows);
}

void SequenceState::begin_write(uint64_t tokens) {
  BATON_CHECK(position_ == 0 && !filling_ && tokens <= tokens_max_);
  filling_ = tokens;
  rows_written_ = 0;
  searched_ = false;
}

Status SequenceState::write(size_t segment, RowRange rows, const std::byte* in) {
  BATON_CHECK(filling_);
  const Dims dims = checked_dims(segment, rows);
  rows_written_.fetch_add(rows.count, std::memory_order_relaxed);
  return rows.count == 0 ? Status() : write_rows(segment, dims, rows, in);
}

Result<bool> SequenceState::share_writes() {
  BATON_CHECK(filling_ && rows_written_ == 0);
  return share_row_writes(*filling_);
}

Result<std::byte*> SequenceState::stage(size_t segment, RowRange rows) {
  BATON_CHECK(filling_ && stages() > 0 && rows.count > 0);
  const Dims dims = checked_dims(segment, rows);
  rows_written_.fetch_add(rows.count, std::memory_order_relaxed);
  return stage_rows(segment, dims, rows);
}

Status SequenceState::stage_copy(size_t segment, RowRange rows, const SequenceState& from, uint64_t first) {
  BATON_CHECK(filling_ && stages() > 0 && rows.count > 0);
  const Dims dims = checked_dims(segment, rows);
  from.checked_dims(segment, {first, rows.count});
  rows_written_.fetch_add(rows.count, std::memory_order_relaxed);
  return stage_row_copy(segment, dims, rows, from, first);
}

Status SequenceState::send() {
  BATON_CHECK(filling_ && stages() > 0);
  return send_rows();
}

Result<std::span<const std::byte>> SequenceState::sent_back() {
  BATON_CHECK(filling_ && stages() > 0);
  return back_rows();
}

bool SequenceState::adopt(SequenceState& from) {
  BATON_CHECK(position_ == 0 && !filling_ && !from.filling_ && from.position_ <= tokens_max_);
  if (!can_adopt(from) || !exchange_memory(from)) return false;
  set_position(from.position_, from.searched_);
  from.set_position(0, true);
  return true;
}

Status SequenceState::finish_write(bool searched) {
  BATON_CHECK(filling_);
  uint64_t rows = 0;
  for (const Segment& segment : shape().segments) {
    const Dims dims = dims_at(segment, *filling_);
    rows += dims[0] * dims[1];
  }
  if (rows_written_ != rows) {
    return fail(Code::kInternal, fmt::format("a state of {} tokens was filled with {} rows of {}", *filling_,
                                             rows_written_.load(), rows));
  }
  BATON_OK(finish_rows());
  set_position(*filling_, searched);
  filling_.reset();
  return {};
}

}  // namespace baton

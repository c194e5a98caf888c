// Batches from the sender, pieces for the crew.
#include "baton/bridge/mover.h"

#include <algorithm>
#include <new>
#include <utility>

#include "baton/bridge/state_pieces.h"

namespace baton {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{64}
                                 << 10;  // that a thread takes at a time: 8 us, and a piece takes 0.3 to take
constexpr uint64_t kHelperBytes = uint64_t{256} << 10;  // of a move, for each helper: less is moved before it is awake
constexpr uint64_t kPiecesMax = 4096;                   // of a batch

Status end_of(const MovePart& part) {
  if (part.fill == nullptr || part.end == MoveEnd::kNo) return {};
  return part.end == MoveEnd::kFinish ? part.fill->finish() : part.fill->flush();
}

}  // namespace

uint64_t Mover::bytes_of(const SequenceState& from, const MovePart& part) {
  const Segment& segment = from.shape().segments[part.segment];
  return part.rows.count * row_bytes_of(segment.dtype, segment.dims[2]);
}

Status Mover::move(const SequenceState& from, uint64_t tokens, std::span<const MovePart> parts) {
  from_ = &from;
  tokens_ = tokens;
  uint64_t bytes = 0;
  for (const MovePart& part : parts) bytes += bytes_of(from, part);
  const auto helpers = static_cast<uint32_t>(std::min<uint64_t>(bytes / kHelperBytes, Crew::kThreadsMax));
  reaches_ = staged_ != nullptr && from.views_kept() > 1 && staged_->reaches(from);
  if (reaches_) {
    BATON_OK(move_together(parts, helpers));
    reached_bytes_ += bytes;
    return {};
  }
  if ((shared_ || staged_ != nullptr) && crew_ != nullptr && helpers > 0) return move_together(parts, helpers);
  for (const MovePart& part : parts) {
    BATON_OK(move_alone(part));
    BATON_OK(end_of(part));
  }
  return {};
}

Status Mover::move_together(std::span<const MovePart> parts, uint32_t helpers) {
  pieces_ = 0;
  bad_ = UINT64_MAX;
  bad_part_ = nullptr;
  status_ = {};
  // What a sender brings ahead is on its way while helpers wake.
  if (shared_ && !reaches_ && !parts.empty() && parts[0].rows.count > 0)
    static_cast<void>(from_->view_first(parts[0].segment, parts[0].rows));
  {
    Shift shift(crew_, *this, helpers);
    if (!shared_ || reaches_) deal_stages(shift, parts);
    for (size_t i = 0; shared_ && !reaches_ && i < parts.size() && bad_ == UINT64_MAX; ++i) {
      if (Status dealt = deal(shift, parts[i]); !dealt) note(pieces_, &parts[i], std::move(dealt));
    }
  }
  // What is wrong with a segment as a whole is said before what is wrong with later ones.
  for (const MovePart& part : parts) {
    if (&part == bad_part_) break;
    BATON_OK(end_of(part));
  }
  return std::exchange(status_, {});
}

Status Mover::move_alone(const MovePart& part) {
  return for_values(*from_, tokens_, part.segment, part.rows, piece_, [&](RowRange rows, auto values) {
    if (part.fill == nullptr) return Status();
    return part.fill->put({part.first_there + rows.first - part.rows.first, rows.count}, values);
  });
}

Status Mover::deal(Shift& shift, const MovePart& part) {
  const Segment& segment = from_->shape().segments[part.segment];
  const uint32_t others = std::min(from_->views_kept(), Shift::kBatches) - 1;
  for (uint64_t done = 0; done < part.rows.count;) {
    // What the sender showed before this one's views may go with the next look.
    Batch& batch = batches_[shift.next_batch(others)];
    if (bad_.load(std::memory_order_relaxed) != UINT64_MAX) return {};
    batch.stage = nullptr;
    batch.part = &part;
    batch.row_bytes = row_bytes_of(segment.dtype, segment.dims[2]);
    batch.piece_rows = std::max<uint64_t>(1, kPieceBytes / std::max<uint64_t>(1, batch.row_bytes));
    batch.number = pieces_;
    if (BATON_FAULT(kMoveRead)) return fail(Code::kDevice, "a fault was asked for: the state cannot be read");
    BATON_OK(look(batch, {part.rows.first + done, part.rows.count - done}));
    const uint64_t pieces = (batch.rows.count + batch.piece_rows - 1) / batch.piece_rows;
    done += batch.rows.count;
    pieces_ += pieces;
    shift.add(static_cast<uint32_t>(pieces));
  }
  return {};
}

Status Mover::look(Batch& batch, RowRange left) {
  left.count = std::min(left.count, kPiecesMax * batch.piece_rows);
  const auto values = from_->view_first(batch.part->segment, left);
  batch.values = values.data();
  batch.rows = {left.first, batch.row_bytes == 0 ? left.count : values.size() / batch.row_bytes};
  if (batch.rows.count > 0) return {};
  batch.rows.count = std::min(left.count, batch.piece_rows);
  batch.read.resize(batch.rows.count * batch.row_bytes);
  batch.values = batch.read.data();
  return from_->read(batch.part->segment, batch.rows, batch.read.data());
}

// Pieces before the first that failed are all carried out, so that it stays the first whoever is quicker.
void Mover::piece(uint32_t index, uint32_t piece, uint32_t thread) {
  const Batch& batch = batches_[index];
  if (batch.stage != nullptr) return carry(batch, piece, thread);
  const uint64_t number = batch.number + piece, first = piece * batch.piece_rows;
  if (number > bad_.load(std::memory_order_relaxed)) return;
  const RowRange rows{batch.rows.first + first, std::min(batch.piece_rows, batch.rows.count - first)};
  try {
    Status moved = move_rows(batch, rows, batch.values + first * batch.row_bytes, thread);
    if (!moved) note(number, batch.part, std::move(moved));
  } catch (const std::bad_alloc&) {
    note(number, batch.part,
         fail(Code::kOutOfMemory, "bridge: no memory for a piece of a state: use a shorter context"));
  }
}

Status Mover::move_rows(const Batch& batch, RowRange rows, const std::byte* values, uint32_t thread) {
  const MovePart& part = *batch.part;
  const Segment& segment = from_->shape().segments[part.segment];
  FillScratch& scratch = scratch_[thread];
  std::vector<std::byte> spoilt;
  return for_run(rows.count, segment, [&](RowRange piece) -> Status {
    const uint64_t bytes = piece.count * batch.row_bytes;
    const std::byte* first = values + piece.first * batch.row_bytes;
    if (BATON_FAULT(kStateNan)) first = with_nan(first, bytes, spoilt);
    piece.first += rows.first;
    BATON_OK(check_sound(segment, tokens_, piece, {first, bytes}));
    if (part.fill == nullptr) return {};
    return part.fill->put_beside({part.first_there + piece.first - part.rows.first, piece.count}, {first, bytes},
                                 scratch);
  });
}

void Mover::note(uint64_t number, const MovePart* part, Status status) {
  const std::lock_guard lock(mutex_);
  if (number >= bad_.load(std::memory_order_relaxed)) return;
  bad_.store(number, std::memory_order_relaxed);
  bad_part_ = part;
  status_ = std::move(status);
}

}  // namespace baton

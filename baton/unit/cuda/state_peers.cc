// Rows from another card: which copies between the two bring them.
#include <algorithm>

#include "baton/unit/cuda/state_ferry.h"

namespace baton::cuda {

Status Ferry::stage_copy(const FerryPlace& to, size_t segment, RowRange range, const FerryPlace& from, const Card& card,
                         uint64_t first) {
  BATON_OK(stage(to, segment, range));
  Stage& stage = stages_[(staged_ - 1) % kStages];
  stage.from.emplace(from);
  stage.card = &card;
  stage.first = first;
  return {};
}

// As many of the rows of a stage from `done` on as one copy brings, which `copy` becomes: of keys and values whole
// pages that follow each other on both sides, else up to the end of a page; of a convolution up to the end of a ring.
uint64_t Ferry::next_copy(const FerryPlace& to, const Stage& stage, uint64_t done, RowsBetween& copy) {
  const FerryPlace& from = *stage.from;
  const Places::Slot& slot = to.places.slots[stage.segment];
  const auto pitch = static_cast<uint64_t>(slot.at.row_bytes);
  const uint64_t each = to.rows(stage.segment), each_from = from.rows(stage.segment);
  const uint64_t head = (stage.rows.first + done) / each, row = (stage.rows.first + done) % each;
  BATON_CHECK((stage.first + done) / each_from == head && (stage.first + done) % each_from == row);
  const uint64_t left = stage.rows.count - done;
  const uint64_t count = std::min({left, each - row, each_from - row});  // of this head
  const auto set = [&](Address at, uint64_t row_at, Address at_from, uint64_t row_from, uint64_t rows) {
    const uint64_t offset = slot.at.offset + head * slot.slab();
    copy = {at + offset + row_at * pitch, at_from + offset + row_from * pitch, rows * pitch, rows * pitch, 1};
    return rows;
  };
  if (slot.kind == SlotKind::kConv) {
    const uint64_t column = (to.position + 1 + row) % slot.rows, column_from = (from.position + 1 + row) % slot.rows;
    return set(to.parts, column, from.parts, column_from,
               std::min({count, slot.rows - column, slot.rows - column_from}));
  }
  if (!slot.grows()) return set(to.parts, row, from.parts, row, left);  // heads lie one behind the other
  const uint64_t page = row / kPageTokens, inside = row % kPageTokens;
  set(to.pages[page]->address, inside, from.pages[page]->address, inside, std::min(count, kPageTokens - inside));
  if (inside > 0) return copy.bytes / pitch;
  const auto follows = [&](const FerryPlace& of) {
    return of.pages[page + copy.rows]->address == of.pages[page]->address + copy.rows * of.places.page_bytes;
  };
  while ((copy.rows + 1) * kPageTokens <= count && follows(to) && follows(from)) ++copy.rows;
  if (copy.rows > 1) copy.pitch = to.places.page_bytes;
  return copy.rows * copy.bytes / pitch;
}

Status Ferry::issue_copy(const FerryPlace& to, const Stage& stage) {
  RowsBetween copy;
  for (uint64_t done = 0; done < stage.rows.count;) {
    done += next_copy(to, stage, done, copy);
    BATON_OK(stream_.copy_rows_from(*stage.card, copy.to, copy.pitch, copy.from, copy.pitch, copy.bytes, copy.rows));
  }
  return {};
}

}  // namespace baton::cuda

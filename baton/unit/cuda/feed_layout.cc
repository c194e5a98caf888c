// What of a block's shared memory is for weights on their way.
#include "baton/unit/cuda/feed_layout.h"

#include <algorithm>
#include <bit>

#include "baton/unit/cuda/mixers_geometry.h"
#include "baton/unit/cuda/packings.h"

namespace baton::cuda {
namespace {

// Slots that fit behind `work_bytes`: a power of two, or none.
uint32_t slots_log2_in(uint32_t shared_bytes, uint64_t work_bytes, uint32_t slot_bytes) {
  if (shared_bytes < work_bytes + kKeptBytes) return 0;
  const uint32_t room = shared_bytes - kKeptBytes;
  const uint32_t slots = std::min((room - static_cast<uint32_t>(work_bytes)) / (slot_bytes + kSlotBarriers),
                                  // barriers lie behind what other kinds work in
                                  room < kAttendShared ? 0 : (room - kAttendShared) / kSlotBarriers);
  return slots == 0 ? 0 : static_cast<uint32_t>(std::bit_width(std::min(slots, kSlotsMax))) - 1;
}

// How pieces of a product lie in slots.
void share_slots(Instruction& in, int32_t span) {
  ProductShares& to = in.product;
  while (to.spans << to.bundle_log2 < static_cast<int32_t>(kBundle)) ++to.bundle_log2;
  if (to.spans << to.bundle_log2 > static_cast<int32_t>(kBundle)) to.bundle_log2 = 0;
  for (int32_t i = 0; i < in.matrices; ++i)
    to.span_stride = std::max(to.span_stride, static_cast<int32_t>(piece_bytes(in.matrix[i], span)));
  const int32_t last = (to.spans - 1) * span, columns = in.matrix[0].pitch - last;  // of the last span
  const StripGroup of(in.matrix[0].pitch, last / kGroup);
  for (int32_t i = 0; i < in.matrices; ++i)
    to.row_stride = std::max(to.row_stride, (to.spans - 1) * to.span_stride +
                                                static_cast<int32_t>(piece_bytes(in.matrix[i], columns, of.groups)));
}

}  // namespace

uint32_t feed_bytes(const FeedPlan& plan) {
  return barriers_at(plan) + (plan.set == 0 ? 0 : kSlotBarriers << plan.slots_log2);
}

void share_out(Instruction& in, const FeedPlan& plan, uint32_t blocks) {
  if (in.what != Do::kMultiply) return;
  ProductShares& to = in.product;
  to = {};
  const bool pairs = in.epilogue == Epilogue::kSwiGlu || in.epilogue == Epilogue::kGeGlu;
  int32_t count = 0;
  for (int32_t i = 0; i < (pairs ? 1 : in.matrices); ++i) count += in.matrix[i].rows;
  to.outputs = count / static_cast<int32_t>(blocks);
  to.more = count % static_cast<int32_t>(blocks);
  to.spans = (in.matrix[0].pitch + plan.span - 1) / plan.span;
  while ((1 << to.slices_log2) < to.spans && (1 << to.slices_log2) < kWarps) ++to.slices_log2;
  // Of a warp that has several spans of an output pieces come one output after the other.
  while (to.spans <= kWarps && (2u << to.each_log2) <= plan.set) ++to.each_log2;
  if (pairs && to.each_log2 > 0) --to.each_log2;
  share_slots(in, plan.span);
  bool one = true;
  for (int32_t i = 1; i < in.matrices; ++i)
    one = one && in.matrix[i].form == in.matrix[0].form && in.matrix[i].bits == in.matrix[0].bits;
  to.form = in.matrix[0].form;
  to.packing = packing_of(in);
  to.flags = static_cast<uint8_t>((pairs ? ProductShares::kPairs : 0) | (by_fours(in) ? ProductShares::kFours : 0) |
                                  (tile_rows(in, kTile, plan.work_bytes) == kTile ? ProductShares::kTiles : 0) |
                                  (one ? ProductShares::kOneForm : 0));
}

bool is_plain(const Instruction& in, const FeedPlan& plan) {
  if (in.what == Do::kConvDelta) return is_plain_delta(in.op);
  if (in.what == Do::kAttend) return attends_by_mma(in);
  if (in.what != Do::kMultiply) return is_usual(in.what);
  bool codes = true;
  for (int32_t i = 0; i < in.matrices; ++i) codes = codes && in.matrix[i].form == Form::kCodes;
  const bool values =
      (in.product.form == Form::kBF16 || in.product.form == Form::kF16) && in.product.has(ProductShares::kOneForm);
  return (codes || values) && in.product.spans <= kThreads / 32 && plan.set == 4 && plan.span == 1024 && plan.ahead &&
         staged_bytes(in, 1) <= half_of(plan);
}

int32_t chain_products(std::span<Instruction> list) {
  int32_t next = -1;
  for (size_t i = list.size(); i-- > 0;) {
    list[i].next_product = next;
    if (list[i].what == Do::kMultiply) next = static_cast<int32_t>(i);
  }
  return next;
}

FeedPlan plan_feed(std::span<const Instruction> instructions, uint32_t shared_bytes) {
  struct Choice {
    bool ahead;
    int32_t span;
    uint32_t set;
  };
  // A card with little shared memory keeps none of it for what comes: weights then lie where other kinds work.
  static constexpr Choice kChoices[] = {{true, 1024, 4},  {true, 1024, 2}, {false, 1024, 4},
                                        {false, 1024, 2}, {false, 512, 2}, {false, 256, 2}};
  uint64_t one = kBeforeRows, tile = kBeforeRows;
  for (const Instruction& in : instructions) {
    if (in.what != Do::kMultiply) continue;
    one = std::max(one, staged_bytes(in, 1));
    tile = std::max(tile, staged_bytes(in, kTile));
  }
  for (const Choice& choice : kChoices) {
    uint32_t slot = 16;
    for (const Instruction& in : instructions) {
      for (int32_t i = 0; in.what == Do::kMultiply && i < in.matrices; ++i)
        slot = std::max(slot, kBundle * piece_bytes(in.matrix[i], choice.span));
    }
    for (const uint64_t staged : {choice.ahead ? 2 * one : tile, one}) {
      const uint64_t work = choice.ahead ? std::max<uint64_t>((staged + 255) / 256 * 256, kAttendShared) : staged;
      const uint32_t slots_log2 = slots_log2_in(shared_bytes, work, slot);
      if (kBundle << slots_log2 < choice.set * (kThreads / 32)) continue;
      FeedPlan plan;
      plan.ahead = choice.ahead;
      plan.span = choice.span;
      plan.set = choice.set;
      plan.work_bytes = static_cast<uint32_t>(work);
      plan.slot_bytes = slot;
      plan.slots_log2 = slots_log2;
      return plan;
    }
  }
  return {};
}

ListWork list_of_one(const Instruction& product, Address pass, uint32_t shared_bytes, uint32_t blocks) {
  ListWork list;
  list.count = 1;
  list.first_product = 0;
  list.pass = pass;
  list.feed = plan_feed({&product, 1}, shared_bytes);
  list.alone = product;
  list.alone.next_product = -1;
  if (list.feed.set > 0) share_out(list.alone, list.feed, blocks);
  return list;
}

}  // namespace baton::cuda

// What of a block's shared memory is for weights on their way.
#include "baton/unit/cuda/feed_layout.h"

#include <algorithm>

namespace baton::cuda {
namespace {

// Pieces of each warp that fit behind `work_bytes`.
uint32_t slots_in(uint32_t shared_bytes, uint64_t work_bytes, uint32_t slot_bytes) {
  if (shared_bytes < work_bytes + kKeptBytes) return 0;
  return (shared_bytes - static_cast<uint32_t>(work_bytes) - kKeptBytes) / (slot_bytes * (kThreads / 32));
}

}  // namespace

uint32_t feed_bytes(const FeedPlan& plan) {
  return std::max(kAttendShared, plan.work_bytes + plan.slots * plan.slot_bytes * (kThreads / 32));
}

FeedPlan plan_feed(std::span<const Instruction> instructions, uint32_t shared_bytes) {
  struct Choice {
    bool ahead;
    int32_t span;
    uint32_t set;
  };
  // A card with little shared memory keeps none of it for what comes: weights then lie where other kinds work.
  static constexpr Choice kChoices[] = {
      {true, 1024, 4}, {false, 1024, 4}, {false, 1024, 2}, {false, 512, 2}, {false, 256, 2}};
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
        slot = std::max(slot, piece_bytes(in.matrix[i], choice.span));
    }
    for (const uint64_t staged : {tile, one}) {
      const uint64_t work = choice.ahead ? std::max<uint64_t>(one, kAttendShared) : staged;
      const uint32_t slots = slots_in(shared_bytes, work, slot);
      if (slots < choice.set) continue;
      FeedPlan plan;
      plan.ahead = choice.ahead;
      plan.span = choice.span;
      plan.set = choice.set;
      plan.work_bytes = static_cast<uint32_t>(work);
      plan.slot_bytes = slot;
      plan.slots = slots;
      return plan;
    }
  }
  return {};
}

}  // namespace baton::cuda

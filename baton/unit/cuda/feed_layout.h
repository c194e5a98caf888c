// How weights of products come to a block (kernels/feed.cuh) and where they lie in its shared memory: behind what kinds
// work in (staging.h) a ring of pieces. The same for kernels and for the host that launches them.
#pragma once

#include <span>

#include "baton/unit/cuda/staging.h"
#include "baton/unit/cuda/strips.h"

namespace baton::cuda {

inline constexpr uint32_t kKeptBytes = 9728;    // what kernels have beside: instructions, the pass, shares
inline constexpr uint32_t kFeederThreads = 32;  // of a block of kMultiply or of a list, beside kThreads
inline constexpr uint32_t kClerkThreads = 32;   // of a block of a list for one row, beside these (kernels/tickets.cuh)
inline constexpr uint32_t kBundle = 4;          // pieces that come together, at most, and that a slot holds
inline constexpr uint32_t kSlotsMax = 32;       // bundles of a block that may be on their way
inline constexpr uint32_t kSlotBarriers = 16;   // bytes: one is full, one is empty

// Bytes of a piece, `columns` of a row that begin a span: 16-byte places of dense values, or codes with all scales of
// their strip, which is of `of_strip` groups.
BATON_BOTH constexpr uint32_t piece_bytes(const Matrix& matrix, int32_t columns, int32_t of_strip = kStripGroups) {
  if (matrix.form == Form::kF32) return static_cast<uint32_t>(columns) * 4;
  if (matrix.form != Form::kCodes) return static_cast<uint32_t>(columns) * 2;
  return static_cast<uint32_t>(planes_bytes(matrix.bits, columns / kGroup) + scales_bytes(matrix, of_strip));
}

// Where the barriers of the slots lie: behind all pieces, and behind what other kinds work in.
BATON_BOTH constexpr uint32_t barriers_at(const FeedPlan& plan) {
  const uint32_t end = plan.work_bytes + (plan.slot_bytes << plan.slots_log2);
  return end > kAttendShared ? end : kAttendShared;
}

// Kernels for lists of one row (is_plain) have two places to work in, in turns: an instruction's warps may then begin
// while others are still at the one before. Bytes of each.
BATON_BOTH constexpr uint32_t half_of(const FeedPlan& plan) { return plan.work_bytes / 256 * 128; }
static_assert(kDeltaRowRoom <= kAttendShared / 2);

// Shared memory of a block, beside what its kernel keeps.
uint32_t feed_bytes(const FeedPlan& plan);

// Shares a product out to `blocks` blocks that have their weights by `plan`.
void share_out(Instruction& in, const FeedPlan& plan, uint32_t blocks);

// Kinds beside products and delta rules that the kernels for lists of one row have (kernels/list_plain.cu): those of
// most models. The rest, experts above all, would take a compiler as long as all of these.
BATON_BOTH constexpr bool is_usual(Do what) {
  switch (what) {
    case Do::kEmbed:
    case Do::kPrepare:
    case Do::kHeads:
    case Do::kAppend:
    case Do::kAttend:
    case Do::kAttendJoin:
    case Do::kEach:
    case Do::kPick:
    case Do::kCap:
    case Do::kPenalise:
    case Do::kArgmax:
    case Do::kDraw:
    case Do::kAdvance:
      return true;
    default:
      return false;
  }
}

// Whether these kernels do such an instruction: of products, delta rules and attention those that most models have;
// `in` is shared out.
bool is_plain(const Instruction& in, const FeedPlan& plan);

// Whether a pass is one that they do: of one row, whose outputs are asked for. Without those the output head has no
// rows, and its weights do not come.
BATON_BOTH constexpr bool is_one_row(const Pass& pass) { return pass.rows == 1 && pass.rows_out == 1; }

// Sets next_product of the instructions of a list; returns the first product, or -1.
int32_t chain_products(std::span<Instruction> list);

// A kMultiply as a list that needs no memory of the card's but the pass's. feed.set 0: there is no room for it.
ListWork list_of_one(const Instruction& product, Address pass, uint32_t shared_bytes, uint32_t blocks);

// For the products among `instructions`, in a kernel whose blocks may have shared_bytes of shared memory. set 0: there
// is no room for them.
FeedPlan plan_feed(std::span<const Instruction> instructions, uint32_t shared_bytes);

}  // namespace baton::cuda

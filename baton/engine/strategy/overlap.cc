// overlap: as handoff, but the state leaves layer by layer while the prefill unit makes it.
#include "baton/engine/strategy.h"

namespace baton {
namespace {

StepPlan plan_overlap(const RequestView& view) {
  const bool hands_over = !view.handed_over && !view.alone && !view.start_check_due && !view.same_unit;
  if (!hands_over) return plan_handoff(view);
  const RoleView& target = view.target();
  if (target.exists && !target.busy && target.position >= view.need)
    return view.source().busy ? StepPlan() : StepPlan::take_over();
  // A short prompt is one step: it waits for the room when that is made at once, not behind others' tokens.
  const bool waits = !target.exists && (target.busy || view.room_soon);
  const StepPlan handoff = plan_handoff(view);
  StepPlan plan;
  for (PlannedWork work : handoff.works()) {
    const bool prefills = work.kind == WorkKind::kStep && work.role == StateRole::kSource;
    if (prefills && waits) continue;
    work.streams = prefills && target.exists && !target.busy;
    plan.add(work);
  }
  return plan;
}

}  // namespace

extern const Strategy k_strategy_overlap;
const Strategy k_strategy_overlap = {
    .name = "overlap",
    .summary = "as handoff, the state moved layer by layer while the prefill unit makes it",
    .hand_overs = 1,
    .plan = plan_overlap,
};

}  // namespace baton

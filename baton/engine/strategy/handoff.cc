// handoff: the prefill unit processes all prompt tokens but the last, the state moves over the bridge, and the decode
// unit processes the last prompt token and goes on. While the prefill unit works, the decode unit makes room for the
// state and, when a proof is wanted, makes its own.
#include "baton/engine/strategy.h"

namespace baton {
namespace {

StepPlan plan(const RequestView& view) {
  if (view.handed_over) return plan_decode(view);
  if (view.alone) return plan_alone(view);
  if (view.start_check_due) return plan_start_check(view);

  StepPlan steps;
  const RoleView& source = view.source();
  const RoleView& target = view.target();
  const bool room = view.same_unit || target.exists;
  if (!room && !target.busy) steps.add({.kind = WorkKind::kMake, .role = StateRole::kTarget});
  if (view.proof_wanted && !view.proof_repeats) plan_prefill(view, StateRole::kProof, view.need, steps);

  if (source.busy) return steps;
  if (!source.exists && view.start_pending) {
    steps.add({.kind = WorkKind::kMake, .role = StateRole::kSource});
  } else if (view.start_pending) {
    steps.add({.kind = WorkKind::kMove, .role = StateRole::kSource, .form = MoveForm::kOpen});
  } else if (!source.exists || source.position < view.need) {
    plan_prefill(view, StateRole::kSource, view.need, steps);
  } else if (view.same_unit) {
    return StepPlan::take_over();
  } else if (room && !target.busy) {
    steps.add({.kind = WorkKind::kMove, .role = StateRole::kSource, .form = MoveForm::kCarry});
  }
  return steps;
}

}  // namespace

extern const Strategy k_strategy_handoff;
const Strategy k_strategy_handoff = {
    .name = "handoff",
    .summary = "prefill on one unit, carry the state over the bridge, decode on another",
    .hands_over = true,
    .plan = plan,
};

}  // namespace baton

// The list of strategies, and the plans they share.
#include "baton/engine/strategy.h"

namespace baton {

#define BATON_STRATEGY(name) extern const Strategy k_strategy_##name;
#include "baton/engine/strategy_list.inc"
#undef BATON_STRATEGY

namespace {
constexpr std::array kStrategies = {
#define BATON_STRATEGY(name) &k_strategy_##name,
#include "baton/engine/strategy_list.inc"
#undef BATON_STRATEGY
};
}  // namespace

std::span<const Strategy* const> strategies() { return kStrategies; }

const Strategy* find_strategy(std::string_view name) {
  for (const Strategy* strategy : kStrategies) {
    if (strategy->name == name) return strategy;
  }
  return nullptr;
}

void plan_prefill(const RequestView& view, StateRole role, StepPlan& plan) {
  const RoleView& state = view.roles[static_cast<size_t>(role)];
  if (state.busy) return;
  const uint64_t position = state.exists ? state.position : 0;
  if (state.exists && position >= view.need) return;
  plan.add({.kind = WorkKind::kPrefill, .role = role, .tokens = view.need - position});
}

StepPlan plan_decode(const RequestView& view) {
  StepPlan plan;
  const bool target_free = !view.target().busy;
  if (view.seal_due) {
    if (target_free) plan.add({.kind = WorkKind::kMove, .role = StateRole::kTarget, .form = MoveForm::kSeal});
    return plan;
  }
  if (!view.proof_wanted) {
    if (target_free) plan.add({.kind = WorkKind::kDecode, .role = StateRole::kTarget});
    return plan;
  }
  const RoleView& proof = view.proof();
  if (proof.exists && !proof.busy && proof.position == view.need) {
    if (target_free) plan.add({.kind = WorkKind::kVerify, .role = StateRole::kTarget});
    return plan;
  }
  plan_prefill(view, StateRole::kProof, plan);
  return plan;
}

StepPlan plan_alone(const RequestView& view) {
  const RoleView& target = view.target();
  StepPlan plan;
  if (target.busy) {
    // A target busy with its prompt or its start leaves the lane's time to the proof.
    if (view.proof_wanted) plan_prefill(view, StateRole::kProof, plan);
    return plan;
  }
  if (view.start_pending) {
    plan.add(target.exists ? PlannedWork{.kind = WorkKind::kMove, .role = StateRole::kTarget, .form = MoveForm::kOpen}
                           : PlannedWork{.kind = WorkKind::kPrefill, .role = StateRole::kTarget});
    return plan;
  }
  if (target.exists && target.position >= view.need) return plan_decode(view);
  plan_prefill(view, StateRole::kTarget, plan);
  return plan;
}

}  // namespace baton

// The list of strategies, and the plans they share.
#include "baton/engine/strategy.h"

#include <string>

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

Result<const Strategy*> choose_strategy(std::string_view name, std::string_view prefill, std::string_view via,
                                        std::string_view decode) {
  const uint32_t asked = !via.empty() ? 2 : prefill != decode ? 1 : 0;
  std::string names, fitting;
  const Strategy* chosen = nullptr;
  for (const Strategy* strategy : kStrategies) {
    names += (names.empty() ? "" : ", ") + std::string(strategy->name);
    if (strategy->hand_overs == asked) fitting += (fitting.empty() ? "" : " or ") + std::string(strategy->name);
    const bool fits = name.empty() ? strategy->hand_overs == asked : strategy->name == name;
    if (fits && chosen == nullptr) chosen = strategy;
  }
  const std::string called = "strategy '" + std::string(name) + "'";
  if (chosen == nullptr && name == "idle-prefill") {
    return fail(Code::kNotFound, called +
                                     " is of conversations, not of one request: what is certain of the next turn is "
                                     "prefilled while nobody waits; one request has: " +
                                     names);
  }
  if (chosen == nullptr) {
    return fail(Code::kNotFound,
                (name.empty() ? "a strategy that hands over twice" : called) + " does not exist; there are: " + names);
  }
  if (chosen->hand_overs < asked) {
    const std::string units = asked == 2 ? "the via unit asked for is '" + std::string(via)
                                         : "the prefill unit asked for is '" + std::string(prefill);
    return fail(Code::kInvalidInput, called + (chosen->hand_overs == 0 ? " runs everything on" : " goes straight to") +
                                         " the decode unit '" + std::string(decode) + "', but " + units +
                                         "': use strategy " + fitting + ", or leave that unit out");
  }
  if (chosen->hand_overs == 2 && asked < 2) {
    return fail(Code::kInvalidInput,
                called + " hands over twice and needs a via unit: name one, or use another strategy");
  }
  return chosen;
}

void plan_prefill(const RequestView& view, StateRole role, uint64_t upto, StepPlan& plan) {
  const RoleView& state = view.roles[static_cast<size_t>(role)];
  if (state.busy) return;
  const uint64_t position = state.exists ? state.position : 0;
  if (position < upto) {
    plan.add({.kind = WorkKind::kStep, .role = role, .tokens = upto - position});
  } else if (!state.exists) {
    plan.add({.kind = WorkKind::kMake, .role = role});
  }
}

StepPlan plan_start_check(const RequestView& view) {
  const RoleView& target = view.target();
  const RoleView& proof = view.proof();
  StepPlan plan;
  if (target.busy || proof.busy) return plan;
  if (!target.exists) {
    plan.add({.kind = WorkKind::kMake, .role = StateRole::kTarget});
  } else if (!view.start_opened) {
    plan.add({.kind = WorkKind::kMove, .role = StateRole::kTarget, .form = MoveForm::kOpen});
  } else {
    plan.add({.kind = WorkKind::kProve, .role = StateRole::kTarget});
  }
  return plan;
}

StepPlan plan_decode(const RequestView& view) {
  StepPlan plan;
  const bool target_free = !view.target().busy;
  if (view.seal_due) {
    if (target_free) plan.add({.kind = WorkKind::kMove, .role = StateRole::kTarget, .form = MoveForm::kSeal});
    return plan;
  }
  if (!view.proof_wanted) {
    if (target_free) plan.add({.kind = WorkKind::kStep, .role = StateRole::kTarget, .decodes = true});
    return plan;
  }
  const RoleView& proof = view.proof();
  if (view.compare_due && view.proof_repeats) {
    if (target_free && !proof.busy) plan.add({.kind = WorkKind::kProve, .role = StateRole::kTarget});
    return plan;
  }
  if (proof.exists && !proof.busy && proof.position == view.need) {
    if (target_free) plan.add({.kind = WorkKind::kProve, .role = StateRole::kTarget, .decodes = !view.compare_due});
    return plan;
  }
  plan_prefill(view, StateRole::kProof, view.need, plan);
  return plan;
}

StepPlan plan_alone(const RequestView& view) {
  if (view.start_check_due) return plan_start_check(view);
  const RoleView& target = view.target();
  StepPlan plan;
  if (target.busy) {
    // A target busy with its prompt or its start leaves the lane's time to the proof.
    if (view.proof_wanted && !view.proof_repeats) plan_prefill(view, StateRole::kProof, view.need, plan);
    return plan;
  }
  if (view.start_pending) {
    plan.add(target.exists ? PlannedWork{.kind = WorkKind::kMove, .role = StateRole::kTarget, .form = MoveForm::kOpen}
                           : PlannedWork{.kind = WorkKind::kMake, .role = StateRole::kTarget});
    return plan;
  }
  if (target.exists && target.position >= view.need) return plan_decode(view);
  plan_prefill(view, StateRole::kTarget, view.need, plan);
  return plan;
}

StepPlan plan_handoff(const RequestView& view) {
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

}  // namespace baton

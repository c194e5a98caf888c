// relay: as handoff to the via unit, which decodes the first tokens of the answer, and then to the decode unit.
#include "baton/engine/strategy.h"

namespace baton {
namespace {

constexpr uint64_t kFirstTokens = 16;

StepPlan plan(const RequestView& view) {
  const RoleView& source = view.source();
  const RoleView& target = view.target();
  if (view.onward && view.generated < kFirstTokens) {
    StepPlan plan = plan_handoff(view);
    plan.limit_decodes(kFirstTokens - view.generated);
    return plan;
  }
  const bool whole = (view.handed_over || view.alone) && !view.start_pending && !view.seal_due && target.exists &&
                     !target.busy && target.position >= view.need;
  // A source that was given up may still be away: the via unit decodes no more while its role is taken.
  if (view.onward && whole) return source.exists || source.busy ? StepPlan() : StepPlan::pass_on();
  return plan_handoff(view);
}

}  // namespace

extern const Strategy k_strategy_relay;
const Strategy k_strategy_relay = {
    .name = "relay",
    .summary = "as handoff to the via unit, which decodes the first 16 tokens, and on to the decode unit",
    .hand_overs = 2,
    .plan = plan,
};

}  // namespace baton

// handoff: prefill on one unit, decode on another.
#include "baton/engine/strategy.h"

namespace baton {

extern const Strategy k_strategy_handoff;
const Strategy k_strategy_handoff = {
    .name = "handoff",
    .summary = "prefill on one unit, carry the state over the bridge, decode on another",
    .hand_overs = 1,
    .plan = plan_handoff,
};

}  // namespace baton

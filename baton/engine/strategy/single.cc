// single: the decode unit does everything, prefill in steps and then one token at a time.
#include "baton/engine/strategy.h"

namespace baton {

extern const Strategy k_strategy_single;
const Strategy k_strategy_single = {
    .name = "single",
    .summary = "prefill and decode on the decode unit",
    .hand_overs = 0,
    .plan = plan_alone,
};

}  // namespace baton

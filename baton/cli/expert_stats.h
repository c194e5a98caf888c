// Which experts a run's tokens went to, for people and as JSON.
#pragma once

#include <span>
#include <string>

#include "baton/api/runtime.h"
#include "baton/cli/command.h"

namespace baton::cli {

// [{"unit", "layers": [{"layer", "tokens", "rows": [by expert], "steps": [by expert], "busy"}]}]
OrderedJson expert_stats_json(std::span<const UnitExpertLoads> loads);
// A line for each unit and layer.
std::string expert_stats_text(std::span<const UnitExpertLoads> loads);

// So many experts, equally busy, would be as even as these: 2 to the entropy of their shares. 0: no rows.
double busy_experts(const ExpertLoad& load);

}  // namespace baton::cli

// What no kernel here can do, found from a model's shapes at load: rows that do not fit into shared memory, heads that
// are wider than what a warp holds.
#pragma once

#include "baton/model/model.h"
#include "baton/unit/cuda/weight_plan.h"

namespace baton::cuda {

// kUnsupported names the first tensor or op, its size and the bound. Nothing is asked of a card, whose blocks may have
// shared_bytes of shared memory.
Status check_limits(const Model& model, const WeightPlan& plan, uint32_t shared_bytes);

// Values of the longest row that a product like this one takes.
int32_t columns_max(const Instruction& like, uint32_t shared_bytes);

}  // namespace baton::cuda

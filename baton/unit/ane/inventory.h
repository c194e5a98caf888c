// The kernels a model becomes, by shape, against the limits of the device.
#pragma once

#include <span>

#include "baton/model/model.h"
#include "baton/unit/ane/options.h"
#include "baton/unit/unit.h"

namespace baton::ane {

// From shapes alone: the data of `weights` may be null.
Result<LoadPlan> take_inventory(const Program& program, std::span<const Weight> weights, const AneOptions& options);

// What the conversion of the program's matrices to fp16 meets, as notes for people; reads every weight.
Result<std::vector<std::string>> range_notes(const Program& program, std::span<const Weight> weights);

}  // namespace baton::ane

// What a compute plan (MLComputePlan, macOS 14.4) says of the devices that a model would run on.
#pragma once

#include <cstdint>

#include "baton/unit/coreml/calls.h"
#include "baton/unit/coreml/package_engine.h"

namespace baton::coreml {

enum class Device : uint8_t { kNone, kNeuralEngine, kGpu, kCpu };

// By the class of a device's object.
Device device_of(const Calls& calls, apple::ObjcId device);

// By the plan's own estimates of cost, or by the number of operations where it has none.
DeviceShares shares_of(const Calls& calls, apple::ObjcId plan);

}  // namespace baton::coreml

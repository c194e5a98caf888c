// Which devices a compute plan prefers, operation by operation.
#include "baton/unit/coreml/compute_plan.h"

#include <array>
#include <utility>

namespace baton::coreml {

using apple::ObjcApi;
using apple::ObjcId;

Device device_of(const Calls& calls, ObjcId device) {
  const std::pair<ObjcId, Device> kinds[] = {
      {calls.ane_class, Device::kNeuralEngine}, {calls.gpu_class, Device::kGpu}, {calls.cpu_class, Device::kCpu}};
  for (const auto& [kind, which] : kinds) {
    if (kind != nullptr && calls.objc.send<ObjcBool>(device, "isKindOfClass:", kind) != 0) return which;
  }
  return Device::kNone;
}

DeviceShares shares_of(const Calls& calls, ObjcId plan) {
  DeviceShares shares;
  const ObjcApi& objc = calls.objc;
  const ObjcId program = objc.send<ObjcId>(objc.send<ObjcId>(plan, "modelStructure"), "program");
  const ObjcId functions = objc.send<ObjcId>(program, "functions");
  const ObjcId main = objc.send<ObjcId>(functions, "objectForKey:", calls.string("main"));
  const ObjcId operations = objc.send<ObjcId>(objc.send<ObjcId>(main, "block"), "operations");
  const auto count = objc.send<Unsigned>(operations, "count");
  std::array<double, 4> cost{}, number{};
  for (Unsigned i = 0; i < count; ++i) {
    const ObjcId operation = objc.send<ObjcId>(operations, "objectAtIndex:", i);
    const ObjcId usage = objc.send<ObjcId>(plan, "computeDeviceUsageForMLProgramOperation:", operation);
    const Device device = device_of(calls, objc.send<ObjcId>(usage, "preferredComputeDevice"));
    if (device == Device::kNone) continue;  // constants have no device
    const ObjcId estimate = objc.send<ObjcId>(plan, "estimatedCostOfMLProgramOperation:", operation);
    if (estimate != nullptr) cost[static_cast<size_t>(device)] += objc.send<double>(estimate, "weight");
    number[static_cast<size_t>(device)] += 1;
    ++shares.operations;
  }
  if (shares.operations == 0) {
    shares.unknown = "the compute plan names no device for any operation";
    return shares;
  }
  const double all_cost = cost[1] + cost[2] + cost[3];
  shares.by_cost = all_cost > 0;
  const std::array<double, 4>& by = shares.by_cost ? cost : number;
  const double all = by[1] + by[2] + by[3];
  shares.neural_engine = by[1] / all;
  shares.gpu = by[2] / all;
  shares.cpu = by[3] / all;
  return shares;
}

}  // namespace baton::coreml

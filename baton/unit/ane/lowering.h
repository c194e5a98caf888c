// A Program as kernels of the neural engine and work of the host. Matrix products are the device's: linear layers of
// one input as one layer of kernels, a SwiGLU block as one, the output head in slices. Everything else is the host's,
// in f32: embedding, norms, rotation, convolution, delta rule, attention, gates, residual sums. Needs shapes only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "baton/model/model.h"
#include "baton/unit/ane/options.h"
#include "baton/unit/apple/kernel.h"
#include "baton/unit/host/plan.h"

namespace baton::ane {

// Channels [begin, begin + count) of a layer's output go to a register, from its first value on.
struct Target {
  RegisterId out = -1;
  int64_t begin = 0, count = 0;
  bool add = false;  // to what is there: a residual sum
};

// What a device does between two steps of the host.
struct DeviceLayer {
  std::string name;  // "l03_q_k_v", "l03_ffn", "head"
  RegisterId x = -1;
  int64_t outputs = 0;                     // channels of the output
  std::vector<Target> targets;             // of the head: none, its output goes to the logits
  std::vector<apple::KernelPlan> kernels;  // weights borrowed from the model
  std::vector<WeightId> weights;
  bool is_head = false;
  bool only_for_logits = false;
  uint64_t weight_bytes() const;
};

// One after another: a step of the host's plan, or a layer of the device.
struct Stage {
  bool on_device = false;
  size_t index = 0;  // into host::Plan::steps or Lowering::layers
};

struct Lowering {
  std::vector<DeviceLayer> layers;
  std::vector<Stage> stages;
  uint32_t kernel_count() const;
};

// `on_host[id]`: that matrix is multiplied by the host; layers with such a matrix stay in the plan as they are.
// `plan` is of the weights' program. Errors: kInvalidInput (weights that do not fit together).
Result<Lowering> lower(std::span<const Weight> weights, const host::Plan& plan, const std::vector<bool>& on_host,
                       const apple::KernelLimits& limits);

// Which matrices the host keeps so that the rest fits the options' limits, and the limits of kernels that go with it.
struct Split {
  apple::KernelLimits limits;
  std::vector<bool> on_host;                  // by WeightId
  std::vector<std::string> host_layers;       // names, in order of the program
  uint64_t device_bytes = 0, host_bytes = 0;  // fp16 bytes of the matrices on each side
};
Result<Split> split_program(const Program& program, std::span<const Weight> weights, const AneOptions& options);

}  // namespace baton::ane

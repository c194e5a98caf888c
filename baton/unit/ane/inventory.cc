// Counting by shape, and the notes on limits.
#include "baton/unit/ane/inventory.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/unit/ane/lowering.h"

namespace baton::ane {
namespace {

constexpr double kMegabyte = 1e6;
// One project had 226 kernels loaded on macOS 26 (docs/ane.md, F).
constexpr uint32_t kKernelsSeenOnce = 226;

double share(uint64_t part, uint64_t other) {
  return part + other == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(part + other);
}

}  // namespace

Result<LoadPlan> take_inventory(const Program& program, std::span<const Weight> weights, const AneOptions& options) {
  BATON_TRY(const Split split, split_program(program, weights, options));
  const host::Plan steps = host::make_plan(program);
  BATON_TRY(const Lowering lowering, lower(weights, steps, split.on_host, split.limits));
  LoadPlan plan;
  uint64_t largest = 0;
  for (const DeviceLayer& layer : lowering.layers) {
    for (const apple::KernelPlan& kernel : layer.kernels) {
      const std::string shape = kernel.shape();
      auto found = std::find_if(plan.programs.begin(), plan.programs.end(),
                                [&](const LoadPlan::Programs& programs) { return programs.shape == shape; });
      if (found == plan.programs.end()) found = plan.programs.insert(found, {shape, 0, 0, 0});
      ++found->count;
      found->weight_bytes = std::max(found->weight_bytes, kernel.weight_bytes);
      found->all_bytes += kernel.weight_bytes;
      largest = std::max(largest, kernel.weight_bytes);
    }
  }
  plan.notes.push_back(fmt::format("{} kernels in {} shapes, {:.1f} MB of fp16 weights; loaded at a time: at most {}",
                                   lowering.kernel_count(), plan.programs.size(),
                                   static_cast<double>(split.device_bytes) / kMegabyte, options.kernels_max));
  plan.notes.push_back(fmt::format("compiles in the first process: {}; limit {}",
                                   options.donors ? plan.programs.size() : lowering.kernel_count(),
                                   options.kernels_max));
  plan.notes.push_back(fmt::format("largest kernel {:.1f} MB; limit {:.0f} MB, {} channels in, {} out",
                                   static_cast<double>(largest) / kMegabyte,
                                   static_cast<double>(split.limits.weight_bytes_max) / kMegabyte,
                                   split.limits.in_channels_max, split.limits.out_channels_max));
  if (!split.host_layers.empty()) {
    std::string names;
    for (const std::string& name : split.host_layers) names += (names.empty() ? "" : " ") + name;
    plan.notes.push_back(fmt::format("on the host, {} layers of matrices, {:.1f} MB as fp16 ({:.0f} % of all): {}",
                                     split.host_layers.size(), static_cast<double>(split.host_bytes) / kMegabyte,
                                     share(split.host_bytes, split.device_bytes), names));
    AneOptions more = options;
    more.kernels_max = kKernelsSeenOnce;
    if (options.kernels_max < kKernelsSeenOnce) {
      BATON_TRY(const Split other, split_program(program, weights, more));
      plan.notes.push_back(
          fmt::format("with kernels={} (loaded once on macOS 26, by one report): {:.0f} % of the weights on the host",
                      kKernelsSeenOnce, share(other.host_bytes, other.device_bytes)));
    }
  }
  plan.notes.emplace_back("planned from published limits; not yet run on Apple hardware");
  return plan;
}

Result<std::vector<std::string>> range_notes(const Program& program, std::span<const Weight> weights) {
  std::vector<bool> seen(weights.size(), false);
  apple::RangeReport all;
  std::vector<std::string> notes;
  for (const Op& op : program.ops) {
    if (!host::is_matrix_op(op) || seen[static_cast<size_t>(op.weights[Op::kMatrix])]) continue;
    seen[static_cast<size_t>(op.weights[Op::kMatrix])] = true;
    const Weight& weight = weights[static_cast<size_t>(op.weights[Op::kMatrix])];
    apple::RangeReport range;
    apple::BlobWriter blob;
    BATON_TRY(const uint64_t record, blob.add_fp16(weight, apple::whole(weight), apple::OutOfRange::kClamp, &range));
    static_cast<void>(record);
    all.add(range);
    if (!range.noteworthy()) continue;
    notes.push_back(fmt::format("fp16 of '{}': {} values beyond 65504, {:.2f} % below 2^-14 (0 on the first chips)",
                                weight.name, range.overflows,
                                share(range.subnormals, range.values - range.subnormals)));
  }
  notes.insert(notes.begin(),
               fmt::format("fp16 weights: {} values, largest {:.4g}, {} beyond 65504, {:.3f} % below 2^-14", all.values,
                           all.abs_max, all.overflows, share(all.subnormals, all.values - all.subnormals)));
  return notes;
}

}  // namespace baton::ane

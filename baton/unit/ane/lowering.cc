// Layers from the steps of the host's plan, and what stays on the host when the device has no room.
#include "baton/unit/ane/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace baton::ane {
namespace {

using host::LinearPart;
using host::Row;
using host::Step;
using host::Work;

// 75 MB has been seen to work (docs/ane.md): what a kernel may take when that saves layers from the host.
constexpr uint64_t kUsualBytes = 64 * 1000 * 1000, kLargestProvenBytes = 76 * 1000 * 1000;

// "layers.3.attn.q" -> "q", in the characters of a kernel's name.
std::string role_of(const Weight& weight) {
  std::string role = weight.name.substr(weight.name.rfind('.') + 1);
  for (char& letter : role) {
    const bool upper = letter >= 'A' && letter <= 'Z';
    const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9');
    letter = upper ? static_cast<char>(letter - 'A' + 'a') : plain ? letter : '_';
  }
  return role.empty() ? "w" : role;
}

// 1: reads the register, -1: writes it without reading, 0: neither.
int use_of(const Step& step, RegisterId id) {
  const auto reads = [&](const Op& op) { return op.x == id || op.y == id || op.z == id; };
  const auto writes = [&](const Op& op) { return op.out == id || op.out2 == id; };
  switch (step.work) {
    case Work::kRows:
      for (const host::RowPart& part : step.rows) {
        if (reads(part.op)) return 1;
        if (part.kind != Row::kAppend && part.kind != Row::kOperands && writes(part.op)) return -1;
      }
      return 0;
    case Work::kLinears:
      if (step.x == id) return 1;
      for (const LinearPart& part : step.linears) {
        if (part.out == id) return part.add ? 1 : -1;
      }
      return 0;
    default:
      return reads(step.op) ? 1 : writes(step.op) ? -1 : 0;
  }
}

bool read_later(const host::Plan& plan, size_t from, RegisterId id) {
  for (size_t i = from; i < plan.steps.size(); ++i) {
    if (const int use = use_of(plan.steps[i], id); use != 0) return use > 0;
  }
  return false;
}

class Lowerer {
 public:
  Lowerer(std::span<const Weight> weights, const host::Plan& plan, const std::vector<bool>& on_host,
          const apple::KernelLimits& limits)
      : weights_(weights), plan_(plan), on_host_(on_host), limits_(limits) {}

  Result<Lowering> run() {
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      if (is_swiglu(i)) {
        BATON_TRY(const bool fits, add_swiglu(i));
        if (fits) {
          i += 2;
          continue;
        }
      }
      const Step& step = plan_.steps[i];
      if (step.work == Work::kLinears && on_device(step.linears)) {
        BATON_OK(add_linears(&i));
      } else if (step.work == Work::kHead && !kept(step.op.weights[Op::kMatrix])) {
        BATON_OK(add_head(step));
      } else {
        out_.stages.push_back({false, i});
      }
    }
    return std::move(out_);
  }

 private:
  const Weight& weight(WeightId id) const { return weights_[static_cast<size_t>(id)]; }
  bool kept(WeightId id) const { return on_host_[static_cast<size_t>(id)]; }
  bool on_device(const std::vector<LinearPart>& parts) const {
    return std::none_of(parts.begin(), parts.end(), [&](const LinearPart& part) { return kept(part.weight); });
  }

  // gate and up of one input, silu(gate) * up, down; what lies between is not used elsewhere.
  bool is_swiglu(size_t at) const {
    if (at + 2 >= plan_.steps.size()) return false;
    const Step &in = plan_.steps[at], &middle = plan_.steps[at + 1], &down = plan_.steps[at + 2];
    if (in.work != Work::kLinears || middle.work != Work::kRows || down.work != Work::kLinears) return false;
    if (in.only_for_logits != down.only_for_logits || in.only_for_logits != middle.only_for_logits) return false;
    if (in.linears.size() != 2 || middle.rows.size() != 1 || down.linears.size() != 1) return false;
    const host::RowPart& row = middle.rows[0];
    if (row.kind != Row::kSwiGlu || down.x != row.op.out || !on_device(in.linears) || !on_device(down.linears))
      return false;
    const LinearPart &a = in.linears[0], &b = in.linears[1];
    if (a.add || b.add || a.out == b.out) return false;
    const bool both = (row.op.x == a.out && row.op.y == b.out) || (row.op.x == b.out && row.op.y == a.out);
    const RegisterId result = down.linears[0].out;
    const auto free_after = [&](RegisterId id) { return id == result || !read_later(plan_, at + 3, id); };
    return both && free_after(a.out) && free_after(b.out) && free_after(row.op.out);
  }

  // False when the block does not fit kernels of this kind.
  Result<bool> add_swiglu(size_t at) {
    const Step &in = plan_.steps[at], &down = plan_.steps[at + 2];
    const bool first_is_gate = in.linears[0].out == plan_.steps[at + 1].rows[0].op.x;
    const WeightId gate = in.linears[first_is_gate ? 0 : 1].weight, up = in.linears[first_is_gate ? 1 : 0].weight;
    const LinearPart& last = down.linears[0];
    const std::string name = unique_name(in.op.layer, "ffn");
    auto kernels = apple::plan_swiglu(name, weight(gate), weight(up), weight(last.weight), limits_);
    if (!kernels && kernels.error().code == Code::kUnsupported) {
      names_.erase(name);
      return false;
    }
    if (!kernels) return fail(std::move(kernels).error());
    DeviceLayer layer;
    layer.name = name;
    layer.x = in.x;
    layer.targets = {{last.out, 0, weight(last.weight).rows, last.add}};
    layer.kernels = std::move(*kernels);
    layer.weights = {gate, up, last.weight};
    layer.outputs = weight(last.weight).rows;
    layer.only_for_logits = in.only_for_logits;
    push(std::move(layer));
    return true;
  }

  // The step at `*at`, and those after it with the same input: of the last layer, queries serve logits alone and keys
  // do not, but one kernel for both costs less than two. Moves `*at` to the last of them.
  Status add_linears(size_t* at) {
    Step step = plan_.steps[*at];
    for (; *at + 1 < plan_.steps.size() && !is_swiglu(*at + 1); ++*at) {
      const Step& next = plan_.steps[*at + 1];
      if (next.work != Work::kLinears || next.x != step.x || !on_device(next.linears)) break;
      const auto clashes = [&](const LinearPart& part) {
        return part.out == step.x || std::any_of(step.linears.begin(), step.linears.end(),
                                                 [&](const LinearPart& other) { return other.out == part.out; });
      };
      if (std::any_of(next.linears.begin(), next.linears.end(), clashes)) break;
      // A sum added to rows that the step is not for would be wrong.
      const bool adds = std::any_of(step.linears.begin(), step.linears.end(), [](auto& part) { return part.add; }) ||
                        std::any_of(next.linears.begin(), next.linears.end(), [](auto& part) { return part.add; });
      if (adds && step.only_for_logits != next.only_for_logits) break;
      step.linears.insert(step.linears.end(), next.linears.begin(), next.linears.end());
      step.only_for_logits = step.only_for_logits && next.only_for_logits;
    }
    DeviceLayer layer;
    layer.x = step.x;
    layer.only_for_logits = step.only_for_logits;
    std::vector<apple::LayerPart> parts;
    std::set<std::string> roles;
    std::string joined;
    int64_t begin = 0;
    for (const LinearPart& part : step.linears) {
      const Weight& matrix = weight(part.weight);
      std::string role = role_of(matrix);
      while (!roles.insert(role).second) role += "x";
      joined += fmt::format("{}{}", joined.empty() ? "" : "_", role);
      parts.push_back({std::move(role), &matrix});
      layer.targets.push_back({part.out, begin, matrix.rows, part.add});
      layer.weights.push_back(part.weight);
      begin += matrix.rows;
    }
    layer.outputs = begin;
    layer.name = unique_name(step.op.layer, joined);
    BATON_TRY(layer.kernels, apple::plan_linear(layer.name, parts, limits_));
    push(std::move(layer));
    return {};
  }

  Status add_head(const Step& step) {
    DeviceLayer layer;
    layer.x = step.op.x;
    layer.is_head = layer.only_for_logits = true;
    layer.weights = {step.op.weights[Op::kMatrix]};
    layer.outputs = weight(step.op.weights[Op::kMatrix]).rows;
    layer.name = unique_name(-1, "head");
    const apple::LayerPart part{"w", &weight(step.op.weights[Op::kMatrix])};
    BATON_TRY(layer.kernels, apple::plan_linear(layer.name, {&part, 1}, limits_));
    push(std::move(layer));
    return {};
  }

  void push(DeviceLayer layer) {
    out_.stages.push_back({true, out_.layers.size()});
    out_.layers.push_back(std::move(layer));
  }

  std::string unique_name(int32_t layer, const std::string& role) {
    const std::string base = layer < 0 ? role : fmt::format("l{:02}_{}", layer, role);
    std::string name = base;
    for (int i = 2; !names_.insert(name).second; ++i) name = fmt::format("{}_n{}", base, i);
    return name;
  }

  const std::span<const Weight> weights_;
  const host::Plan& plan_;
  const std::vector<bool>& on_host_;
  const apple::KernelLimits& limits_;
  Lowering out_;
  std::set<std::string> names_;
};

}  // namespace

uint64_t DeviceLayer::weight_bytes() const {
  uint64_t bytes = 0;
  for (const apple::KernelPlan& kernel : kernels) bytes += kernel.weight_bytes;
  return bytes;
}

uint32_t Lowering::kernel_count() const {
  size_t count = 0;
  for (const DeviceLayer& layer : layers) count += layer.kernels.size();
  return static_cast<uint32_t>(count);
}

Result<Lowering> lower(std::span<const Weight> weights, const host::Plan& plan, const std::vector<bool>& on_host,
                       const apple::KernelLimits& limits) {
  return Lowerer(weights, plan, on_host, limits).run();
}

namespace {

// Sends layers to the host until the rest is at most kernels_max.
Result<Split> split_within(std::span<const Weight> weights, const host::Plan& plan, const apple::KernelLimits& limits,
                           uint32_t kernels_max) {
  Split split;
  split.limits = limits;
  split.on_host.assign(weights.size(), false);
  BATON_TRY(const Lowering all, lower(weights, plan, split.on_host, limits));
  std::vector<const DeviceLayer*> order;
  for (const DeviceLayer& layer : all.layers) order.push_back(&layer);
  // The head first, then those of most kernels; the last layers before the first.
  std::stable_sort(order.begin(), order.end(), [](const DeviceLayer* a, const DeviceLayer* b) {
    if (a->is_head != b->is_head) return a->is_head;
    return a->kernels.size() != b->kernels.size() ? a->kernels.size() > b->kernels.size() : a > b;
  });
  uint32_t left = all.kernel_count();
  std::set<const DeviceLayer*> gone;
  const auto drop = [&](const DeviceLayer* layer) {
    if (!gone.insert(layer).second) return;
    left -= static_cast<uint32_t>(layer->kernels.size());
    for (const WeightId id : layer->weights) split.on_host[static_cast<size_t>(id)] = true;
  };
  for (const DeviceLayer* layer : order) {
    if (left <= kernels_max) break;
    drop(layer);
    // A matrix of two layers is the host's in both.
    for (const DeviceLayer* other : order) {
      const auto kept = [&](WeightId id) { return split.on_host[static_cast<size_t>(id)]; };
      if (std::any_of(other->weights.begin(), other->weights.end(), kept)) drop(other);
    }
  }
  for (const DeviceLayer& layer : all.layers) {
    const bool is_gone = gone.contains(&layer);
    (is_gone ? split.host_bytes : split.device_bytes) += layer.weight_bytes();
    if (is_gone) split.host_layers.push_back(layer.name);
  }
  return split;
}

}  // namespace

Result<Split> split_program(const Program& program, std::span<const Weight> weights, const AneOptions& options) {
  const host::Plan plan = host::make_plan(program);
  apple::KernelLimits limits;
  limits.columns = options.columns;
  limits.weight_bytes_max = options.weight_bytes_max > 0 ? options.weight_bytes_max : kUsualBytes;
  BATON_TRY(Split split, split_within(weights, plan, limits, options.kernels_max));
  if (options.weight_bytes_max > 0 || split.host_layers.empty()) return split;
  limits.weight_bytes_max = kLargestProvenBytes;
  BATON_TRY(Split larger, split_within(weights, plan, limits, options.kernels_max));
  return larger.host_bytes < split.host_bytes ? std::move(larger) : std::move(split);
}

}  // namespace baton::ane

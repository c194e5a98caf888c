// Uses of weights by the ops of a Program, then places for them.
#include "baton/unit/cuda/weight_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::cuda {
namespace {

bool has_matrix(const Op& op) {
  return op.kind == OpKind::kEmbed || op.kind == OpKind::kLinear || op.kind == OpKind::kHead ||
         op.kind == OpKind::kPosition;
}

// Weights whose matrices lie one behind the other, at equal distances.
struct Range {
  WeightId begin, end;
  bool experts;
};

// Each expert once: ranges of ops that share some become one.
std::vector<Range> ranges_of(const Program& program) {
  std::vector<Range> ranges;
  for (const Op& op : program.ops) {
    if (has_matrix(op)) {
      const WeightId id = op.weights[Op::kMatrix];
      ranges.push_back({id, id + 1, false});
    } else if (op.kind == OpKind::kExperts) {
      ranges.push_back({op.weights[Op::kRouter], op.weights[Op::kRouter] + 1, false});
      for (const size_t part : {Op::kGates, Op::kUps, Op::kDowns})
        ranges.push_back({op.weights[part], op.weights[part] + op.experts, true});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> apart;
  for (const Range& range : ranges) {
    if (!apart.empty() && range.begin < apart.back().end) {
      apart.back().end = std::max(apart.back().end, range.end);
      apart.back().experts = apart.back().experts || range.experts;
    } else {
      apart.push_back(range);
    }
  }
  return apart;
}

class Planner {
 public:
  explicit Planner(const Model& model) : model_(model), routers_(model.weights.size(), false) {
    plan_.weights.resize(model.weights.size());
    for (const Op& op : model.program.ops) {
      if (op.kind == OpKind::kExperts) routers_[static_cast<size_t>(op.weights[Op::kRouter])] = true;
    }
  }

  WeightPlan run() && {
    for (const Op& op : model_.program.ops) {
      if (has_matrix(op) || op.kind == OpKind::kExperts) continue;
      for (const WeightId id : op.weights) {
        if (id >= 0) place_vector(static_cast<size_t>(id));
      }
    }
    for (const Range& range : ranges_of(model_.program)) place_range(range);
    if (decoded_ > 0) {
      plan_.notes.push_back(fmt::format("{} {} of a type that is held as F32: {}", decoded_,
                                        decoded_ == 1 ? "matrix is" : "matrices are", decoded_type_));
    }
    return std::move(plan_);
  }

 private:
  void place_vector(size_t id) {
    WeightPlan::Placed& placed = plan_.weights[id];
    if (placed.is_vector) return;
    const Weight& weight = model_.weights[id];
    placed.is_vector = true;
    placed.vector_at = plan_.bytes;
    placed.vector_bytes = static_cast<uint64_t>(pitch_of(static_cast<int32_t>(weight.rows * weight.columns))) * 4;
    plan_.bytes += placed.vector_bytes;
  }

  Shape shape(size_t id, bool floats) const {
    const Weight& weight = model_.weights[id];
    return shape_of(weight.dtype, weight.rows, weight.columns, floats || routers_[id]);
  }

  void place_range(const Range& range) {
    const auto begin = static_cast<size_t>(range.begin), end = static_cast<size_t>(range.end);
    bool alike = true;
    for (size_t id = begin; id < end; ++id) alike = alike && shape(id, false).like(shape(begin, false));
    if (!alike) {
      plan_.notes.push_back(fmt::format("experts '{}' to '{}' are stored as several types: all are held as F32",
                                        model_.weights[begin].name, model_.weights[end - 1].name));
    }
    uint64_t stride = 0;
    for (size_t id = begin; id < end; ++id) {
      WeightPlan::Placed& placed = plan_.weights[id];
      placed.is_matrix = true;
      placed.of_experts = range.experts;
      placed.shape = shape(id, !alike);
      stride = std::max(stride, placed.shape.bytes());
      if (is_native(model_.weights[id].dtype)) continue;
      ++decoded_;
      decoded_type_ = format_of(model_.weights[id].dtype).name;
    }
    for (size_t id = begin; id < end; ++id) {
      plan_.weights[id].matrix_at = plan_.bytes;
      plan_.weights[id].stride = stride;
      plan_.bytes += stride;
    }
  }

  const Model& model_;
  std::vector<bool> routers_;
  WeightPlan plan_;
  size_t decoded_ = 0;
  std::string_view decoded_type_;
};

}  // namespace

uint64_t WeightPlan::bytes_of(WeightId id) const {
  const Placed& placed = of(id);
  return (placed.is_matrix ? placed.stride : 0) + (placed.is_vector ? placed.vector_bytes : 0);
}

WeightPlan plan_weights(const Model& model) { return Planner(model).run(); }

KeptBytes kept_bytes(const Model& model) {
  const WeightPlan plan = plan_weights(model);
  KeptBytes kept;
  kept.all = plan.bytes;
  for (const WeightPlan::Placed& placed : plan.weights) kept.experts += placed.of_experts ? placed.stride : 0;
  for (const Op& op : model.program.ops) {
    if (op.kind == OpKind::kLinear || op.kind == OpKind::kHead) kept.token += plan.of(op.weights[Op::kMatrix]).stride;
    if (op.kind != OpKind::kExperts) continue;
    kept.token += plan.of(op.weights[Op::kRouter]).stride;
    for (const size_t part : {Op::kGates, Op::kUps, Op::kDowns})
      kept.token += static_cast<uint64_t>(op.experts_used) * plan.of(op.weights[part]).stride;
  }
  return kept;
}

}  // namespace baton::cuda

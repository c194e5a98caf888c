// Adapters' matrices and ops, beside those of the model.
#include <fmt/format.h>

#include <algorithm>

#include "baton/model/container_text.h"
#include "baton/model/model_builder.h"

namespace baton {

WeightId ModelBuilder::add_adapter_matrix(const Adapter::Pair& pair, std::string name, const std::vector<float>& values,
                                          int64_t rows, int64_t columns) {
  const WeightId id = add_vector(std::move(name), values);
  model_.weights[static_cast<size_t>(id)].rows = rows;
  model_.weights[static_cast<size_t>(id)].columns = columns;
  model_.weights[static_cast<size_t>(id)].source = pair.name;
  return id;
}

// One for all ops that need this width: each pair's values are read before the next pair's are made.
RegisterId ModelBuilder::adapter_register(int32_t width, bool narrow) {
  const auto [at, is_new] = adapter_registers_.try_emplace({width, narrow}, -1);
  if (is_new) at->second = add_register(narrow ? "lora narrow" : "lora", width);
  return at->second;
}

Status ModelBuilder::find_adapters(const TensorRole& role, int32_t layer, WeightId id, RowPart part) {
  for (size_t i = 0; i < adapters_.size(); ++i) {
    BATON_TRY(const Adapter::Pair* pair, adapters_[i].find(role, layer, naming_ == Naming::kGguf));
    if (pair == nullptr) continue;
    const Weight& weight = model_.weights[static_cast<size_t>(id)];
    const int64_t rows = part.total != 0 ? part.total : weight.rows;
    if (pair->rows != rows || pair->columns != weight.columns) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: tensor '{}' is for a matrix of {} rows of {}, but the model's '{}' has {} of {}: an "
                              "adapter of another model",
                              adapters_[i].file(), shown(pair->name), pair->rows, pair->columns, weight.source, rows,
                              weight.columns));
    }
    const std::string name = weight.name;
    const int64_t weight_rows = weight.rows;
    const WeightId a =
        add_adapter_matrix(*pair, fmt::format("{}.lora{}.a", name, i), pair->a, pair->rank, pair->columns);
    const auto first = pair->b.begin() + part.first * pair->rank;
    const std::vector<float> own(first, first + weight_rows * pair->rank);
    const WeightId b = add_adapter_matrix(*pair, fmt::format("{}.lora{}.b", name, i), own, weight_rows, pair->rank);
    adapters_of_.emplace(id, AdapterUse{pair, a, b, false});
  }
  return {};
}

// A x beside W x, of which units read x once; then out += B (A x), which they fuse.
void ModelBuilder::add_op(const Op& op) {
  const auto [begin, end] = op.kind == OpKind::kLinear ? adapters_of_.equal_range(op.weights[Op::kMatrix])
                                                       : std::pair(adapters_of_.end(), adapters_of_.end());
  std::vector<Op> behind;
  for (auto use = begin; use != end; ++use) {
    use->second.applied = true;
    const auto rank = static_cast<int32_t>(use->second.pair->rank);
    Op narrow{.kind = OpKind::kLinear, .layer = op.layer, .x = op.x};
    narrow.out = adapter_register(rank, true);
    narrow.weights[Op::kMatrix] = use->second.a;
    Op wide{.kind = OpKind::kLinear, .layer = op.layer, .x = narrow.out};
    wide.out = adapter_register(width(op.out), false);
    wide.weights[Op::kMatrix] = use->second.b;
    Op sum{.kind = OpKind::kAdd, .layer = op.layer, .out = op.out, .x = op.out, .y = wide.out};
    BATON_CHECK(op.out != op.x);
    if (behind.empty()) {
      model_.program.ops.push_back(narrow);
    } else {
      behind.push_back(narrow);
    }
    behind.push_back(wide);
    behind.push_back(sum);
  }
  model_.program.ops.push_back(op);
  for (const Op& each : behind) model_.program.ops.push_back(each);
}

// Every pair must have found its matrix, and an op.
Status ModelBuilder::check_adapters() const {
  for (const Adapter& adapter : adapters_) {
    for (const Adapter::Pair& pair : adapter.pairs()) {
      const auto use = std::find_if(adapters_of_.begin(), adapters_of_.end(),
                                    [&](const auto& each) { return each.second.pair == &pair; });
      if (use != adapters_of_.end() && use->second.applied) continue;
      return fail(
          Code::kUnsupported,
          fmt::format("{}: tensor '{}' belongs to no linear layer of this model: an adapter of another model, or "
                      "of its embedding, output head or vision tower, which is not supported",
                      adapter.file(), shown(pair.name)));
    }
  }
  return {};
}

}  // namespace baton

// Rows to experts, and back.
#include "baton/unit/ref/experts.h"

#include <algorithm>

#include "baton/unit/ref/ops.h"

namespace baton::ref {
namespace {

struct ExpertRow {
  int64_t token;
  float weight;
};

std::vector<std::vector<ExpertRow>> rows_by_expert(const Op& op, std::span<const float> logits) {
  const auto experts = static_cast<size_t>(op.experts);
  std::vector<std::vector<ExpertRow>> rows(experts);
  for (size_t t = 0; t < logits.size() / experts; ++t) {
    for (const Chosen& chosen : choose_experts(logits.subspan(t * experts, experts), op.experts_used, op.routing))
      rows[static_cast<size_t>(chosen.expert)].push_back({static_cast<int64_t>(t), chosen.weight});
  }
  return rows;
}

}  // namespace

void LoadCounter::add(int32_t layer, int64_t tokens, std::span<const uint64_t> rows) {
  const std::scoped_lock lock(mutex_);
  ExpertLoad& load = loads_[layer];
  load.layer = layer;
  load.tokens += static_cast<uint64_t>(tokens);
  load.rows.resize(rows.size());
  load.steps.resize(rows.size());
  for (size_t e = 0; e < rows.size(); ++e) {
    load.rows[e] += rows[e];
    load.steps[e] += rows[e] > 0 ? 1 : 0;
  }
}

std::vector<ExpertLoad> LoadCounter::all() const {
  const std::scoped_lock lock(mutex_);
  std::vector<ExpertLoad> all;
  for (const auto& [layer, load] : loads_) all.push_back(load);
  return all;
}

void run_experts(const Model& model, const Product& product, const Op& op, const float* x, float* out, int64_t tokens,
                 LoadCounter& loads) {
  const auto weight = [&](size_t part, WeightId expert) -> const Weight& {
    return model.weights[op.weights[part] + expert];
  };
  const auto multiply = [&](size_t part, WeightId expert, const float* from, float* to, int64_t count) {
    product(op.weights[part] + expert, weight(part, expert), from, to, count);
  };
  std::vector<float> logits(static_cast<size_t>(op.experts * tokens));
  multiply(Op::kRouter, 0, x, logits.data(), tokens);
  const auto rows = rows_by_expert(op, logits);
  std::vector<uint64_t> counts;
  for (const auto& own : rows) counts.push_back(own.size());
  loads.add(op.layer, tokens, counts);

  const int64_t width = weight(Op::kRouter, 0).columns, inner = weight(Op::kGates, 0).rows;
  const int64_t width_out = weight(Op::kDowns, 0).rows;
  std::fill_n(out, tokens * width_out, 0.0f);
  for (WeightId e = 0; e < op.experts; ++e) {
    const auto& own = rows[static_cast<size_t>(e)];
    const auto count = static_cast<int64_t>(own.size());
    if (count == 0) continue;
    std::vector<float> from(count * width), gate(count * inner), up(count * inner), result(count * width_out);
    const bool of_input = op.routing == Routing::kSigmoidOfInput;
    for (int64_t i = 0; i < count; ++i) {
      const float factor = of_input ? own[i].weight : 1;
      for (int64_t j = 0; j < width; ++j) from[i * width + j] = factor * x[own[i].token * width + j];
    }
    multiply(Op::kGates, e, from.data(), gate.data(), count);
    multiply(Op::kUps, e, from.data(), up.data(), count);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = silu(gate[i]) * up[i];
    multiply(Op::kDowns, e, gate.data(), result.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      float* const to = out + own[i].token * width_out;
      const float share = of_input ? 1 : own[i].weight;
      for (int64_t j = 0; j < width_out; ++j) to[j] += share * result[i * width_out + j];
    }
  }
}

}  // namespace baton::ref

// Routing, batches of whole experts, and their products.
#include "baton/unit/host/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "baton/unit/host/pass.h"

namespace baton::host {
namespace {

constexpr int64_t kBufferRows = 2048;  // at least: fewer batches, each of which the threads wait for each other in
constexpr int64_t kTileRows = 2 * kTileTokens;
constexpr int64_t kRowsPerPiece = 4;

}  // namespace

void choose_experts(const float* logits, int64_t n, int64_t count, Routing routing, int32_t* chosen, float* weights) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  float highest = kNothing;
  for (int64_t i = 0; i < count; ++i) {
    int32_t best = -1;
    float value = kNothing;
    for (int64_t e = 0; e < n; ++e) {
      const float logit = std::isnan(logits[e]) ? kNothing : logits[e];
      if (best >= 0 && !(logit > value)) continue;
      if (std::find(chosen, chosen + i, static_cast<int32_t>(e)) != chosen + i) continue;
      best = static_cast<int32_t>(e);
      value = logit;
    }
    chosen[i] = best;
    if (i == 0) highest = logits[best];
  }
  std::sort(chosen, chosen + count);
  if (!std::all_of(logits, logits + n, [](float logit) { return std::isfinite(logit); })) {
    std::fill_n(weights, count, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  if (routing == Routing::kSigmoidOfInput) {
    for (int64_t i = 0; i < count; ++i) weights[i] = 1 / (1 + std::exp(-logits[chosen[i]]));
    return;
  }
  float sum = 0;
  if (routing == Routing::kSoftmaxOfAll) {
    for (int64_t e = 0; e < n; ++e) sum += std::exp(logits[e] - highest);
  } else {
    for (int64_t i = 0; i < count; ++i) sum += std::exp(logits[chosen[i]] - highest);
  }
  for (int64_t i = 0; i < count; ++i) weights[i] = std::exp(logits[chosen[i]] - highest) / sum;
}

Result<std::unique_ptr<ExpertPass>> ExpertPass::create(Weights& weights, ThreadPool& pool, int64_t rows_max) {
  std::unique_ptr<ExpertPass> pass(new ExpertPass(weights, pool, rows_max));
  BATON_OK(pass->make_buffers());
  return pass;
}

Status ExpertPass::make_buffers() {
  const Program& program = weights_.program();
  const auto width = [&](RegisterId id) { return int64_t{program.registers[static_cast<size_t>(id)].width}; };
  int64_t x_max = 0, inner_max = 0, out_max = 0, experts_max = 0, used_max = 0;
  for (const Op& op : program.ops) {
    if (op.kind != OpKind::kExperts) continue;
    ExpertForms& forms = forms_[op.weights[Op::kGates]];
    for (int32_t e = 0; e < op.experts; ++e) {
      for (const size_t part : {Op::kGates, Op::kUps, Op::kDowns}) {
        const Packing packing = weights_.matrix(op.weights[part] + e).packing;
        OperandForms& to = part == Op::kDowns ? forms.inner : forms.in;
        to.tiled.add(form_of(kernels_, packing, true));
        to.others.add(form_of(kernels_, packing, false));
        integers_in_tiles_ |= is_integer(packing) && has_tiles(kernels_, packing);
      }
    }
    counters_[op.weights[Op::kGates]] = std::make_unique<Counter>(op.layer, op.experts);
    x_max = std::max(x_max, width(op.x));
    inner_max = std::max(inner_max, weights_.matrix(op.weights[Op::kGates]).rows);
    out_max = std::max(out_max, width(op.out));
    experts_max = std::max<int64_t>(experts_max, op.experts);
    used_max = std::max<int64_t>(used_max, op.experts_used);
  }
  capacity_ = std::max(round_up(rows_max_, kTileRows) + kTileRows, kBufferRows);
  inputs_stride_ = register_stride(x_max);
  inner_stride_ = register_stride(inner_max);
  results_stride_ = register_stride(out_max);
  logits_stride_ = round_up(experts_max, kLanes);
  const int64_t floats =
      capacity_ * (inputs_stride_ + 2 * inner_stride_ + results_stride_) + rows_max_ * logits_stride_;
  BATON_TRY(memory_, Memory::allocate(static_cast<size_t>(floats) * 4, "rows of experts", weights_.unit()));
  float* next = memory_.floats();
  const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
  inputs_ = take(capacity_ * inputs_stride_);
  gates_ = take(capacity_ * inner_stride_);
  ups_ = take(capacity_ * inner_stride_);
  results_ = take(capacity_ * results_stride_);
  logits_ = take(rows_max_ * logits_stride_);
  BATON_TRY(in_, Operands::create(kernels_, capacity_, x_max, weights_.unit(), experts_max));
  BATON_TRY(inner_, Operands::create(kernels_, capacity_, inner_max, weights_.unit(), experts_max));
  const auto places = static_cast<size_t>(rows_max_ * used_max);
  chosen_.resize(places);
  shares_.resize(places);
  order_.resize(places);
  place_.resize(places);
  starts_.resize(static_cast<size_t>(experts_max) + 1);
  groups_.reserve(static_cast<size_t>(experts_max));
  used_matrices_.reserve(3 * static_cast<size_t>(experts_max));
  row_from_.resize(static_cast<size_t>(capacity_));
  return {};
}

void ExpertPass::run(const Op& op, const Rows& rows) {
  route(op, rows);
  count(op, rows.count);
  const auto width = static_cast<size_t>(weights_.program().registers[static_cast<size_t>(op.out)].width);
  pool_.parallel_for(rows.count, kRowsPerPiece, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t r = first; r < last; ++r) std::memset(rows.out + r * rows.out_stride, 0, width * sizeof(float));
  });
  const Matrix& gate = weights_.matrix(op.weights[Op::kGates]);
  for (int32_t expert = 0; expert < op.experts;) {
    expert = next_batch(op, expert, rows);
    if (groups_.empty()) continue;
    keep(op);
    make_inputs(op, rows);
    sort(*in_, gate.columns);
    const Product in[] = {{op.weights[Op::kGates], gates_, inner_stride_}, {op.weights[Op::kUps], ups_, inner_stride_}};
    multiply(in, *in_, inputs_, inputs_stride_, gate.columns, rows);
    make_inner(op, rows);
    sort(*inner_, gate.rows);
    const Product out[] = {{op.weights[Op::kDowns], results_, results_stride_}};
    multiply(out, *inner_, gates_, inner_stride_, gate.rows, rows);
    add_results(op, rows);
  }
}

void ExpertPass::route(const Op& op, const Rows& rows) {
  const WeightId router = op.weights[Op::kRouter];
  Multiply product;
  product.x = Operands::floats(rows.x, rows.x_stride);
  product.tokens = rows.count;
  product.out = logits_;
  product.out_stride = logits_stride_;
  pool_.parallel_for(weights_.matrix(router).panels, 1, [&](int64_t first, int64_t last, uint32_t thread) {
    Multiply m = product;
    m.panel_begin = first;
    m.panel_end = last;
    m.scratch = rows.thread_scratch + thread * rows.thread_stride;
    weights_.multiply(router, m);
  });
  const int64_t used = op.experts_used;
  pool_.parallel_for(rows.count, kRowsPerPiece, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t r = first; r < last; ++r) {
      choose_experts(logits_ + r * logits_stride_, op.experts, used, op.routing, chosen_.data() + r * used,
                     shares_.data() + r * used);
    }
  });
}

// By counting: rows keep their order, so that those through tiles come first in each expert's.
void ExpertPass::count(const Op& op, int64_t rows) {
  const size_t places = static_cast<size_t>(rows * op.experts_used), experts = static_cast<size_t>(op.experts);
  std::fill_n(starts_.begin(), experts + 1, 0);
  for (size_t i = 0; i < places; ++i) ++starts_[static_cast<size_t>(chosen_[i]) + 1];
  Counter& counter = *counters_.at(op.weights[Op::kGates]);
  counter.tokens.fetch_add(static_cast<uint64_t>(rows), std::memory_order_relaxed);
  for (size_t e = 0; e < experts; ++e) {
    if (starts_[e + 1] == 0) continue;
    counter.rows[e].fetch_add(static_cast<uint64_t>(starts_[e + 1]), std::memory_order_relaxed);
    counter.opened[e].fetch_add(1, std::memory_order_relaxed);
  }
  for (size_t e = 0; e < experts; ++e) starts_[e + 1] += starts_[e];
  for (size_t i = 0; i < places; ++i)
    order_[static_cast<size_t>(starts_[static_cast<size_t>(chosen_[i])]++)] = static_cast<int32_t>(i);
  for (size_t e = experts; e > 0; --e) starts_[e] = starts_[e - 1];
  starts_[0] = 0;
}

int32_t ExpertPass::next_batch(const Op& op, int32_t expert, const Rows& rows) {
  groups_.clear();
  used_ = 0;
  int64_t sorted = 0;
  for (; expert < op.experts; ++expert) {
    const int64_t begin = starts_[static_cast<size_t>(expert)], end = starts_[static_cast<size_t>(expert) + 1];
    if (begin == end) continue;
    int64_t tiled = 0;
    while (begin + tiled < end && order_[static_cast<size_t>(begin + tiled)] / op.experts_used < rows.tiled) ++tiled;
    const int64_t at = tiled > 0 ? round_up(used_, kTileRows) : used_;
    const int64_t behind = tiled > 0 ? at + round_up(end - begin, kTileRows) : at + end - begin;
    if (behind > capacity_) break;
    std::fill(row_from_.begin() + used_, row_from_.begin() + behind, -1);
    for (int64_t i = begin; i < end; ++i) {
      const int32_t place = order_[static_cast<size_t>(i)];
      row_from_[static_cast<size_t>(at + i - begin)] = place;
      place_[static_cast<size_t>(place)] = at + i - begin;
    }
    groups_.push_back({expert, at, end - begin, tiled, sorted});
    sorted += Operands::sort_batches(end - begin);
    used_ = behind;
  }
  return expert;
}

void ExpertPass::keep(const Op& op) {
  used_matrices_.clear();
  for (const Group& group : groups_) {
    for (const size_t part : {Op::kGates, Op::kUps, Op::kDowns})
      used_matrices_.push_back(op.weights[part] + group.expert);
  }
  weights_.keep(used_matrices_, pool_);
}

void ExpertPass::make_inputs(const Op& op, const Rows& rows) {
  const OperandForms& forms = forms_.at(op.weights[Op::kGates]).in;
  const int64_t columns = weights_.matrix(op.weights[Op::kGates]).columns;
  pool_.parallel_for(used_, kRowsPerPiece, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t i = first; i < last; ++i) {
      const int32_t place = row_from_[static_cast<size_t>(i)];
      if (place < 0) continue;
      const int64_t r = place / op.experts_used;
      const float* x = rows.x + r * rows.x_stride;
      float* const input = inputs_ + i * inputs_stride_;
      if (op.routing == Routing::kSigmoidOfInput) {
        kernels_.scale(x, shares_[static_cast<size_t>(place)], columns, input);
      } else {
        std::memcpy(input, x, static_cast<size_t>(columns) * sizeof(float));
      }
      in_->make(r < rows.tiled ? forms.tiled : forms.others, i, i, input, columns, rows.precise);
    }
  });
}

void ExpertPass::make_inner(const Op& op, const Rows& rows) {
  const OperandForms& forms = forms_.at(op.weights[Op::kGates]).inner;
  const int64_t width = weights_.matrix(op.weights[Op::kGates]).rows;
  const bool tiles = tiled(kernels_, width);
  pool_.parallel_for(used_, kRowsPerPiece, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t i = first; i < last; ++i) {
      const int32_t place = row_from_[static_cast<size_t>(i)];
      if (place < 0) continue;
      float* gate = gates_ + i * inner_stride_;
      kernels_.swiglu(gate, ups_ + i * inner_stride_, width, gate);
      const bool through = tiles && place / op.experts_used < rows.tiled;
      inner_->make(through ? forms.tiled : forms.others, i, i, gate, width, rows.precise);
    }
  });
}

void ExpertPass::sort(Operands& operands, int64_t columns) {
  const bool tiles = integers_in_tiles_ && tiled(kernels_, columns);
  const auto begin = [&](const Group& group) { return tiles ? group.tiled : 0; };
  const bool any = std::any_of(groups_.begin(), groups_.end(),
                               [&](const Group& group) { return group.rows - begin(group) > kernels_.direct_tokens; });
  if (!any || columns % kBlock != 0) return;
  pool_.parallel_for(static_cast<int64_t>(groups_.size()), 1, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t g = first; g < last; ++g) {
      const Group& group = groups_[static_cast<size_t>(g)];
      operands.sort(group.at + begin(group), group.rows - begin(group), columns, group.sorted);
    }
  });
}

void ExpertPass::multiply(std::span<const Product> products, const Operands& operands, const float* floats,
                          int64_t stride, int64_t columns, const Rows& rows) {
  const int64_t tile = kernels_.panels_per_tile;
  // All of a kind have the same rows.
  const int64_t panels = weights_.matrix(products[0].first).panels, each = (panels + tile - 1) / tile;
  const int64_t of_group = each * static_cast<int64_t>(products.size());
  const int64_t all = of_group * static_cast<int64_t>(groups_.size());
  const bool tiles = tiled(kernels_, columns);
  const auto one = [&](const Group& group, const Product& product, int64_t first, int64_t last, uint32_t thread) {
    const WeightId id = product.first + group.expert;
    const Packing packing = weights_.matrix(id).packing;
    const Form form = form_of(kernels_, packing, true);
    const int64_t through = tiles && form != form_of(kernels_, packing, false) ? group.tiled : 0;
    Multiply m;
    m.panel_begin = first * tile;
    m.panel_end = std::min(last * tile, panels);
    m.out_stride = product.out_stride;
    m.scratch = rows.thread_scratch + thread * rows.thread_stride;
    const auto run = [&](const Activations& x, int64_t from, int64_t count) {
      if (count == 0) return;
      m.x = x;
      m.tokens = count;
      m.out = product.out + from * product.out_stride;
      weights_.multiply(id, m);
    };
    const int64_t rest = group.at + through;
    if (through > 0) run(operands.tiles(form, group.at, columns), group.at, through);
    run(is_integer(packing) ? operands.integers_at(rest, columns, group.sorted)
                            : Operands::floats(floats + rest * stride, stride),
        rest, group.rows - through);
  };
  pool_.parallel_for(
      all, std::max<int64_t>(1, all / (16 * pool_.size())), [&](int64_t first, int64_t last, uint32_t thread) {
        while (first < last) {
          const int64_t g = first / of_group, in_group = first % of_group, which = in_group / each;
          const int64_t begin = in_group % each, count = std::min(each - begin, last - first);
          one(groups_[static_cast<size_t>(g)], products[static_cast<size_t>(which)], begin, begin + count, thread);
          first += count;
        }
      });
}

// In the order of the experts, whatever the batches.
void ExpertPass::add_results(const Op& op, const Rows& rows) {
  const int64_t used = op.experts_used, width = weights_.matrix(op.weights[Op::kDowns]).rows;
  const int32_t begin = groups_.front().expert, end = groups_.back().expert;
  pool_.parallel_for(rows.count, kRowsPerPiece, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t r = first; r < last; ++r) {
      for (int64_t i = r * used; i < (r + 1) * used; ++i) {
        const auto at = static_cast<size_t>(i);
        if (chosen_[at] < begin || chosen_[at] > end) continue;
        const float share = op.routing == Routing::kSigmoidOfInput ? 1 : shares_[at];
        kernels_.add_scaled(results_ + place_[at] * results_stride_, share, width, rows.out + r * rows.out_stride);
      }
    }
  });
}

void Pass::run_experts(const Op& op, int64_t begin, int64_t end) {
  ExpertPass::Rows rows;
  rows.x = row(op.x, begin);
  rows.x_stride = stride(op.x);
  rows.out = row(op.out, begin);
  rows.out_stride = stride(op.out);
  rows.count = end - begin;
  rows.tiled = rows_in_tiles(begin, width(op.x));
  rows.precise = bits_ == RowBits::kIndependent;
  rows.thread_scratch = scratch(0);
  rows.thread_stride = scratch_bytes_;
  experts_->run(op, rows);
}

std::vector<ExpertLoad> ExpertPass::loads() const {
  std::vector<ExpertLoad> all;
  for (const auto& [id, counter] : counters_) {
    ExpertLoad load{counter->layer, counter->tokens.load(std::memory_order_relaxed), {}, {}};
    for (const auto& rows : counter->rows) load.rows.push_back(rows.load(std::memory_order_relaxed));
    for (const auto& opened : counter->opened) load.steps.push_back(opened.load(std::memory_order_relaxed));
    all.push_back(std::move(load));
  }
  return all;
}

}  // namespace baton::host

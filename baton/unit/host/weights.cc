// Packing at load.
#include "baton/unit/host/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/unit/host/pack.h"

namespace baton::host {
namespace {

void for_each_vector(const Program& program, auto&& f) {
  for (const Op& op : program.ops) {
    if (is_matrix_op(op) || op.kind == OpKind::kEmbed) continue;
    for (const WeightId id : {op.weight, op.weight2, op.rope_factors}) {
      if (id >= 0) f(op, id);
    }
  }
}

}  // namespace

Result<std::unique_ptr<const Weights>> Weights::load(std::shared_ptr<const Model> model, const Kernels& kernels,
                                                     const std::vector<bool>& packed, ThreadPool& pool,
                                                     std::string_view unit) {
  std::unique_ptr<Weights> weights(new Weights(std::move(model), kernels, unit));
  BATON_OK(weights->make_vectors());
  BATON_OK(weights->pack(packed, pool));
  weights->make_frequencies();
  return weights;
}

Status Weights::make_vectors() {
  const auto& weights = model_->weights;
  std::vector<int64_t> offsets(weights.size(), -1);
  int64_t total = 0;
  for_each_vector(model_->program, [&](const Op&, WeightId id) {
    if (offsets[static_cast<size_t>(id)] >= 0) return;
    offsets[static_cast<size_t>(id)] = total;
    const Weight& weight = weights[static_cast<size_t>(id)];
    total += round_up(weight.rows * weight.columns, kLanes);
  });
  BATON_TRY(vector_memory_, Memory::allocate(static_cast<size_t>(total) * 4, "norm and convolution weights", unit_));
  vectors_.assign(weights.size(), nullptr);
  Status status;
  for_each_vector(model_->program, [&](const Op& op, WeightId id) {
    const Weight& weight = weights[static_cast<size_t>(id)];
    const int64_t count = weight.rows * weight.columns;
    float* to = vector_memory_.floats() + offsets[static_cast<size_t>(id)];
    vectors_[static_cast<size_t>(id)] = to;
    if (op.kind != OpKind::kCausalConv) {
      format_of(weight.dtype).decode(weight.data, to, static_cast<size_t>(count));
      return;
    }
    if (op.taps < 2 || op.taps > kTapsMax) {
      status = fail(Code::kUnsupported, fmt::format("{}: weight '{}': a convolution of {} taps; 2 to {} are supported",
                                                    unit_, weight.name, op.taps, kTapsMax));
      return;
    }
    std::vector<float> rows(static_cast<size_t>(count));
    format_of(weight.dtype).decode(weight.data, rows.data(), rows.size());
    const int64_t channels = count / op.taps;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t j = 0; j < op.taps; ++j) to[j * channels + c] = rows[static_cast<size_t>(c * op.taps + j)];
    }
  });
  return status;
}

Status Weights::pack(const std::vector<bool>& packed, ThreadPool& pool) {
  const auto& weights = model_->weights;
  matrices_.assign(weights.size(), {});
  std::vector<bool> integer(weights.size(), false);
  std::vector<int64_t> offsets(weights.size(), -1);
  int64_t total = 0, columns_max = 0;
  for (const Op& op : model_->program.ops) {
    const auto id = static_cast<size_t>(op.weight);
    if (!is_matrix_op(op) || !packed[id] || offsets[id] >= 0) continue;
    const Weight& weight = weights[id];
    matrices_[id] = matrix_shape(weight.dtype, weight.rows, weight.columns);
    integer[id] = is_integer(matrices_[id].packing);
    if (!is_native(weight.dtype)) ++decoded_;
    offsets[id] = total;
    total += matrix_bytes(matrices_[id]);
    columns_max = std::max(columns_max, weight.columns);
  }
  BATON_TRY(packed_memory_,
            Memory::allocate(static_cast<size_t>(total), "the weights; use a smaller or more quantised model", unit_));
  std::vector<std::vector<float>> rows(pool.size(), std::vector<float>(static_cast<size_t>(columns_max)));
  for (size_t id = 0; id < weights.size(); ++id) {
    if (offsets[id] < 0) continue;
    Matrix& matrix = matrices_[id];
    unsigned char* to = packed_memory_.data() + offsets[id];
    matrix.data = to;
    pool.parallel_for(matrix.panels, 16, [&](int64_t begin, int64_t end, uint32_t thread) {
      pack_panels(matrix, weights[id].dtype, weights[id].data, begin, end, to, rows[thread].data());
    });
  }
  plan_ = make_plan(model_->program, integer);
  return {};
}

void Weights::make_frequencies() {
  for (const RopeTable& table : plan_.ropes) {
    std::vector<float>& frequencies = frequencies_.emplace_back();
    for (int32_t i = 0; i < table.rotary / 2; ++i) {
      const float exponent = -2.0f * static_cast<float>(i) / static_cast<float>(table.rotary);
      const float divisor = table.factors >= 0 ? vector(table.factors)[i] : 1.0f;
      frequencies.push_back(std::pow(table.theta, exponent) / divisor);
    }
  }
}

}  // namespace baton::host

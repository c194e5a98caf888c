// What a load prepares: packed matrices, f32 vectors, the plan, and scratch for the largest step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/unit/cpu/executor.h"
#include "baton/unit/cpu/pack.h"

namespace baton::cpu {
namespace {

constexpr int64_t kAttendRows = 128;  // (query, head) pairs per tile of prefill attention

bool is_matrix_op(const Op& op) { return op.kind == OpKind::kLinear || op.kind == OpKind::kHead; }

void for_each_vector(const Program& program, auto&& f) {
  for (const Op& op : program.ops) {
    if (is_matrix_op(op) || op.kind == OpKind::kEmbed) continue;
    for (const WeightId id : {op.weight, op.weight2, op.rope_factors}) {
      if (id >= 0) f(op, id);
    }
  }
}

// A register's rows are not a multiple of 4 KiB apart, or all tokens would share a few cache sets.
int64_t register_stride(int64_t width) {
  const int64_t padded = round_up(width, kLanes);
  return padded % 1024 == 0 ? padded + kLanes : padded;
}

}  // namespace

Status CpuExecutor::make_vectors() {
  const auto& weights = model_->weights;
  std::vector<int64_t> offsets(weights.size(), -1);
  int64_t total = 0;
  for_each_vector(model_->program, [&](const Op&, WeightId id) {
    if (offsets[static_cast<size_t>(id)] >= 0) return;
    offsets[static_cast<size_t>(id)] = total;
    const Weight& weight = weights[static_cast<size_t>(id)];
    total += round_up(weight.rows * weight.columns, kLanes);
  });
  BATON_TRY(vector_memory_, Memory::allocate(static_cast<size_t>(total) * 4, "norm and convolution weights"));
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
      status = fail(Code::kUnsupported, fmt::format("cpu: weight '{}': a convolution of {} taps; 2 to {} are supported",
                                                    weight.name, op.taps, kTapsMax));
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

Status CpuExecutor::pack_weights() {
  const auto& weights = model_->weights;
  matrices_.assign(weights.size(), {});
  std::vector<bool> integer(weights.size(), false);
  std::vector<int64_t> offsets(weights.size(), -1);
  int64_t total = 0, columns_max = 0;
  for (const Op& op : model_->program.ops) {
    const auto id = static_cast<size_t>(op.weight);
    if (!is_matrix_op(op) || offsets[id] >= 0) continue;
    const Weight& weight = weights[id];
    matrices_[id] = matrix_shape(weight.dtype, weight.rows, weight.columns);
    integer[id] = is_integer(matrices_[id].packing);
    if (!is_native(weight.dtype)) ++decoded_weights_;
    offsets[id] = total;
    total += matrix_bytes(matrices_[id]);
    columns_max = std::max(columns_max, weight.columns);
  }
  BATON_TRY(packed_,
            Memory::allocate(static_cast<size_t>(total), "the weights; use a smaller or more quantised model"));
  std::vector<std::vector<float>> rows(pool_.size(), std::vector<float>(static_cast<size_t>(columns_max)));
  for (size_t id = 0; id < weights.size(); ++id) {
    if (offsets[id] < 0) continue;
    Matrix& matrix = matrices_[id];
    unsigned char* to = packed_.data() + offsets[id];
    matrix.data = to;
    pool_.parallel_for(matrix.panels, 16, [&](int64_t begin, int64_t end, uint32_t thread) {
      pack_panels(matrix, weights[id].dtype, weights[id].data, begin, end, to, rows[thread].data());
    });
  }
  plan_ = make_plan(model_->program, integer);
  return {};
}

Status CpuExecutor::make_scratch() {
  const Program& program = model_->program;
  int64_t columns_max = kBlock, floats_max = 0, partial_floats = 0, heads_shared_max = 1;
  for (const Op& op : program.ops) {
    if (is_matrix_op(op)) columns_max = std::max(columns_max, matrix_of(op.weight).columns);
    if (op.kind == OpKind::kAttend) heads_shared_max = std::max<int64_t>(heads_shared_max, op.heads / op.kv_heads);
  }
  attend_query_tokens_ = std::max<int64_t>(1, kAttendRows / heads_shared_max);
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kAttend) {
      const int64_t shared = op.heads / op.kv_heads;
      floats_max = std::max(floats_max, attend_scratch_floats(attend_query_tokens_ * shared, op.width));
      partial_floats = std::max(partial_floats, kDecodeSlotsMax * op.heads * kAttendSplitsMax * (op.width + 2));
    } else if (op.kind == OpKind::kDeltaRule) {
      floats_max = std::max(floats_max, delta_scratch_floats(op.key_dim, op.value_dim) + 2 * kChunkTokens);
    }
  }
  scratch_bytes_ = round_up(std::max(floats_max * 4, matmul_scratch_bytes(columns_max)), 4096) + 64;
  BATON_TRY(scratch_, Memory::allocate(static_cast<size_t>(scratch_bytes_) * pool_.size(), "kernel scratch"));
  BATON_TRY(partial_memory_, Memory::allocate(static_cast<size_t>(partial_floats) * 4, "attention scratch"));
  BATON_TRY(head_memory_, Memory::allocate(size_t{kDecodeSlotsMax} * static_cast<size_t>(program.vocab) * 4,
                                           "logits of a decode step"));
  BATON_TRY(quantized_memory_,
            Memory::allocate(static_cast<size_t>(kChunkTokens * (columns_max / kBlock + 1)) * sizeof(ActivationBlock),
                             "quantised activations"));
  quantized_ = reinterpret_cast<ActivationBlock*>(quantized_memory_.data());

  int64_t total = 0;
  for (const Register& r : program.registers) {
    strides_.push_back(register_stride(r.width));
    total += strides_.back() * kChunkTokens;
  }
  BATON_TRY(register_memory_, Memory::allocate(static_cast<size_t>(total) * 4, "activations"));
  float* next = register_memory_.floats();
  for (const int64_t stride : strides_) {
    registers_.push_back(next);
    next += stride * kChunkTokens;
  }

  total = 0;
  for (const RopeTable& table : plan_.ropes) total += table.rotary * kChunkTokens;
  BATON_TRY(angle_memory_, Memory::allocate(static_cast<size_t>(total) * 4, "rotation angles"));
  next = angle_memory_.floats();
  for (const RopeTable& table : plan_.ropes) {
    angles_.push_back(next);
    next += table.rotary * kChunkTokens;
    std::vector<float>& frequencies = frequencies_.emplace_back();
    for (int32_t i = 0; i < table.rotary / 2; ++i) {
      const float exponent = -2.0f * static_cast<float>(i) / static_cast<float>(table.rotary);
      const float divisor = table.factors >= 0 ? vector_of(table.factors)[i] : 1.0f;
      frequencies.push_back(std::pow(table.theta, exponent) / divisor);
    }
  }
  tokens_.resize(kChunkTokens);
  positions_.resize(kChunkTokens);
  logit_rows_.resize(kChunkTokens);
  runs_.reserve(kDecodeSlotsMax);
  return {};
}

}  // namespace baton::cpu

// Vectors and frequencies at load; packing, for good and for one product.
#include "baton/unit/host/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/machine.h"
#include "baton/unit/host/pack.h"

namespace baton::host {
namespace {

constexpr int64_t kHeldBytes = int64_t{256} << 20;  // of experts that are kept
constexpr int32_t kAsksApart = 256;                 // what the system has left is read from a file of its own
constexpr int64_t kPieceBytes = int64_t{32} << 20;  // of the packed form: their pages of the file are held as well

void for_each_vector(const Program& program, auto&& f) {
  for (const Op& op : program.ops) {
    if (is_matrix_op(op) || op.kind == OpKind::kEmbed || op.kind == OpKind::kExperts) continue;
    for (const WeightId id : op.weights) {
      if (id >= 0) f(op, id);
    }
  }
}

bool is_router(const Op& op, WeightId id) { return op.kind == OpKind::kExperts && id == op.weights[Op::kRouter]; }

// A router multiplies floats: which experts are chosen depends on small differences.
Matrix packed_shape(const Op& op, WeightId id, const Weight& weight) {
  return matrix_shape(is_router(op, id) ? DType::kF32 : weight.dtype, weight.rows, weight.columns);
}

}  // namespace

KeptBytes kept_bytes(const Model& model) {
  KeptBytes made;
  std::vector<bool> seen(model.weights.size(), false);
  const auto add = [&](WeightId id, int64_t bytes, bool of_expert) {
    if (seen[static_cast<size_t>(id)]) return;
    seen[static_cast<size_t>(id)] = true;
    made.all += static_cast<uint64_t>(bytes);
    if (of_expert) made.experts += static_cast<uint64_t>(bytes);
  };
  const auto packed = [&](WeightId id, const Op& op) {
    return matrix_bytes(packed_shape(op, id, model.weights[static_cast<size_t>(id)]));
  };
  for_each_matrix(model.program, [&](WeightId id, const Op& op) {
    add(id, packed(id, op), op.kind == OpKind::kExperts && !is_router(op, id));
  });
  for (const Op& op : model.program.ops) {
    if (is_matrix_op(op)) made.token += static_cast<uint64_t>(packed(op.weights[Op::kMatrix], op));
    if (op.kind != OpKind::kExperts) continue;
    made.token += static_cast<uint64_t>(packed(op.weights[Op::kRouter], op));
    for (const size_t part : {Op::kGates, Op::kUps, Op::kDowns})
      made.token += static_cast<uint64_t>(op.experts_used * packed(op.weights[part], op));
  }
  for_each_vector(model.program, [&](const Op&, WeightId id) {
    const Weight& weight = model.weights[static_cast<size_t>(id)];
    add(id, round_up(weight.rows * weight.columns, kLanes) * 4, false);
  });
  for (size_t id = 0; id < seen.size(); ++id)
    add(static_cast<WeightId>(id), static_cast<int64_t>(model.weights[id].bytes), false);
  return made;
}

Result<std::unique_ptr<Weights>> Weights::load(std::shared_ptr<const Model> model, const Kernels& kernels,
                                               const std::vector<bool>& here, std::string_view unit,
                                               ExpertRoom experts) {
  std::unique_ptr<Weights> weights(new Weights(std::move(model), kernels, unit));
  weights->experts_ = experts;
  BATON_OK(weights->make_vectors());
  BATON_OK(weights->reserve(here));
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
    if (op.kind != OpKind::kCausalConv && op.kind != OpKind::kShortConv) {
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

Status Weights::reserve(const std::vector<bool>& here) {
  const auto& weights = model_->weights;
  matrices_.resize(weights.size());
  std::vector<OperandForms> operands(weights.size());
  std::vector<int64_t> offsets(weights.size(), -1);
  std::vector<size_t> all;
  std::vector<bool> of_expert(weights.size(), false);
  int64_t others = 0, of_experts = 0;
  for_each_matrix(model_->program, [&](WeightId weight_id, const Op& op) {
    const auto id = static_cast<size_t>(weight_id);
    if (!here[id] || matrices_[id].matrix.rows != 0) return;
    const Weight& weight = weights[id];
    const bool expert = op.kind == OpKind::kExperts, router = is_router(op, weight_id);
    Matrix& matrix = matrices_[id].matrix;
    matrix = packed_shape(op, weight_id, weight);
    of_expert[id] = expert && !router;
    (of_expert[id] ? of_experts : others) += matrix_bytes(matrix);
    if (!expert) {
      operands[id].tiled.add(form_of(kernels_, matrix.packing, true));
      operands[id].others.add(form_of(kernels_, matrix.packing, false));
    }
    if (!router && !is_native(weight.dtype)) ++decoded_;
    columns_max_ = std::max(columns_max_, weight.columns);
    panel_bytes_max_ = std::max(panel_bytes_max_, matrix.panel_bytes);
    all.push_back(id);
  });
  const uint64_t memory = of_experts > 0 ? this_machine().memory_bytes : 0;
  if (experts_.place == ExpertPlace::kAuto) {
    const bool fit = memory == 0 || static_cast<uint64_t>(others + of_experts) <= memory / 2;
    experts_.place = fit ? ExpertPlace::kMemory : ExpertPlace::kUsed;
  }
  int64_t total = 0;
  for (const size_t id : all) {
    if (of_expert[id] && experts_.place != ExpertPlace::kMemory) continue;
    offsets[id] = total;
    order_.push_back(id);
    total += matrix_bytes(matrices_[id].matrix);
  }
  // Pages that are not written yet take no memory.
  BATON_TRY(packed_memory_,
            Memory::allocate(static_cast<size_t>(total), "the weights; use a smaller or more quantised model", unit_));
  if (experts_.place == ExpertPlace::kUsed && of_experts > 0) {
    uint64_t most = static_cast<uint64_t>(of_experts);
    if (memory != 0) most = std::min(most, memory);
    if (experts_.bytes_max != 0) most = std::min(most, experts_.bytes_max);
    BATON_TRY(expert_memory_, Memory::allocate(most, "experts; say experts=file", unit_));
  }
  for (const size_t id : order_) {
    matrices_[id].to = packed_memory_.data() + offsets[id];
    matrices_[id].matrix.data = matrices_[id].to;
  }
  plan_ = make_plan(model_->program, operands);
  return {};
}

// Panels [begin, begin + count) to `to`, which need not be their own place.
void Weights::pack_panels_of(const Packed& packed, const Weight& weight, int64_t begin, int64_t count,
                             unsigned char* to, float* row) const {
  Matrix part = packed.matrix;
  part.panels = count;
  part.rows = std::min(part.rows - kLanes * begin, kLanes * count);
  const size_t row_size = weight.bytes / static_cast<size_t>(weight.rows);
  pack_panels(part, weight.dtype, weight.data + static_cast<size_t>(kLanes * begin) * row_size, 0, count, to, row);
}

void Weights::pack_more(int64_t bytes, ThreadPool& pool) {
  if (packed()) return;
  std::vector<std::vector<float>> rows(pool.size(), std::vector<float>(static_cast<size_t>(columns_max_)));
  int64_t held = 0;  // packed since the file's pages were let go
  while (next_ < order_.size() && bytes > 0) {
    Packed& packed = matrices_[order_[next_]];
    const Weight& weight = model_->weights[order_[next_]];
    const int64_t most = std::min(bytes, kPieceBytes) / packed.matrix.panel_bytes + 1;
    const int64_t first = packed.ready, count = std::min(most, packed.matrix.panels - first);
    pool.parallel_for(count, 16, [&](int64_t begin, int64_t end, uint32_t thread) {
      pack_panels_of(packed, weight, first + begin, end - begin,
                     packed.to + (first + begin) * packed.matrix.panel_bytes, rows[thread].data());
    });
    packed.ready += count;
    bytes -= count * packed.matrix.panel_bytes;
    held += count * packed.matrix.panel_bytes;
    if (packed.ready == packed.matrix.panels) ++next_;
    if (held < kPieceBytes && bytes > 0 && !this->packed()) continue;
    model_->release_pages();
    held = 0;
  }
}

uint64_t spared_bytes(uint64_t memory_bytes) { return std::max<uint64_t>(uint64_t{1} << 30, memory_bytes / 12); }

int64_t Weights::room() {
  const uint64_t reserved = expert_memory_.bytes();
  const uint64_t most = experts_.bytes_max != 0 ? std::min(experts_.bytes_max, reserved) : reserved;
  const int64_t left = static_cast<int64_t>(most) - kept_expert_bytes();
  if (experts_.bytes_max != 0) return left;
  const Machine machine = this_machine();
  if (machine.memory_available_bytes == 0) return left;
  const uint64_t spared = spared_bytes(machine.memory_bytes);
  const uint64_t free = machine.memory_available_bytes - std::min(machine.memory_available_bytes, spared);
  return std::min(left, static_cast<int64_t>(free));
}

void Weights::keep(std::span<const WeightId> used, ThreadPool& pool) {
  if (experts_.place != ExpertPlace::kUsed || full_for_ > 0) {
    full_for_ = std::max(full_for_ - 1, 0);
    return;
  }
  std::vector<size_t> chosen;
  int64_t room = -1, at = kept_expert_bytes();
  for (const WeightId id : used) {
    Packed& packed = matrices_[static_cast<size_t>(id)];
    if (packed.to != nullptr) continue;
    if (room < 0) room = this->room();
    const int64_t bytes = matrix_bytes(packed.matrix);
    if (bytes > room) {
      full_for_ = kAsksApart;
      break;
    }
    room -= bytes;
    packed.to = expert_memory_.data() + at;
    packed.matrix.data = packed.to;
    at += bytes;
    chosen.push_back(static_cast<size_t>(id));
  }
  if (chosen.empty()) return;
  pool.parallel_for(static_cast<int64_t>(chosen.size()), 1, [&](int64_t begin, int64_t end, uint32_t) {
    std::vector<float> row(static_cast<size_t>(columns_max_));
    for (int64_t i = begin; i < end; ++i) {
      Packed& packed = matrices_[chosen[static_cast<size_t>(i)]];
      const Weight& weight = model_->weights[chosen[static_cast<size_t>(i)]];
      pack_panels_of(packed, weight, 0, packed.matrix.panels, packed.to, row.data());
      packed.ready = packed.matrix.panels;
    }
  });
  held_ += at - kept_expert_bytes();
  experts_kept_.store(at, std::memory_order_relaxed);
  if (held_ < kHeldBytes) return;
  model_->release_pages();
  held_ = 0;
}

int64_t Weights::scratch_bytes() const {
  return matmul_scratch_bytes(columns_max_) + round_up(kernels_.panels_per_tile * panel_bytes_max_, 64) +
         round_up(columns_max_ * 4, 64);
}

void Weights::multiply(WeightId id, Multiply m) const {
  const Packed& packed = matrices_[static_cast<size_t>(id)];
  const MultiplyFunction function = function_of(kernels_, packed.matrix.packing, m.x.form);
  const int64_t end = m.panel_end, ready = std::clamp(packed.ready, m.panel_begin, end);
  m.w = &packed.matrix;
  m.ahead = m.tokens >= kernels_.ahead_from;
  m.panel_end = ready;
  if (m.panel_begin < ready) function(m);
  if (ready == end) return;
  unsigned char* panels = m.scratch + matmul_scratch_bytes(columns_max_);
  const int64_t tile = kernels_.panels_per_tile;
  auto* row = reinterpret_cast<float*>(panels + round_up(tile * panel_bytes_max_, 64));
  float* const out = m.out;
  for (int64_t panel = ready; panel < end; panel += tile) {
    Matrix part = packed.matrix;
    part.panels = std::min(tile, end - panel);
    part.rows = std::min(part.rows - kLanes * panel, kLanes * part.panels);
    part.data = panels;
    pack_panels_of(packed, model_->weights[static_cast<size_t>(id)], panel, part.panels, panels, row);
    m.w = &part;
    m.panel_begin = 0;
    m.panel_end = part.panels;
    m.out = out + kLanes * panel;
    function(m);
  }
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

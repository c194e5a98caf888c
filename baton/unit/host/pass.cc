// Scratch, and the steps but for the mixers and row-local parts: linears, embedding and head.
#include "baton/unit/host/pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "baton/unit/host/pack.h"

namespace baton::host {
namespace {

constexpr int64_t kCapValues = 4096;  // logits per piece of work
constexpr int64_t kAttendRows = 128;  // (query, head) pairs per tile of prefill attention

}  // namespace

Result<std::unique_ptr<Pass>> Pass::create(Weights& weights, ThreadPool& pool, int64_t rows_max, RowBits bits,
                                           DType kv) {
  BATON_CHECK(kv != DType::kF32);
  std::unique_ptr<Pass> pass(new Pass(weights, pool, rows_max, bits, kv));
  BATON_OK(pass->make_scratch());
  return pass;
}

Status Pass::make_scratch() {
  const Program& program = weights_.program();
  int64_t columns_max = kBlock, floats_max = 0, partial_floats = 0, heads_shared_max = 1, rotated_floats = 0;
  bool has_experts = false;
  for (const Op& op : program.ops) {
    has_experts |= op.kind == OpKind::kExperts;
    if (is_matrix_op(op)) columns_max = std::max(columns_max, weights_.matrix(op.weights[Op::kMatrix]).columns);
    const bool attends = op.kind == OpKind::kAttend || op.kind == OpKind::kAttendAll;
    if (attends) heads_shared_max = std::max<int64_t>(heads_shared_max, op.heads / op.kv_heads);
  }
  attend_query_tokens_ = std::max<int64_t>(1, kAttendRows / heads_shared_max);
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kAttend) {
      const int64_t shared = op.heads / op.kv_heads;
      const int64_t wide = attend_width(op);
      floats_max = std::max(floats_max, attend_scratch_floats(attend_query_tokens_ * shared, wide));
      partial_floats = std::max(partial_floats, kRunsMax * op.heads * kAttendSplitsMax * (wide + 2));
      if (rotates()) rotated_floats = std::max(rotated_floats, rows_max_ * op.heads * wide);
    } else if (op.kind == OpKind::kAttendAll) {
      const int64_t shared = op.heads / op.kv_heads;
      floats_max = std::max(floats_max, attend_scratch_floats(attend_query_tokens_ * shared, op.width));
      slopes_.resize(std::max(slopes_.size(), static_cast<size_t>(op.heads)));
    } else if (op.kind == OpKind::kDeltaRule) {
      floats_max = std::max(floats_max, delta_scratch_floats(op.key_dim, op.value_dim) + 2 * rows_max_);
    }
  }
  scratch_bytes_ = round_up(std::max(floats_max * 4, weights_.scratch_bytes()), 4096) + 64;
  BATON_TRY(scratch_,
            Memory::allocate(static_cast<size_t>(scratch_bytes_) * pool_.size(), "kernel scratch", weights_.unit()));
  BATON_TRY(partial_memory_,
            Memory::allocate(static_cast<size_t>(partial_floats) * 4, "attention scratch", weights_.unit()));
  BATON_TRY(rotated_memory_,
            Memory::allocate(static_cast<size_t>(rotated_floats) * 4, "rotated queries", weights_.unit()));
  BATON_TRY(operands_, Operands::create(kernels_, rows_max_, columns_max, weights_.unit()));

  if (has_experts) {
    BATON_TRY(experts_, ExpertPass::create(weights_, pool_, rows_max_));
  }

  int64_t total = 0;
  for (const Register& r : program.registers) {
    strides_.push_back(register_stride(r.width));
    total += strides_.back() * rows_max_;
  }
  BATON_TRY(register_memory_, Memory::allocate(static_cast<size_t>(total) * 4, "activations", weights_.unit()));
  float* next = register_memory_.floats();
  for (const int64_t stride : strides_) {
    registers_.push_back(next);
    next += stride * rows_max_;
  }

  total = 0;
  for (const RopeTable& table : weights_.plan().ropes) total += table.rotary * rows_max_;
  BATON_TRY(angle_memory_, Memory::allocate(static_cast<size_t>(total) * 4, "rotation angles", weights_.unit()));
  next = angle_memory_.floats();
  for (const RopeTable& table : weights_.plan().ropes) {
    angles_.push_back(next);
    next += table.rotary * rows_max_;
  }
  tokens_.resize(static_cast<size_t>(rows_max_));
  positions_.resize(static_cast<size_t>(rows_max_));
  run_of_row_.resize(static_cast<size_t>(rows_max_));
  logit_rows_.resize(static_cast<size_t>(rows_max_));
  runs_.reserve(kRunsMax);
  return {};
}

void Pass::start(std::span<const RunInput> runs, float* out) {
  BATON_CHECK(runs.size() <= kRunsMax);
  const int64_t outputs = weights_.program().output_width;
  runs_.clear();
  long_runs_ = 0;
  row_count_ = long_rows_ = 0;
  logit_row_ = -1;
  for (const RunInput& run : runs) {
    const auto rows = static_cast<int64_t>(run.tokens.size()), wanted = static_cast<int64_t>(run.rows_out);
    BATON_CHECK(row_count_ + rows <= rows_max_ && (run.decodes ? rows == 1 : long_runs_ == runs_.size()));
    runs_.push_back({run.state, row_count_, rows, static_cast<int64_t>(run.position), int64_t{run.kept}, !run.decodes});
    BATON_CHECK(run.state->has_room(run.position + run.tokens.size()));
    if (wanted > 0 && logit_row_ < 0) logit_row_ = row_count_ + rows - wanted;
    for (int64_t i = 0; i < rows; ++i, ++row_count_) {
      const auto r = static_cast<size_t>(row_count_);
      tokens_[r] = run.tokens[static_cast<size_t>(i)];
      positions_[r] = runs_.back().start + i;
      run_of_row_[r] = static_cast<uint8_t>(runs_.size() - 1);
      logit_rows_[r] = i < rows - wanted ? nullptr : out;
      if (logit_rows_[r] != nullptr) out += outputs;
    }
    if (run.decodes) continue;
    ++long_runs_;
    long_rows_ = row_count_;
  }
  if (logit_row_ < 0) logit_row_ = row_count_;
  prepare_angles();
}

void Pass::finish() {
  for (const Run& run : runs_)
    run.state->advance(static_cast<uint64_t>(run.rows), static_cast<uint64_t>(run.kept), run.searches);
}

void Pass::run(const Step& step) {
  const int64_t begin = first_row(step), end = row_count_;
  if (begin >= end) return;
  switch (step.work) {
    case Work::kEmbed: {
      const Weight& weight = weights_.model().weights[static_cast<size_t>(step.op.weights[Op::kMatrix])];
      const size_t row_size = weight.bytes / static_cast<size_t>(weight.rows);
      pool_.parallel_for(end - begin, 16, [&](int64_t first, int64_t last, uint32_t) {
        for (int64_t r = begin + first; r < begin + last; ++r) {
          const std::byte* from = weight.data + static_cast<size_t>(tokens_[static_cast<size_t>(r)]) * row_size;
          format_of(weight.dtype).decode(from, row(step.op.out, r), static_cast<size_t>(weight.columns));
        }
      });
      return;
    }
    case Work::kRows:
      return run_rows(step, begin, end);
    case Work::kLinears:
      return run_linears(step, begin, end);
    case Work::kAttend:
      return run_attend(step.op, begin);
    case Work::kAttendAll:
      return attend_all(step.op);
    case Work::kExperts:
      return run_experts(step.op, begin, end);
    case Work::kConv:
      return run_conv(step.op);
    case Work::kDelta:
      return run_delta(step.op);
    case Work::kHead:
      return run_head(step.op, begin, end);
    case Work::kCapLogits:
      return cap_logits(step.op, begin, end);
    case Work::kOutput:
      return run_output(step.op, begin, end);
  }
}

void Pass::run_rows(const Step& step, int64_t begin, int64_t end) {
  const int64_t rows = end - begin;
  // Two or three rows take less time than waking the others.
  const int64_t grain = rows < 4 ? rows : std::clamp<int64_t>(rows / (4 * pool_.size()), 1, 16);
  pool_.parallel_for(rows, grain, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t r = begin + first; r < begin + last; ++r) {
      for (const RowPart& part : step.rows) run_row(part, r, begin);
    }
  });
}

void Pass::run_linears(const Step& step, int64_t begin, int64_t end) {
  const int64_t untiled = begin + rows_in_tiles(begin, width(step.x));
  const int64_t tile = kernels_.panels_per_tile;
  // Where the rows end that a matrix takes in tiles.
  const auto tiles_end = [&](const Matrix& w) {
    return form_of(kernels_, w.packing, true) != form_of(kernels_, w.packing, false) ? untiled : begin;
  };
  int64_t count_all = 0;
  Activations integers;
  for (const LinearPart& part : step.linears) {
    const Matrix& w = weights_.matrix(part.weight);
    count_all += (w.panels + tile - 1) / tile;
    if (!is_integer(w.packing) || integers.form == Form::kIntegers) continue;
    integers = operands_->integers(tiles_end(w), end - tiles_end(w), width(step.x), pool_);
  }
  const int64_t grain = std::max<int64_t>(1, count_all / (8 * pool_.size()));
  pool_.parallel_for(count_all, grain, [&](int64_t first, int64_t last, uint32_t thread) {
    for (const LinearPart& part : step.linears) {
      const Matrix& w = weights_.matrix(part.weight);
      const int64_t count = (w.panels + tile - 1) / tile;
      Multiply m;
      m.panel_begin = std::max<int64_t>(first, 0) * tile;
      m.panel_end = std::min(last * tile, w.panels);
      m.out_stride = stride(part.out);
      m.add = part.add;
      m.scratch = scratch(thread);
      const auto multiply = [&](const Activations& x, int64_t from, int64_t to) {
        if (from == to) return;
        m.x = x;
        m.tokens = to - from;
        m.out = row(part.out, from);
        weights_.multiply(part.weight, m);
      };
      if (m.panel_begin < m.panel_end) {
        const int64_t from = tiles_end(w);
        multiply(operands_->tiles(form_of(kernels_, w.packing, true)), begin, from);
        multiply(is_integer(w.packing) ? integers : Operands::floats(row(step.x, from), stride(step.x)), from, end);
      }
      first -= count;
      last -= count;
      if (last <= 0) return;
    }
  });
}

// Wanted rows only. Rows that are not wanted are squeezed out of the input in place: nothing reads it after the head.
void Pass::run_head(const Op& op, int64_t begin, int64_t end) {
  const Matrix& w = weights_.matrix(op.weights[Op::kMatrix]);
  Forms forms;
  forms.add(form_of(kernels_, w.packing, false));
  int64_t count = 0;
  float* out = nullptr;
  for (int64_t r = begin; r < end; ++r) {
    float* to = logit_rows_[static_cast<size_t>(r)];
    if (to == nullptr) continue;
    if (count == 0) out = to;
    const int64_t target = begin + count;
    if (target != r) std::memcpy(row(op.x, target), row(op.x, r), static_cast<size_t>(w.columns) * sizeof(float));
    operands_->make(forms, count, 0, row(op.x, target), w.columns, bits_ == RowBits::kIndependent);
    ++count;
  }
  Multiply product;
  product.x = is_integer(w.packing) ? operands_->integers(0, count, w.columns, pool_)
                                    : Operands::floats(row(op.x, begin), stride(op.x));
  product.tokens = count;
  product.out = out;
  product.out_stride = weights_.program().output_width;
  const int64_t grain =
      std::max<int64_t>(kernels_.panels_per_tile, round_up(w.panels / (32 * pool_.size()), kernels_.panels_per_tile));
  pool_.parallel_for(w.panels, grain, [&](int64_t first, int64_t last, uint32_t thread) {
    Multiply m = product;
    m.panel_begin = first;
    m.panel_end = last;
    m.scratch = scratch(thread);
    weights_.multiply(op.weights[Op::kMatrix], m);
  });
}

void Pass::cap_logits(const Op& op, int64_t begin, int64_t end) {
  const int64_t width = weights_.program().output_width, pieces = (width + kCapValues - 1) / kCapValues;
  pool_.parallel_for((end - begin) * pieces, 4, [&](int64_t piece, int64_t last, uint32_t) {
    for (; piece < last; ++piece) {
      float* row = logit_rows_[static_cast<size_t>(begin + piece / pieces)];
      const int64_t first = piece % pieces * kCapValues;
      if (row != nullptr) kernels_.soft_cap(op.cap, std::min(kCapValues, width - first), row + first);
    }
  });
}

void Pass::run_output(const Op& op, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    if (float* to = logit_rows_[static_cast<size_t>(r)])
      std::memcpy(to, row(op.x, r), static_cast<size_t>(width(op.x)) * sizeof(float));
  }
}

void Pass::prepare_angles() {
  for (size_t i = 0; i < angles_.size(); ++i) {
    const std::vector<float>& frequencies = weights_.frequencies(i);
    const auto half = static_cast<int64_t>(frequencies.size());
    const float magnitude = weights_.plan().ropes[i].magnitude;
    pool_.parallel_for(row_count_, row_count_ < 8 ? row_count_ : 16, [&](int64_t first, int64_t last, uint32_t) {
      for (int64_t r = first; r < last; ++r) {
        float* to = angles_[i] + r * weights_.plan().ropes[i].rotary;
        for (int64_t j = 0; j < half; ++j) {
          const float angle =
              static_cast<float>(positions_[static_cast<size_t>(r)]) * frequencies[static_cast<size_t>(j)];
          to[j] = magnitude * std::cos(angle);
          to[half + j] = magnitude * std::sin(angle);
        }
      }
    });
  }
}

}  // namespace baton::host

// One pass over the plan: row-local steps, linears, embedding and head.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "baton/unit/cpu/executor.h"
#include "baton/unit/cpu/pack.h"

namespace baton::cpu {

void CpuExecutor::run_pass(int64_t logit_row) {
  prepare_angles();
  for (const Step& step : plan_.steps) {
    const int64_t begin = step.only_for_logits ? logit_row : 0;
    if (begin < row_count_) run_step(step, begin, row_count_);
  }
}

void CpuExecutor::run_step(const Step& step, int64_t begin, int64_t end) {
  switch (step.work) {
    case Work::kEmbed: {
      const Weight& weight = model_->weights[static_cast<size_t>(step.op.weight)];
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
      return run_attend(step.op, begin, end);
    case Work::kConv:
      return run_conv(step.op);
    case Work::kDelta:
      return run_delta(step.op);
    case Work::kHead:
      return run_head(step.op, begin, end);
  }
}

void CpuExecutor::run_rows(const Step& step, int64_t begin, int64_t end) {
  const int64_t rows = end - begin;
  // Two or three rows take less time than waking the others.
  const int64_t grain = rows < 4 ? rows : std::clamp<int64_t>(rows / (4 * pool_.size()), 1, 16);
  pool_.parallel_for(rows, grain, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t r = begin + first; r < begin + last; ++r) {
      for (const RowPart& part : step.rows) run_row(part, r);
    }
  });
}

void CpuExecutor::run_row(const RowPart& part, int64_t r) {
  const Op& op = part.op;
  switch (part.kind) {
    case Row::kNorm:
      for (int64_t i = 0; i < width(op.x); i += op.width) {
        kernels_.rms_norm(row(op.x, r) + i, vector_of(op.weight), op.eps, op.width, row(op.out, r) + i);
      }
      return;
    case Row::kGatedNorm:
      for (int64_t i = 0; i < width(op.x); i += op.width) {
        kernels_.gated_norm(row(op.x, r) + i, vector_of(op.weight), row(op.y, r) + i, op.eps, op.width,
                            row(op.out, r) + i);
      }
      return;
    case Row::kSplitPairs: {
      const size_t bytes = static_cast<size_t>(op.width) * sizeof(float);
      for (int64_t head = 0; head < op.heads; ++head) {
        const float* pair = row(op.x, r) + 2 * head * op.width;
        std::memcpy(row(op.out, r) + head * op.width, pair, bytes);
        std::memcpy(row(op.out2, r) + head * op.width, pair + op.width, bytes);
      }
      return;
    }
    case Row::kRope: {
      if (op.out != op.x) std::memcpy(row(op.out, r), row(op.x, r), static_cast<size_t>(width(op.x)) * sizeof(float));
      const int64_t half = op.rotary / 2;
      const float* cosines = angles_[static_cast<size_t>(part.rope)] + r * op.rotary;
      const bool adjacent = op.pairing == RopePairing::kAdjacent;
      for (int64_t head = 0; head < op.heads; ++head) {
        float* at = row(op.out, r) + head * op.width;
        kernels_.rope(at, cosines, cosines + half, half, adjacent, at);
      }
      return;
    }
    case Row::kAppend: {
      const Run& run = runs_.size() == 1 ? runs_[0] : runs_[static_cast<size_t>(r)];
      const int64_t at = (run.start + r - run.first_row) * op.width;
      for (int64_t head = 0; head < op.kv_heads; ++head) {
        kernels_.to_f16(row(op.y, r) + head * op.width, op.width, run.state->halves(op.slot, head) + at);
        kernels_.to_f16(row(op.z, r) + head * op.width, op.width, run.state->halves(op.slot2, head) + at);
      }
      return;
    }
    case Row::kSigmoidGate:
      return kernels_.sigmoid_gate(row(op.x, r), row(op.y, r), width(op.out), row(op.out, r));
    case Row::kSwiGlu:
      return kernels_.swiglu(row(op.x, r), row(op.y, r), width(op.out), row(op.out, r));
    case Row::kAdd:
      return kernels_.add(row(op.x, r), row(op.y, r), width(op.out), row(op.out, r));
    case Row::kQuantize:
      return kernels_.quantize(row(op.x, r), width(op.x), quantized_ + r * (width(op.x) / kBlock));
  }
}

void CpuExecutor::run_linears(const Step& step, int64_t begin, int64_t end) {
  Activations a;
  a.x = row(step.x, begin);
  a.x_stride = stride(step.x);
  a.blocks = quantized_ + begin * (width(step.x) / kBlock);
  const int64_t tile = kernels_.panels_per_tile;
  int64_t tiles = 0;
  for (const LinearPart& part : step.linears) tiles += (matrix_of(part.weight).panels + tile - 1) / tile;
  const int64_t grain = std::max<int64_t>(1, tiles / (8 * pool_.size()));
  pool_.parallel_for(tiles, grain, [&](int64_t first, int64_t last, uint32_t thread) {
    for (const LinearPart& part : step.linears) {
      const Matrix& w = matrix_of(part.weight);
      const int64_t count = (w.panels + tile - 1) / tile;
      const int64_t panel_begin = std::max<int64_t>(first, 0) * tile, panel_end = std::min(last * tile, w.panels);
      if (panel_begin < panel_end) {
        kernels_.matmul[static_cast<size_t>(w.packing)](w, panel_begin, panel_end, a, end - begin, row(part.out, begin),
                                                        stride(part.out), part.add, scratch(thread));
      }
      first -= count;
      last -= count;
      if (last <= 0) return;
    }
  });
}

// Wanted rows only. Rows that are not wanted (slots of a decode step) are squeezed out of the input in place: nothing
// reads it after the head.
void CpuExecutor::run_head(const Op& op, int64_t begin, int64_t end) {
  const Matrix& w = matrix_of(op.weight);
  int64_t count = 0;
  float* wanted[kDecodeSlotsMax] = {};
  bool even = true;  // evenly spaced in memory: written in place
  float* out = nullptr;
  int64_t out_stride = model_->program.vocab;
  for (int64_t r = begin; r < end; ++r) {
    float* to = logit_rows_[static_cast<size_t>(r)];
    if (to == nullptr) continue;
    const int64_t target = begin + count;
    if (target != r) std::memcpy(row(op.x, target), row(op.x, r), static_cast<size_t>(w.columns) * sizeof(float));
    if (is_integer(w.packing))
      kernels_.quantize(row(op.x, target), w.columns, quantized_ + count * (w.columns / kBlock));
    if (count < kDecodeSlotsMax) wanted[count] = to;
    if (count == 0) out = to;
    even = even && to == out + count * out_stride;
    ++count;
  }
  if (!even) {
    BATON_CHECK(count <= kDecodeSlotsMax);
    out = head_memory_.floats();
  }
  Activations a;
  a.x = row(op.x, begin);
  a.x_stride = stride(op.x);
  a.blocks = quantized_;
  const int64_t grain =
      std::max<int64_t>(kernels_.panels_per_tile, round_up(w.panels / (32 * pool_.size()), kernels_.panels_per_tile));
  pool_.parallel_for(w.panels, grain, [&](int64_t first, int64_t last, uint32_t thread) {
    kernels_.matmul[static_cast<size_t>(w.packing)](w, first, last, a, count, out, out_stride, false, scratch(thread));
  });
  if (!even) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(wanted[i], out + i * out_stride, static_cast<size_t>(out_stride) * sizeof(float));
    }
  }
}

void CpuExecutor::prepare_angles() {
  for (size_t i = 0; i < angles_.size(); ++i) {
    const std::vector<float>& frequencies = frequencies_[i];
    const auto half = static_cast<int64_t>(frequencies.size());
    pool_.parallel_for(row_count_, row_count_ < 8 ? row_count_ : 16, [&](int64_t first, int64_t last, uint32_t) {
      for (int64_t r = first; r < last; ++r) {
        float* to = angles_[i] + r * plan_.ropes[i].rotary;
        for (int64_t j = 0; j < half; ++j) {
          const float angle =
              static_cast<float>(positions_[static_cast<size_t>(r)]) * frequencies[static_cast<size_t>(j)];
          to[j] = std::cos(angle);
          to[half + j] = std::sin(angle);
        }
      }
    });
  }
}

}  // namespace baton::cpu

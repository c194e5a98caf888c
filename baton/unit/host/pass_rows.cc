// The parts of a pass that see one row each: norms, activations, positions, and what is kept of keys and values.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "baton/unit/host/pass.h"

namespace baton::host {

void Pass::norm_row(Row kind, const Op& op, int64_t r) {
  const float* const scale = weights_.vector(op.weights[Op::kScale]);
  for (int64_t i = 0; i < width(op.x); i += op.width) {
    const float* const x = row(op.x, r) + i;
    float* const out = row(op.out, r) + i;
    if (kind == Row::kNorm) kernels_.rms_norm(x, scale, op.eps, op.width, out);
    if (kind == Row::kGatedNorm) kernels_.gated_norm(x, scale, row(op.y, r) + i, op.eps, op.width, out);
    if (kind == Row::kLayerNorm)
      kernels_.layer_norm(x, scale, weights_.vector(op.weights[Op::kShift]), op.eps, op.width, out);
  }
}

void Pass::run_row(const RowPart& part, int64_t r, int64_t begin) {
  const Op& op = part.op;
  switch (part.kind) {
    case Row::kNorm:
    case Row::kLayerNorm:
    case Row::kGatedNorm:
      return norm_row(part.kind, op, r);
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
    case Row::kAppend:
      return append_row(op, r);
    case Row::kSigmoidGate:
      if (op.width > 1) return gate_groups(op, r);
      return kernels_.sigmoid_gate(row(op.x, r), row(op.y, r), width(op.out), row(op.out, r));
    case Row::kSwiGlu:
      return kernels_.swiglu(row(op.x, r), row(op.y, r), width(op.out), row(op.out, r));
    case Row::kAdd:
      return kernels_.add(row(op.x, r), row(op.y, r), width(op.out), row(op.out, r));
    case Row::kBias:
      return kernels_.add(row(op.x, r), weights_.vector(op.weights[Op::kOffset]), width(op.out), row(op.out, r));
    case Row::kPosition:
      return kernels_.add(row(op.x, r),
                          weights_.vector(op.weights[Op::kMatrix]) + positions_[static_cast<size_t>(r)] * width(op.out),
                          width(op.out), row(op.out, r));
    case Row::kGelu:
      return kernels_.gelu(row(op.x, r), op.gelu == Gelu::kTanh, width(op.out), row(op.out, r));
    case Row::kGeGlu:
      return kernels_.geglu(row(op.x, r), row(op.y, r), op.gelu == Gelu::kTanh, width(op.out), row(op.out, r));
    case Row::kScale:
      return kernels_.scale(row(op.x, r), op.scale, width(op.out), row(op.out, r));
    case Row::kPositionScale: {
      const int64_t step = (positions_[static_cast<size_t>(r)] + op.ahead) / op.window;
      return kernels_.scale(row(op.x, r), 1.0f + op.scale * std::log(1.0f + static_cast<float>(step)), width(op.out),
                            row(op.out, r));
    }
    case Row::kMultiply:
      return kernels_.multiply(row(op.x, r), row(op.y, r), width(op.out), row(op.out, r));
    case Row::kOperands: {
      const bool tiled = r - begin < rows_in_tiles(begin, width(op.x));
      return operands_->make(tiled ? part.forms.tiled : part.forms.others, r, r - begin, row(op.x, r), width(op.x),
                             bits_ == RowBits::kIndependent);
    }
  }
}

// One gate for `width` values each.
void Pass::gate_groups(const Op& op, int64_t r) {
  for (int64_t i = 0, group = 0; i < width(op.out); i += op.width, ++group) {
    const float gate = 1 / (1 + std::exp(-row(op.y, r)[group]));
    kernels_.scale(row(op.x, r) + i, gate, std::min<int64_t>(op.width, width(op.out) - i), row(op.out, r) + i);
  }
}

void Pass::append_row(const Op& op, int64_t r) {
  const Run& run = runs_[run_of_row_[static_cast<size_t>(r)]];
  const auto token = static_cast<uint64_t>(run.start + r - run.first_row), columns = static_cast<uint64_t>(op.width);
  const auto put = [&](const float* x, std::byte* to) {
    if (kv_ != DType::kF16) return encode_row(kv_, x, columns, to);
    kernels_.to_f16(x, op.width, reinterpret_cast<uint16_t*>(to));
    return row_fit(kv_, x, columns);
  };
  for (int64_t head = 0; head < op.kv_heads; ++head) {
    const auto place = [&](SlotId slot) { return run.state->row(slot, static_cast<uint64_t>(head), token); };
    std::byte* const values = place(op.slot2);
    const RowFit keys_are = put(row(op.y, r) + head * op.width, place(op.slot));
    const RowFit values_are = put(row(op.z, r) + head * op.width, values);
    // No answer instead of a wrong one: like values that are too large, those that are too small show in the logits.
    if (keys_are == RowFit::kFine && values_are == RowFit::kFine) continue;
    run.state->found_bad();
    if (keys_are == RowFit::kLost || values_are == RowFit::kLost) spoil_row(kv_, columns, values);
  }
}

}  // namespace baton::host

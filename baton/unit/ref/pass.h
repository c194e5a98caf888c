// The `ref` unit: interprets a Program op by op in plain f32. The oracle of the conformance and golden tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "baton/state/rows.h"
#include "baton/unit/host/host_state.h"
#include "baton/unit/ref/experts.h"
#include "baton/unit/ref/ops.h"
#include "baton/unit/ref/ref.h"

namespace baton::ref {

inline const float* vector_of(const Model& model, WeightId id) {
  return reinterpret_cast<const float*>(model.weights[id].data);
}

// Runs the ops for `tokens` rows at the state's position; what the last `kept` of them need to be taken back is kept.
class Pass {
 public:
  Pass(const Model& model, const Product& product, host::HostState& state, std::span<const int32_t> tokens,
       int64_t kept, LoadCounter& loads)
      : model_(model),
        product_(product),
        loads_(loads),
        state_(state),
        tokens_(tokens),
        count_(static_cast<int64_t>(tokens.size())),
        start_(static_cast<int64_t>(state.position())),
        kept_(kept) {
    registers_.reserve(model.program.registers.size());
    for (const Register& r : model.program.registers) registers_.emplace_back(count_ * r.width);
  }

  // The last `logit_rows` rows of logits go to `logits`.
  void run(float* logits, int64_t logit_rows, const std::function<void(size_t op)>& behind) {
    for (size_t i = 0; i < model_.program.ops.size(); ++i) {
      const Op& op = model_.program.ops[i];
      if (op.kind == OpKind::kHead) {
        if (logit_rows > 0)
          product_(op.weights[Op::kMatrix], model_.weights[op.weights[Op::kMatrix]], row(op.x, count_ - logit_rows),
                   logits, logit_rows);
        if (op.cap != 0) {
          for (float& logit : std::span(logits, static_cast<size_t>(logit_rows * model_.program.output_width)))
            logit = soft_cap(logit, op.cap);
        }
      } else if (op.kind == OpKind::kOutput) {
        std::copy_n(row(op.x, count_ - logit_rows), logit_rows * width(op.x), logits);
      } else {
        run_op(op);
      }
      if (behind) behind(i);
    }
  }

 private:
  int64_t width(RegisterId id) const { return model_.program.registers[id].width; }
  float* row(RegisterId id, int64_t token) { return registers_[id].data() + token * width(id); }

  void run_op(const Op& op) {
    switch (op.kind) {
      case OpKind::kEmbed:
        for (int64_t t = 0; t < count_; ++t) embed(model_.weights[op.weights[Op::kMatrix]], tokens_[t], row(op.out, t));
        return;
      case OpKind::kLinear:
        return product_(op.weights[Op::kMatrix], model_.weights[op.weights[Op::kMatrix]], row(op.x, 0), row(op.out, 0),
                        count_);
      case OpKind::kRmsNorm:
        return each_group(op, [&](const float* x, const float*, float* out) {
          rms_norm(x, vector_of(model_, op.weights[Op::kScale]), out, op.width, op.eps);
        });
      case OpKind::kLayerNorm:
        return each_group(op, [&](const float* x, const float*, float* out) {
          layer_norm(x, vector_of(model_, op.weights[Op::kScale]), vector_of(model_, op.weights[Op::kShift]), out,
                     op.width, op.eps);
        });
      case OpKind::kGatedNorm:
        return each_group(op, [&](const float* x, const float* gate, float* out) {
          rms_norm(x, vector_of(model_, op.weights[Op::kScale]), out, op.width, op.eps);
          for (int64_t i = 0; i < op.width; ++i) out[i] *= silu(gate[i]);
        });
      case OpKind::kSplitPairs:
        return split_pairs(op);
      case OpKind::kRope:
        return run_rope(op);
      case OpKind::kAttend:
        return run_attend(op);
      case OpKind::kCausalConv:
        return run_conv(op);
      case OpKind::kDeltaRule:
        return run_delta(op);
      case OpKind::kSigmoidGate:
        return run_gate(op);
      case OpKind::kSwiGlu:
        return each_value(op, [](float x, float y) { return silu(x) * y; });
      case OpKind::kGeGlu:
        return each_value(op, [&](float x, float y) { return gelu(x, op.gelu) * y; });
      case OpKind::kAdd:
        return each_value(op, [](float x, float y) { return x + y; });
      case OpKind::kScale:
        for (int64_t i = 0; i < count_ * width(op.out); ++i) row(op.out, 0)[i] = op.scale * row(op.x, 0)[i];
        return;
      case OpKind::kBias:
        return add_bias(op);
      case OpKind::kPosition:
        return add_positions(op);
      case OpKind::kAttendAll:
        return attend_all(op);
      case OpKind::kExperts:
        return run_experts(model_, product_, op, row(op.x, 0), row(op.out, 0), count_, loads_);
      case OpKind::kGelu:
        for (int64_t i = 0; i < count_ * width(op.out); ++i) row(op.out, 0)[i] = gelu(row(op.x, 0)[i], op.gelu);
        return;
      case OpKind::kShortConv:
        return run_short_conv(op);
      case OpKind::kPositionScale:
        for (int64_t i = 0; i < count_ * width(op.out); ++i)
          row(op.out, 0)[i] =
              row(op.x, 0)[i] * position_scale(start_ + op.ahead + i / width(op.out), op.scale, op.window);
        return;
      case OpKind::kHead:
      case OpKind::kOutput:
        return;
    }
  }

  template <class Function>
  void each_value(const Op& op, Function function) {
    const float* x = row(op.x, 0);
    const float* y = row(op.y, 0);
    float* out = row(op.out, 0);
    for (int64_t i = 0; i < count_ * width(op.out); ++i) out[i] = function(x[i], y[i]);
  }

  void run_gate(const Op& op) {
    const int64_t group = std::max(op.width, 1);
    for (int64_t t = 0; t < count_; ++t) {
      for (int64_t i = 0; i < width(op.out); ++i)
        row(op.out, t)[i] = row(op.x, t)[i] * sigmoid(row(op.y, t)[i / group]);
    }
  }

  void add_bias(const Op& op) {
    const float* bias = vector_of(model_, op.weights[Op::kOffset]);
    for (int64_t t = 0; t < count_; ++t) {
      for (int64_t i = 0; i < width(op.out); ++i) row(op.out, t)[i] = row(op.x, t)[i] + bias[i];
    }
  }

  void add_positions(const Op& op) {
    std::vector<float> added(width(op.out));
    for (int64_t t = 0; t < count_; ++t) {
      embed(model_.weights[op.weights[Op::kMatrix]], start_ + t, added.data());
      for (int64_t i = 0; i < width(op.out); ++i) row(op.out, t)[i] = row(op.x, t)[i] + added[i];
    }
  }

  template <class Function>
  void each_group(const Op& op, Function function) {
    for (int64_t i = 0; i < count_ * width(op.x); i += op.width) {
      function(row(op.x, 0) + i, op.y >= 0 ? row(op.y, 0) + i : nullptr, row(op.out, 0) + i);
    }
  }

  void split_pairs(const Op& op) {
    for (int64_t head = 0; head < count_ * op.heads; ++head) {
      const float* pair = row(op.x, 0) + head * 2 * op.width;
      std::copy_n(pair, op.width, row(op.out, 0) + head * op.width);
      std::copy_n(pair + op.width, op.width, row(op.out2, 0) + head * op.width);
    }
  }

  void run_rope(const Op& op) {
    if (op.out != op.x) registers_[op.out] = registers_[op.x];
    const float* factors =
        op.weights[Op::kRopeFactors] >= 0 ? vector_of(model_, op.weights[Op::kRopeFactors]) : nullptr;
    for (int64_t t = 0; t < count_; ++t) {
      for (int64_t head = 0; head < op.heads; ++head) {
        rope(row(op.out, t) + head * op.width, op.rotary, start_ + t, op.rope_theta, op.pairing, factors,
             op.rope_magnitude);
      }
    }
  }

  void run_attend(const Op& op) {
    const DType kv = state_.shape().segments[op.slot].dtype;
    std::vector<float*> keys(start_ + count_), values(start_ + count_);
    std::vector<float> decoded;
    if (kv != DType::kF32) decoded.resize(2 * (start_ + count_) * op.width);
    for (int64_t kv_head = 0; kv_head < op.kv_heads; ++kv_head) {
      for (int64_t p = 0; p < start_ + count_; ++p) {
        std::byte* const key = state_.row(op.slot, kv_head, p);
        std::byte* const value = state_.row(op.slot2, kv_head, p);
        if (p >= start_) append(op, p - start_, kv_head, kv, key, value);
        if (kv == DType::kF32) {
          keys[p] = reinterpret_cast<float*>(key);
          values[p] = reinterpret_cast<float*>(value);
          continue;
        }
        keys[p] = decoded.data() + 2 * p * op.width;
        values[p] = keys[p] + op.width;
        decode_row(kv, key, op.width, keys[p]);
        decode_row(kv, value, op.width, values[p]);
      }
      const int64_t shared = op.heads / op.kv_heads;
      for (int64_t t = 0; t < count_; ++t) {
        const size_t seen = start_ + t + 1;
        size_t hidden = op.window != 0 && seen > static_cast<size_t>(op.window) ? seen - op.window : 0;
        if (op.chunk != 0) hidden = (seen - 1) / op.chunk * op.chunk;
        for (int64_t head = kv_head * shared; head < (kv_head + 1) * shared; ++head)
          attend(row(op.x, t) + head * op.width, std::span(keys).subspan(hidden, seen - hidden),
                 std::span(values).subspan(hidden, seen - hidden), row(op.out, t) + head * op.width, op.width, op.scale,
                 op.cap);
      }
    }
  }

  // No answer instead of a wrong one, where a type keeps nothing of a row.
  void append(const Op& op, int64_t t, int64_t kv_head, DType kv, std::byte* key, std::byte* value) {
    const RowFit keys_are = encode_row(kv, row(op.y, t) + kv_head * op.width, op.width, key);
    const RowFit values_are = encode_row(kv, row(op.z, t) + kv_head * op.width, op.width, value);
    const bool lost = keys_are == RowFit::kLost || values_are == RowFit::kLost;
    if (lost && kv != DType::kF32) spoil_row(kv, op.width, value);
  }

  // The tokens of the pass are all there are.
  void attend_all(const Op& op) {
    std::vector<const float*> keys(count_), values(count_);
    std::vector<float> taken;  // of the scores
    for (int64_t head = 0; head < op.heads; ++head) {
      const int64_t at = head / (op.heads / op.kv_heads) * op.width;
      for (int64_t t = 0; t < count_; ++t) keys[t] = row(op.y, t) + at, values[t] = row(op.z, t) + at;
      for (int64_t t = 0; t < count_; ++t) {
        const int64_t first = op.window == 0 ? 0 : std::max<int64_t>(0, t - op.window);
        const int64_t end = op.window == 0 ? count_ : std::min(count_, t + op.window + 1);
        taken.clear();
        for (int64_t p = first; p < end && op.alibi != 0; ++p)
          taken.push_back(-alibi_slope(op, static_cast<int32_t>(head)) * static_cast<float>(std::abs(p - t)));
        attend(row(op.x, t) + head * op.width, std::span(keys).subspan(first, end - first),
               std::span(values).subspan(first, end - first), row(op.out, t) + head * op.width, op.width, op.scale, 0,
               taken);
      }
    }
  }

  // The slot holds the last taps - 1 inputs, oldest first.
  void run_conv(const Op& op) {
    const int64_t channels = width(op.x);
    float* past = state_.floats(op.slot);
    std::vector<float> window(op.taps * channels);
    for (int64_t t = 0; t < count_; ++t) {
      keep(op, t, (op.taps - 1) * channels);
      std::copy_n(past, (op.taps - 1) * channels, window.begin());
      std::copy_n(row(op.x, t), channels, window.begin() + (op.taps - 1) * channels);
      causal_conv(window.data(), vector_of(model_, op.weights[Op::kTaps]), row(op.out, t), channels, op.taps);
      std::copy(window.begin() + channels, window.end(), past);
    }
  }

  void run_short_conv(const Op& op) {
    const int64_t channels = width(op.out), columns = (op.taps - 1) * channels;
    float* past = state_.floats(op.slot);
    std::vector<float> window(op.taps * channels);
    for (int64_t t = 0; t < count_; ++t) {
      keep(op, t, columns);
      std::copy_n(past, columns, window.begin());
      for (int64_t c = 0; c < channels; ++c) window[columns + c] = row(op.x, t)[c] * row(op.y, t)[c];
      short_conv(window.data(), vector_of(model_, op.weights[Op::kTaps]), row(op.z, t), row(op.out, t), channels,
                 op.taps);
      std::copy_n(window.begin() + columns, channels, row(op.out2, t));
      std::copy(window.begin() + channels, window.end(), past);
    }
  }

  void run_delta(const Op& op) {
    const int64_t key_width = int64_t{op.kv_heads} * op.key_dim;
    const float* decay_rate = vector_of(model_, op.weights[Op::kDecayRate]);
    const float* dt_bias = vector_of(model_, op.weights[Op::kTimeBias]);
    std::vector<float> q(op.key_dim), k(op.key_dim);
    for (int64_t t = 0; t < count_; ++t) {
      keep(op, t, int64_t{op.heads} * op.key_dim * op.value_dim);
      for (int64_t head = 0; head < op.heads; ++head) {
        const int64_t key_head =
            op.head_map == HeadMap::kGrouped ? head / (op.heads / op.kv_heads) : head % op.kv_heads;
        const float* x = row(op.x, t);
        l2_norm(x + key_head * op.key_dim, q.data(), op.key_dim, op.eps);
        l2_norm(x + key_width + key_head * op.key_dim, k.data(), op.key_dim, op.eps);
        for (float& value : q) value /= std::sqrt(static_cast<float>(op.key_dim));
        const float beta = sigmoid(row(op.y, t)[head]);
        const float g = decay_rate[head] * softplus(row(op.z, t)[head] + dt_bias[head]);
        delta_step(state_.floats(op.slot) + head * op.key_dim * op.value_dim, q.data(), k.data(),
                   x + 2 * key_width + head * op.value_dim, std::exp(g), beta, row(op.out, t) + head * op.value_dim,
                   op.key_dim, op.value_dim);
      }
    }
  }

  // What the op's slot holds before row t.
  void keep(const Op& op, int64_t t, int64_t values) {
    if (t < count_ - kept_) return;
    std::copy_n(state_.floats(op.slot), values, state_.kept(op.slot, static_cast<uint64_t>(start_ + t)));
  }

  const Model& model_;
  const Product& product_;
  LoadCounter& loads_;
  host::HostState& state_;
  std::span<const int32_t> tokens_;
  const int64_t count_;
  const int64_t start_, kept_;
  std::vector<std::vector<float>> registers_;
};

}  // namespace baton::ref

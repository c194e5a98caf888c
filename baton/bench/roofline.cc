// Counting over the ops of a Program.
#include "baton/bench/roofline.h"

#include <cmath>

#include <algorithm>

#include "baton/unit/host/pack.h"
#include "baton/unit/host/plan.h"

namespace baton {
namespace {

constexpr uint64_t kKeyBytes = 2;  // f16

uint64_t matrix_bytes_of(const Weight& weight, const Caps* caps) {
  const bool native = caps == nullptr ? host::is_native(weight.dtype)
                                      : std::find(caps->native_formats.begin(), caps->native_formats.end(),
                                                  weight.dtype) != caps->native_formats.end();
  return native ? weight.bytes : static_cast<uint64_t>(weight.rows * weight.columns) * 4;
}

const Weight& weight_of(const Model& model, const Op& op, size_t part) {
  return model.weights[static_cast<size_t>(op.weights[part])];
}

// Of an op of experts, of which a pass of so many rows reads those that any row chose: here as if all were as likely.
double expert_bytes(const Model& model, const Op& op, double rows, const Caps* caps) {
  const double missed = std::pow(1 - static_cast<double>(op.experts_used) / op.experts, rows);
  double each = 0;
  for (const size_t part : {Op::kGates, Op::kUps, Op::kDowns})
    each += static_cast<double>(matrix_bytes_of(weight_of(model, op, part), caps));
  return op.experts * (1 - missed) * each +
         static_cast<double>(matrix_bytes_of(weight_of(model, op, Op::kRouter), caps));
}

}  // namespace

StepBytes decode_step_bytes(const Model& model, uint32_t sequences, uint64_t depth, const Caps* caps) {
  const uint64_t key_bytes = caps == nullptr ? kKeyBytes : caps->kv_type == DType::kF32 ? 4 : 2;
  StepBytes bytes;
  for (const Op& op : model.program.ops) {
    if (host::is_matrix_op(op)) {
      bytes.weights += matrix_bytes_of(weight_of(model, op, Op::kMatrix), caps);
    } else if (op.kind == OpKind::kExperts) {
      bytes.weights += static_cast<uint64_t>(expert_bytes(model, op, sequences, caps));
    } else if (op.kind == OpKind::kAttend) {
      uint64_t seen = op.window == 0 ? depth : std::min<uint64_t>(depth, static_cast<uint64_t>(op.window));
      if (op.chunk != 0) seen %= static_cast<uint64_t>(op.chunk);
      bytes.state +=
          sequences * seen * 2 * static_cast<uint64_t>(op.kv_heads) * static_cast<uint64_t>(op.width) * key_bytes;
    } else if (op.kind == OpKind::kDeltaRule) {
      bytes.state += sequences * static_cast<uint64_t>(op.heads) * static_cast<uint64_t>(op.key_dim) *
                     static_cast<uint64_t>(op.value_dim) * sizeof(float);
    }
  }
  return bytes;
}

std::map<host::Packing, double> test_operations(const Model& model, const SpeedTest& test) {
  const double tokens = static_cast<double>(test.prefill_tokens) + test.decode_tokens;
  const double heads_wanted = test.decode_tokens + (test.prefill_tokens > 0 ? 1.0 : 0.0);
  // Token t of the test sees depth + t + 1 tokens.
  const double seen = tokens * (test.depth + (tokens + 1) / 2);
  std::map<host::Packing, double> operations;
  for (const Op& op : model.program.ops) {
    if (host::is_matrix_op(op)) {
      const Weight& weight = model.weights[static_cast<size_t>(op.weights[Op::kMatrix])];
      operations[host::packing_of(weight.dtype)] +=
          2.0 * static_cast<double>(weight.rows * weight.columns) * (op.kind == OpKind::kHead ? heads_wanted : tokens);
    } else if (op.kind == OpKind::kExperts) {
      for (const size_t part : {Op::kRouter, Op::kGates, Op::kUps, Op::kDowns}) {
        const Weight& weight = weight_of(model, op, part);
        const bool router = part == Op::kRouter;
        operations[router ? host::Packing::kF32 : host::packing_of(weight.dtype)] +=
            2.0 * static_cast<double>(weight.rows * weight.columns) * tokens * (router ? 1 : op.experts_used);
      }
    } else if (op.kind == OpKind::kAttend) {
      operations[host::Packing::kF32] += 4.0 * op.heads * op.width * seen;
    } else if (op.kind == OpKind::kDeltaRule) {
      operations[host::Packing::kF32] += 7.0 * op.heads * op.key_dim * op.value_dim * tokens;
    }
  }
  for (auto& [packing, count] : operations) count *= test.sequences;
  return operations;
}

std::optional<double> share_of(double work, double seconds, const Rate& limit) {
  constexpr double kRateLeast = 1e6;  // bytes or operations a second
  if (!(limit.median >= kRateLeast)) return std::nullopt;
  return 100 * work / limit.median / seconds;
}

Result<LimitShares> limit_shares(const Model& model, const SpeedTest& test, double seconds,
                                 const host::Kernels& kernels, Limits& limits) {
  LimitShares shares;
  if (test.decode_tokens > 0 && test.prefill_tokens == 0) {
    const StepBytes bytes = decode_step_bytes(model, test.sequences, test.depth + (test.decode_tokens + 1) / 2);
    BATON_TRY(shares.read, limits.read(bytes.total()));
    shares.bandwidth = share_of(static_cast<double>(bytes.total() * test.decode_tokens), seconds, shares.read);
  }
  // Kinds of arithmetic share the cores: their least times add up.
  std::map<Arithmetic, double> by_kind;
  for (const auto& [packing, count] : test_operations(model, test)) by_kind[arithmetic_of(kernels, packing)] += count;
  double peak = 0;
  for (const auto& [which, count] : by_kind) {
    const auto rate = limits.arithmetic(which);
    const auto share = rate ? share_of(count, seconds, *rate) : std::nullopt;
    if (!share) return shares;
    peak += *share;
    shares.arithmetic.push_back(*rate);
  }
  shares.peak = peak;
  return shares;
}

Result<LimitShares> device_shares(const Model& model, const SpeedTest& test, double seconds, Unit& unit) {
  LimitShares shares;
  const bool f32 = unit.caps().product_type == DType::kF32;
  BATON_TRY(const Rate peak, unit.limit(f32 ? DeviceLimit::kF32Products : DeviceLimit::kBF16Products));
  if (test.decode_tokens > 0 && test.prefill_tokens == 0) {
    const StepBytes bytes =
        decode_step_bytes(model, test.sequences, test.depth + (test.decode_tokens + 1) / 2, &unit.caps());
    BATON_TRY(shares.read, unit.limit(DeviceLimit::kRead));
    shares.bandwidth = share_of(static_cast<double>(bytes.total() * test.decode_tokens), seconds, shares.read);
  }
  double operations = 0;
  for (const auto& [packing, count] : test_operations(model, test)) operations += count;
  shares.peak = share_of(operations, seconds, peak);
  if (shares.peak) shares.arithmetic.push_back(peak);
  return shares;
}

}  // namespace baton

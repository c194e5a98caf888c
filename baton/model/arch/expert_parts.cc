// Roles to expert ops.
#include "baton/model/arch/expert_parts.h"

#include <fmt/format.h>

#include "baton/model/arch/decoder_parts.h"
#include "baton/model/container_text.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

constexpr int32_t kSoftmaxRouter = 1;  // expert_gating_func

Routing routing_of(bool normalized) { return normalized ? Routing::kSoftmaxOfChosen : Routing::kSoftmaxOfAll; }

}  // namespace

Status check_expert_counts(const ModelSpec& spec, const std::string& file) {
  if (spec.experts_used <= spec.experts) return {};
  return fail(Code::kInvalidInput, fmt::format("{}: {} experts for a token, of {}; it must be at most as many", file,
                                               spec.experts_used, spec.experts));
}

Status read_experts(const ConfigReader& config, const std::string& file, bool shared, bool normalized,
                    ModelSpec& spec) {
  BATON_TRY(const int32_t local, config.integer("num_local_experts", 0, kExpertsMax, 0));
  std::optional<int32_t> usual;
  if (local != 0) usual = local;
  BATON_TRY(spec.experts, config.integer("num_experts", 1, kExpertsMax, usual));
  BATON_TRY(spec.experts_used, config.integer("num_experts_per_tok", 1, kExpertsUsedMax));
  BATON_TRY(spec.expert_width, config.integer("moe_intermediate_size", 1, 8 * kHiddenMax));
  if (shared) {
    BATON_TRY(spec.shared_width, config.integer("shared_expert_intermediate_size", 1, 8 * kHiddenMax));
  }
  BATON_TRY(normalized, config.boolean("norm_topk_prob", normalized));
  spec.routing = routing_of(normalized);
  // Of a dense network, which no layer has.
  static_cast<void>(config.value("intermediate_size"));
  spec.intermediate = shared ? spec.shared_width : spec.expert_width;
  BATON_TRY(const int32_t step, config.integer("decoder_sparse_step", 1, 1 << 20, 1));
  const Json* dense = config.value("mlp_only_layers");
  if (step != 1 || (dense != nullptr && !(dense->is_array() && dense->empty()))) {
    return fail(Code::kUnsupported,
                fmt::format("{}: field '{}': layers without experts among others are not supported; every layer must "
                            "have them",
                            file, step != 1 ? "decoder_sparse_step" : "mlp_only_layers"));
  }
  return check_expert_counts(spec, file);
}

Status read_experts(const GgufReader& keys, const std::string& file, bool shared, ModelSpec& spec) {
  BATON_TRY(spec.experts, keys.integer("expert_count", 1, kExpertsMax));
  BATON_TRY(spec.experts_used, keys.integer("expert_used_count", 1, kExpertsUsedMax));
  BATON_TRY(spec.expert_width, keys.integer("expert_feed_forward_length", 1, 8 * kHiddenMax));
  if (shared) {
    BATON_TRY(spec.shared_width,
              keys.integer("expert_shared_feed_forward_length", 1, 8 * kHiddenMax, spec.expert_width));
  }
  static_cast<void>(keys.integer("feed_forward_length", 0, 8 * kHiddenMax, 0));
  spec.intermediate = shared ? spec.shared_width : spec.expert_width;
  BATON_TRY(const int32_t function, keys.integer("expert_gating_func", 0, 16, kSoftmaxRouter));
  if (function != kSoftmaxRouter) {
    return fail(Code::kUnsupported, fmt::format("{}: key '{}' is {}; there is: 1 (softmax)", file,
                                                keys.name("expert_gating_func"), function));
  }
  BATON_TRY(const bool normalized, keys.boolean("expert_weights_norm", true));
  spec.routing = routing_of(normalized);
  return check_expert_counts(spec, file);
}

ExpertNetwork::ExpertNetwork(ModelBuilder& builder) : builder_(builder) {
  const ModelSpec& spec = builder.spec();
  if (spec.shared_width == 0) return;
  gate_ = builder.add_register("gate", spec.shared_width);
  up_ = builder.add_register("up", spec.shared_width);
  result_ = builder.add_register("shared", spec.hidden);
  if (spec.shared_gated) switch_ = builder.add_register("switch", 1);
}

Status ExpertNetwork::add(RegisterId in, RegisterId out, int32_t layer) const {
  const ModelSpec& spec = builder_.spec();
  const int64_t hidden = spec.hidden, inner = spec.expert_width;
  const bool fused = builder_.has("layers.{}.experts.gate_up", layer);
  const auto role_of = [&](std::string_view own) {
    return fused ? std::string_view("layers.{}.experts.gate_up") : own;
  };
  const int64_t stride = fused ? 2 * inner : inner;
  Op op{.kind = OpKind::kExperts, .layer = layer};
  op.out = out;
  op.x = in;
  op.experts = spec.experts;
  op.experts_used = spec.experts_used;
  op.routing = spec.routing;
  BATON_TRY(op.weights[Op::kRouter], builder_.weight("layers.{}.experts.router", layer, spec.experts, hidden));
  const std::string_view gate = "layers.{}.experts.gate", up = "layers.{}.experts.up", down = "layers.{}.experts.down";
  BATON_TRY(op.weights[Op::kGates], builder_.experts({gate, role_of(gate), inner, hidden, 0, stride}, layer));
  BATON_TRY(op.weights[Op::kUps], builder_.experts({up, role_of(up), inner, hidden, fused ? inner : 0, stride}, layer));
  const std::string_view downs = "layers.{}.experts.down_fused";
  BATON_TRY(op.weights[Op::kDowns],
            builder_.experts({down, builder_.has(downs, layer) ? downs : down, hidden, inner, 0, hidden}, layer));
  builder_.add_op(op);
  return spec.shared_width == 0 ? Status() : add_shared(in, out, layer);
}

// out = out + sigmoid(s in) shared(in), or without the sigmoid
Status ExpertNetwork::add_shared(RegisterId in, RegisterId out, int32_t layer) const {
  BATON_OK(add_linear(builder_, "layers.{}.shared.gate", layer, in, gate_));
  BATON_OK(add_linear(builder_, "layers.{}.shared.up", layer, in, up_));
  const bool gated = builder_.spec().shared_gated;
  if (gated) BATON_OK(add_linear(builder_, "layers.{}.shared.switch", layer, in, switch_));
  Op network{.kind = OpKind::kSwiGlu, .layer = layer};
  network.out = network.x = gate_;
  network.y = up_;
  builder_.add_op(network);
  BATON_OK(add_linear(builder_, "layers.{}.shared.down", layer, gate_, result_));
  Op gate{.kind = OpKind::kSigmoidGate, .layer = layer};
  gate.out = gate.x = result_;
  gate.y = switch_;
  gate.width = builder_.width(result_);
  if (gated) builder_.add_op(gate);
  Op sum{.kind = OpKind::kAdd, .layer = layer};
  sum.out = sum.x = out;
  sum.y = result_;
  builder_.add_op(sum);
  return {};
}

}  // namespace baton

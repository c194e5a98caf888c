// Shared blocks of decoder architectures.
#include "baton/model/arch/decoder_parts.h"

#include <fmt/format.h>

#include "baton/model/container_text.h"
#include "baton/model/spec.h"

namespace baton {

BlockRegisters add_block_registers(ModelBuilder& builder) {
  const ModelSpec& spec = builder.spec();
  BlockRegisters registers{};
  registers.x = builder.add_register("x", spec.hidden);
  registers.normed = builder.add_register("n", spec.hidden);
  registers.out = builder.add_register("o", spec.hidden);
  registers.gate = builder.add_register("gate", spec.intermediate);
  registers.up = builder.add_register("up", spec.intermediate);
  return registers;
}

Status add_embedding(ModelBuilder& builder, const BlockRegisters& registers) {
  const ModelSpec& spec = builder.spec();
  BATON_TRY(const WeightId weight, builder.weight("embed", -1, spec.vocab, spec.hidden));
  Op op{.kind = OpKind::kEmbed};
  op.out = registers.x;
  op.weights[Op::kMatrix] = weight;
  builder.add_op(op);
  return {};
}

Status add_norm(ModelBuilder& builder, const BlockRegisters& registers, std::string_view role, int32_t layer) {
  const ModelSpec& spec = builder.spec();
  BATON_TRY(const WeightId weight, builder.weight(role, layer, 1, spec.hidden));
  Op op{.kind = OpKind::kRmsNorm, .layer = layer};
  op.out = registers.normed;
  op.x = registers.x;
  op.weights[Op::kScale] = weight;
  op.width = spec.hidden;
  op.eps = spec.rms_eps;
  builder.add_op(op);
  return {};
}

Status add_linear(ModelBuilder& builder, std::string_view role, int32_t layer, RegisterId in, RegisterId out) {
  BATON_TRY(const WeightId weight, builder.weight(role, layer, builder.width(out), builder.width(in)));
  Op op{.kind = OpKind::kLinear, .layer = layer};
  op.out = out;
  op.x = in;
  op.weights[Op::kMatrix] = weight;
  builder.add_op(op);
  BATON_TRY(const bool biased, builder.has_bias(role, layer));
  if (!biased) return {};
  Op bias{.kind = OpKind::kBias, .layer = layer};
  BATON_TRY(bias.weights[Op::kOffset], builder.weight(std::string(role) + ".bias", layer, 1, builder.width(out)));
  bias.out = bias.x = out;
  builder.add_op(bias);
  return {};
}

WeightId add_rope_factors(ModelBuilder& builder) {
  const ModelSpec& spec = builder.spec();
  for (const std::string_view name : kRopeTensors) builder.mark_used(name);
  const std::vector<float> divisors = rope_divisors(spec.rope_scaling, spec.rope_theta, spec.rotary);
  return divisors.empty() ? -1 : builder.add_vector("rope_factors", divisors);
}

Result<float> read_rotated_share(const ConfigReader& config, const std::string& file, float fallback) {
  BATON_TRY(float share, config.real("partial_rotary_factor", 0, 1, fallback));
  for (const char* field : {"rope_parameters", "rope_scaling"}) {
    if (const Json* object = config.value(field)) {
      BATON_TRY(share, ConfigReader(*object, file).real("partial_rotary_factor", 0, 1, share));
    }
  }
  return share;
}

void add_rope(ModelBuilder& builder, RegisterId x, int32_t heads, WeightId factors, int32_t layer) {
  const ModelSpec& spec = builder.spec();
  add_rope(builder, x, heads, factors, layer, spec.rope_theta, spec.rope_scaling.magnitude);
}

void add_rope(ModelBuilder& builder, RegisterId x, int32_t heads, WeightId factors, int32_t layer, float theta,
              float magnitude) {
  const ModelSpec& spec = builder.spec();
  Op rope{.kind = OpKind::kRope, .layer = layer};
  rope.out = rope.x = x;
  rope.heads = heads;
  rope.width = spec.head_dim;
  rope.rotary = spec.rotary;
  rope.rope_theta = theta;
  rope.pairing = spec.rope_pairing;
  rope.weights[Op::kRopeFactors] = factors;
  rope.rope_magnitude = magnitude;
  builder.add_op(rope);
}

Status check_activation(const ConfigReader& config, const std::string& file) {
  BATON_TRY(const std::string name, config.text("hidden_act", "silu"));
  if (name == "silu" || name == "swish") return {};
  return fail(Code::kUnsupported,
              fmt::format("{}: hidden_act '{}' is not supported; there is: silu (swish)", file, shown(name)));
}

Status check_switches(const ConfigReader& config, const std::string& file, bool normed_heads) {
  const std::pair<const char*, bool> switches[] = {
      {"is_causal", true}, {"use_rope", true}, {"use_qk_norm", normed_heads}};
  for (const auto& [field, wanted] : switches) {
    BATON_TRY(const bool found, config.boolean(field, wanted));
    if (found == wanted) continue;
    return fail(Code::kUnsupported, fmt::format("{}: field '{}' is {}; this architecture computes what {} stands for: "
                                                "correct the field, or it is another model",
                                                file, field, found, wanted));
  }
  return {};
}

Status check_causal(const GgufReader& keys, const std::string& file) {
  BATON_TRY(const bool causal, keys.boolean("attention.causal", true));
  if (causal) return {};
  return fail(Code::kUnsupported,
              fmt::format("{}: key '{}' is false; attention here sees what came before, and no more: it must be true",
                          file, keys.name("attention.causal")));
}

Status check_window(const ConfigReader& config, const std::string& file, const ModelSpec& spec) {
  BATON_TRY(const int32_t window, config.integer("sliding_window", 0, 1 << 30, 0));
  BATON_TRY(const bool used, config.boolean("use_sliding_window", window != 0));
  if (!used || (window != 0 && window >= spec.context_max)) return {};
  return fail(
      Code::kUnsupported,
      fmt::format("{}: a sliding window of {} tokens is not supported: attention here sees all tokens", file, window));
}

Status check_value_length(const GgufReader& keys, const Container& container, const ModelSpec& spec) {
  BATON_TRY(const int32_t length, keys.integer("attention.value_length", 1, kHeadDimMax, spec.head_dim));
  BATON_TRY(const int32_t window, keys.integer("attention.sliding_window", 0, 1 << 30, 0));
  const std::string file = container.path.string();
  if (length != spec.head_dim) {
    return fail(Code::kUnsupported,
                fmt::format("{}: values of {} in heads of {}; both must be the same", file, length, spec.head_dim));
  }
  if (window != 0 && window < spec.context_max)
    return fail(Code::kUnsupported, fmt::format("{}: a sliding window of {} tokens is not supported", file, window));
  return {};
}

void add_residual(ModelBuilder& builder, const BlockRegisters& registers, int32_t layer) {
  Op op{.kind = OpKind::kAdd, .layer = layer};
  op.out = registers.x;
  op.x = registers.x;
  op.y = registers.out;
  builder.add_op(op);
}

Status add_swiglu_network(ModelBuilder& builder, const BlockRegisters& registers, std::string_view norm_role,
                          int32_t layer) {
  BATON_OK(add_norm(builder, registers, norm_role, layer));
  BATON_OK(add_linear(builder, "layers.{}.mlp.gate", layer, registers.normed, registers.gate));
  BATON_OK(add_linear(builder, "layers.{}.mlp.up", layer, registers.normed, registers.up));
  Op op{.kind = OpKind::kSwiGlu, .layer = layer};
  op.out = registers.gate;
  op.x = registers.gate;
  op.y = registers.up;
  builder.add_op(op);
  BATON_OK(add_linear(builder, "layers.{}.mlp.down", layer, registers.gate, registers.out));
  add_residual(builder, registers, layer);
  return {};
}

Status add_head(ModelBuilder& builder, const BlockRegisters& registers) {
  BATON_OK(add_norm(builder, registers, "norm", -1));
  return add_head_alone(builder, registers);
}

Status add_head_alone(ModelBuilder& builder, const BlockRegisters& registers, float cap) {
  const ModelSpec& spec = builder.spec();
  Op op{.kind = OpKind::kHead};
  op.cap = cap;
  op.x = registers.normed;
  if (builder.has("head")) {
    BATON_TRY(op.weights[Op::kMatrix], builder.weight("head", -1, spec.vocab, spec.hidden));
  } else if (spec.tied_head) {
    BATON_TRY(op.weights[Op::kMatrix], builder.find("embed"));
  } else {
    BATON_TRY(op.weights[Op::kMatrix], builder.weight("head", -1, spec.vocab, spec.hidden));  // reports what is missing
  }
  builder.add_op(op);
  return {};
}

std::pair<SlotId, SlotId> add_kv_slots(ModelBuilder& builder, int32_t layer) {
  const ModelSpec& spec = builder.spec();
  Slot slot{.kind = SlotKind::kKeys, .layer = layer};
  slot.heads = spec.kv_heads;
  slot.columns = spec.head_dim;
  const SlotId keys = builder.add_slot(slot);
  slot.kind = SlotKind::kValues;
  return {keys, builder.add_slot(slot)};
}

}  // namespace baton

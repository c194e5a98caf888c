// Shared blocks of decoder architectures.
#include "baton/model/arch/decoder_parts.h"

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
  op.weight = weight;
  builder.add_op(op);
  return {};
}

Status add_norm(ModelBuilder& builder, const BlockRegisters& registers, std::string_view role, int32_t layer) {
  const ModelSpec& spec = builder.spec();
  BATON_TRY(const WeightId weight, builder.weight(role, layer, 1, spec.hidden));
  Op op{.kind = OpKind::kRmsNorm, .layer = layer};
  op.out = registers.normed;
  op.x = registers.x;
  op.weight = weight;
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
  op.weight = weight;
  builder.add_op(op);
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
  const ModelSpec& spec = builder.spec();
  BATON_OK(add_norm(builder, registers, "norm", -1));
  Op op{.kind = OpKind::kHead};
  op.x = registers.normed;
  if (builder.has("head")) {
    BATON_TRY(op.weight, builder.weight("head", -1, spec.vocab, spec.hidden));
  } else if (spec.tied_head) {
    BATON_TRY(op.weight, builder.find("embed"));
  } else {
    BATON_TRY(op.weight, builder.weight("head", -1, spec.vocab, spec.hidden));  // reports what is missing
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

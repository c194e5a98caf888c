// The parts that decoder architectures share: pre-norm blocks around a mixer and a SwiGLU network, embedding and head.
#pragma once

#include "baton/model/config_reader.h"
#include "baton/model/model_builder.h"

namespace baton {

// Registers every block uses.
struct BlockRegisters {
  RegisterId x;       // residual stream
  RegisterId normed;  // input of the mixer or the network
  RegisterId out;     // what is added to the residual stream
  RegisterId gate, up;
};
BlockRegisters add_block_registers(ModelBuilder& builder);

// x = embedding of the token.
Status add_embedding(ModelBuilder& builder, const BlockRegisters& registers);
// normed = rms_norm(x) with the weight of `role`.
Status add_norm(ModelBuilder& builder, const BlockRegisters& registers, std::string_view role, int32_t layer);
// out = W in, and + bias where the layer has one (ModelBuilder::has_bias).
Status add_linear(ModelBuilder& builder, std::string_view role, int32_t layer, RegisterId in, RegisterId out);
// The divisors of spec.rope_scaling as a weight, -1 for none: once for a model, before add_rope.
WeightId add_rope_factors(ModelBuilder& builder);
// partial_rotary_factor, inside the rope's object or beside it; `fallback` when it is in neither.
Result<float> read_rotated_share(const ConfigReader& config, const std::string& file, float fallback);
// x's heads turned by their position, as the spec says.
void add_rope(ModelBuilder& builder, RegisterId x, int32_t heads, WeightId factors, int32_t layer);
void add_rope(ModelBuilder& builder, RegisterId x, int32_t heads, WeightId factors, int32_t layer, float theta,
              float magnitude);
// Refuse what these blocks do not compute: activations but silu, attention without a mask or positions, norms of
// queries and keys other than `normed_heads`, windows shorter than the context, values of another width than keys.
Status check_activation(const ConfigReader& config, const std::string& file);
Status check_switches(const ConfigReader& config, const std::string& file, bool normed_heads);  // is_causal and others
Status check_causal(const GgufReader& keys, const std::string& file);
Status check_window(const ConfigReader& config, const std::string& file, const ModelSpec& spec);
Status check_value_length(const GgufReader& keys, const Container& container, const ModelSpec& spec);
// x = x + out
void add_residual(ModelBuilder& builder, const BlockRegisters& registers, int32_t layer);
// x = x + down(silu(gate(norm(x))) * up(norm(x)))
Status add_swiglu_network(ModelBuilder& builder, const BlockRegisters& registers, std::string_view norm_role,
                          int32_t layer);
// Final norm and output head; the head is the embedding matrix when the file has no head of its own and the spec ties
// them.
Status add_head(ModelBuilder& builder, const BlockRegisters& registers);
// The head behind a norm that is there already; `cap` of its logits, 0 for none.
Status add_head_alone(ModelBuilder& builder, const BlockRegisters& registers, float cap = 0);
// Keys and values of one attention layer.
std::pair<SlotId, SlotId> add_kv_slots(ModelBuilder& builder, int32_t layer);

}  // namespace baton

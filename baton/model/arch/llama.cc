// Llama family (SmolLM2, Llama 2 and 3, TinyLlama): pre-norm blocks of grouped-query attention with RoPE and SwiGLU.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "baton/model/arch/decoder_parts.h"
#include "baton/model/config_reader.h"
#include "baton/model/harmless.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

constexpr TensorRole kRoles[] = {
    {"embed", "embed_tokens.weight", "token_embd.weight"},
    {"norm", "norm.weight", "output_norm.weight", TensorRule::kVector},
    {"head", "lm_head.weight", "output.weight"},
    {"layers.{}.norm1", "layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", TensorRule::kVector},
    {"layers.{}.norm2", "layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", TensorRule::kVector},
    {"layers.{}.attn.q", "layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", TensorRule::kMatrix,
     GgufOrder::kRotaryRowsQ},
    {"layers.{}.attn.k", "layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", TensorRule::kMatrix,
     GgufOrder::kRotaryRowsK},
    {"layers.{}.attn.v", "layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"layers.{}.attn.o", "layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"layers.{}.mlp.gate", "layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"layers.{}.mlp.up", "layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"layers.{}.mlp.down", "layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"layers.{}.attn.q.bias", "layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", TensorRule::kVector,
     GgufOrder::kRotaryRowsQ},
    {"layers.{}.attn.k.bias", "layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", TensorRule::kVector,
     GgufOrder::kRotaryRowsK},
    {"layers.{}.attn.v.bias", "layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", TensorRule::kVector},
    {"layers.{}.attn.o.bias", "layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", TensorRule::kVector},
    {"layers.{}.mlp.gate.bias", "layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", TensorRule::kVector},
    {"layers.{}.mlp.up.bias", "layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", TensorRule::kVector},
    {"layers.{}.mlp.down.bias", "layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", TensorRule::kVector},
};

bool matches(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const auto name = container.gguf.text("general.architecture");
    return name && *name && **name == "llama";
  }
  const auto type = ConfigReader(container.config, "").text("model_type", "");
  return type && *type == "llama";
}

Status check_layer_types(const ConfigReader& config, const std::string& file, int32_t layers) {
  const Json* types = config.value("layer_types");
  if (types != nullptr && types->is_array() && types->size() != static_cast<size_t>(layers)) {
    return fail(Code::kInvalidInput, fmt::format("{}: layer_types has {} entries for num_hidden_layers {}; give one "
                                                 "for each layer, or none",
                                                 file, types->size(), layers));
  }
  for (size_t i = 0; types != nullptr && i < types->size(); ++i) {
    if (types->is_array() && (*types)[i] == "full_attention") continue;
    return fail(Code::kUnsupported,
                fmt::format("{}: layer_types of llama must be a list of full_attention; entry {} is not", file, i));
  }
  return {};
}

Result<ModelSpec> read_hugging_face(const Container& container) {
  const std::string file = (container.path / "config.json").string();
  const ConfigReader config(container.config, file);
  ModelSpec spec;
  BATON_TRY(spec.hidden, config.integer("hidden_size", 1, kHiddenMax));
  BATON_TRY(spec.layers, config.integer("num_hidden_layers", 1, kLayersMax));
  BATON_TRY(spec.intermediate, config.integer("intermediate_size", 1, 8 * kHiddenMax));
  BATON_TRY(spec.heads, config.integer("num_attention_heads", 1, kHeadsMax));
  BATON_TRY(spec.kv_heads, config.integer("num_key_value_heads", 1, kHeadsMax, spec.heads));
  BATON_TRY(spec.head_dim, config.integer("head_dim", 1, kHeadDimMax, std::max(1, spec.hidden / spec.heads)));
  BATON_TRY(spec.vocab, config.integer("vocab_size", 1, kVocabMax));
  BATON_TRY(spec.context_max, config.integer("max_position_embeddings", 1, 1 << 30, 2048));
  BATON_TRY(spec.rms_eps, config.real("rms_norm_eps", 1e-12, 1e-2, 1e-6f));
  BATON_TRY(spec.tied_head, config.boolean("tie_word_embeddings", false));
  BATON_TRY(spec.attention_bias, config.boolean("attention_bias", false));
  BATON_TRY(spec.mlp_bias, config.boolean("mlp_bias", false));
  BATON_TRY(const float rotated, read_rotated_share(config, file, 1));
  if (rotated != 1) {
    return fail(Code::kUnsupported,
                fmt::format("{}: partial_rotary_factor {:g} is not supported for llama; there is: 1", file, rotated));
  }
  spec.rotary = spec.head_dim;
  BATON_OK(read_rope(config, file, 10000.0f, spec));
  BATON_OK(check_activation(config, file));
  BATON_OK(check_switches(config, file, false));
  BATON_OK(check_window(config, file, spec));
  BATON_OK(check_layer_types(config, file, spec.layers));
  spec.rope_pairing = RopePairing::kHalf;
  spec.layer_kinds.assign(spec.layers, LayerKind::kFullAttention);
  BATON_TRY(spec.stop_ids, read_stop_ids(container, container.config));
  BATON_OK(config.refuse_unread(harmless_fields()));
  return spec;
}

Result<ModelSpec> read_gguf(const Container& container) {
  const GgufReader keys(container, "llama");
  ModelSpec spec;
  BATON_TRY(const auto name, container.gguf.text("general.name"));
  spec.name = name.value_or("");
  BATON_TRY(spec.hidden, keys.integer("embedding_length", 1, kHiddenMax));
  BATON_TRY(spec.layers, keys.integer("block_count", 1, kLayersMax));
  BATON_TRY(spec.intermediate, keys.integer("feed_forward_length", 1, 8 * kHiddenMax));
  BATON_TRY(spec.heads, keys.integer("attention.head_count", 1, kHeadsMax));
  BATON_TRY(spec.kv_heads, keys.integer("attention.head_count_kv", 1, kHeadsMax, spec.heads));
  BATON_TRY(spec.head_dim, keys.integer("attention.key_length", 1, kHeadDimMax, std::max(1, spec.hidden / spec.heads)));
  BATON_TRY(spec.context_max, keys.integer("context_length", 1, 1 << 30));
  BATON_TRY(spec.rms_eps, keys.real("attention.layer_norm_rms_epsilon", 1e-12, 1e-2));
  BATON_TRY(spec.rope_theta, keys.real("rope.freq_base", 1, 1e12, 10000.0f));
  BATON_TRY(spec.rotary, keys.integer("rope.dimension_count", 0, kHeadDimMax, spec.head_dim));
  BATON_OK(read_rope(keys, container, spec));
  BATON_OK(check_value_length(keys, container, spec));
  BATON_OK(check_causal(keys, container.path.string()));
  BATON_TRY(const int32_t experts, keys.integer("expert_count", 0, kHeadsMax, 0));
  if (experts != 0) {
    return fail(Code::kUnsupported,
                fmt::format("{}: {} experts; mixtures are not supported for llama", container.path.string(), experts));
  }
  spec.rope_pairing = RopePairing::kAdjacent;
  const TensorView* embedding = container.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: tensor 'token_embd.weight' is missing or not a matrix", container.path.string()));
  }
  spec.vocab = static_cast<int32_t>(std::min<uint64_t>(embedding->shape[0], uint64_t{1} << 30));
  spec.tied_head = container.find("output.weight") == nullptr;
  spec.layer_kinds.assign(spec.layers, LayerKind::kFullAttention);
  BATON_TRY(spec.stop_ids, read_stop_ids(container, Json()));
  BATON_OK(keys.refuse_unread(harmless_keys()));
  return spec;
}

Result<ModelSpec> read_spec(const Container& container) {
  return container.kind == ContainerKind::kGguf ? read_gguf(container) : read_hugging_face(container);
}

struct AttentionRegisters {
  RegisterId query, keys, values, mixed;
};

Status add_attention(ModelBuilder& builder, const BlockRegisters& block, const AttentionRegisters& r, WeightId factors,
                     int32_t layer) {
  const ModelSpec& spec = builder.spec();
  BATON_OK(add_linear(builder, "layers.{}.attn.q", layer, block.normed, r.query));
  BATON_OK(add_linear(builder, "layers.{}.attn.k", layer, block.normed, r.keys));
  BATON_OK(add_linear(builder, "layers.{}.attn.v", layer, block.normed, r.values));
  add_rope(builder, r.query, spec.heads, factors, layer);
  add_rope(builder, r.keys, spec.kv_heads, factors, layer);
  Op attend{.kind = OpKind::kAttend, .layer = layer};
  attend.out = r.mixed;
  attend.x = r.query;
  attend.y = r.keys;
  attend.z = r.values;
  std::tie(attend.slot, attend.slot2) = add_kv_slots(builder, layer);
  attend.heads = spec.heads;
  attend.kv_heads = spec.kv_heads;
  attend.width = spec.head_dim;
  attend.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  builder.add_op(attend);
  return add_linear(builder, "layers.{}.attn.o", layer, r.mixed, block.out);
}

Status build(ModelBuilder& builder) {
  const ModelSpec& spec = builder.spec();
  const BlockRegisters block = add_block_registers(builder);
  const AttentionRegisters attention = {builder.add_register("q", spec.heads * spec.head_dim),
                                        builder.add_register("k", spec.kv_heads * spec.head_dim),
                                        builder.add_register("v", spec.kv_heads * spec.head_dim),
                                        builder.add_register("att", spec.heads * spec.head_dim)};
  const WeightId factors = add_rope_factors(builder);
  BATON_OK(add_embedding(builder, block));
  for (int32_t layer = 0; layer < spec.layers; ++layer) {
    BATON_OK(add_norm(builder, block, "layers.{}.norm1", layer));
    BATON_OK(add_attention(builder, block, attention, factors, layer));
    add_residual(builder, block, layer);
    BATON_OK(add_swiglu_network(builder, block, "layers.{}.norm2", layer));
  }
  return add_head(builder, block);
}

}  // namespace

extern const Architecture k_llama;
const Architecture k_llama = {"llama", "llama", kRoles, matches, read_spec, build};

}  // namespace baton

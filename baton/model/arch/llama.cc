// Llama family (SmolLM2, Llama 2 and 3, TinyLlama): pre-norm blocks of grouped-query attention with RoPE and SwiGLU.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

#include "baton/model/arch/decoder_parts.h"
#include "baton/model/config_reader.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

constexpr TensorRole kRoles[] = {
    {"embed", "embed_tokens.weight", "token_embd.weight"},
    {"norm", "norm.weight", "output_norm.weight", TensorRule::kVector},
    {"head", "lm_head.weight", "output.weight"},
    {"rope_factors", "", "rope_freqs.weight", TensorRule::kVector},
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
};

bool matches(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const auto name = container.gguf.text("general.architecture");
    return name && *name && **name == "llama";
  }
  const auto type = ConfigReader(container.config, "").text("model_type", "");
  return type && *type == "llama";
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
  for (const char* field : {"attention_bias", "mlp_bias"}) {
    BATON_TRY(const bool biased, config.boolean(field, false));
    if (biased)
      return fail(Code::kUnsupported, fmt::format("{}: '{}' is true; biases are not supported for llama", file, field));
  }
  BATON_TRY(const float top_theta, config.real("rope_theta", 1, 1e12, 10000.0f));
  const Json empty = Json::object();
  const auto found = container.config.find("rope_parameters");
  const ConfigReader rope(found != container.config.end() ? *found : empty, file + ": rope_parameters");
  BATON_TRY(spec.rope_theta, rope.real("rope_theta", 1, 1e12, top_theta));
  spec.rotary = spec.head_dim;
  spec.rope_pairing = RopePairing::kHalf;
  spec.layer_kinds.assign(spec.layers, LayerKind::kFullAttention);
  BATON_TRY(spec.stop_ids, read_stop_ids(container, container.config));
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
  return spec;
}

Result<ModelSpec> read_spec(const Container& container) {
  return container.kind == ContainerKind::kGguf ? read_gguf(container) : read_hugging_face(container);
}

// Divisors of the rotary frequencies. "llama3" scaling: long wavelengths are divided by `factor`, short ones kept,
// those between blended (Llama 3.1 model card and Hugging Face's rope code). Empty: no scaling.
Result<std::vector<float>> rope_factors(const Container& container, const ModelSpec& spec) {
  std::vector<float> factors;
  if (container.kind == ContainerKind::kGguf) return factors;
  const std::string file = (container.path / "config.json").string();
  const Json* scaling = nullptr;
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const auto found = container.config.find(field);
    if (found != container.config.end() && found->is_object()) {
      scaling = &*found;
      break;
    }
  }
  if (scaling == nullptr) return factors;
  const ConfigReader reader(*scaling, file + ": rope scaling");
  BATON_TRY(const std::string old_type, reader.text("type", "default"));
  BATON_TRY(const std::string type, reader.text("rope_type", old_type));
  if (type == "default") return factors;
  if (type != "llama3" && type != "linear") {
    return fail(Code::kUnsupported,
                fmt::format("{}: rope_type '{}' is not supported; there are: default, linear, llama3", file, type));
  }
  BATON_TRY(const float factor, reader.real("factor", 1, 1e6));
  factors.assign(spec.rotary / 2, factor);
  if (type == "linear") return factors;
  BATON_TRY(const float low, reader.real("low_freq_factor", 1e-3, 1e6));
  BATON_TRY(const float high, reader.real("high_freq_factor", 1e-3, 1e6));
  BATON_TRY(const int32_t original, reader.integer("original_max_position_embeddings", 1, 1 << 30));
  for (int32_t i = 0; i < spec.rotary / 2; ++i) {
    const float frequency = std::pow(spec.rope_theta, -2.0f * static_cast<float>(i) / static_cast<float>(spec.rotary));
    const float wavelength = 2.0f * std::numbers::pi_v<float> / frequency;
    const float turns = static_cast<float>(original) / wavelength;
    if (turns > high) {
      factors[i] = 1.0f;
    } else if (turns >= low) {
      const float smooth = (turns - low) / (high - low);
      factors[i] = 1.0f / ((1.0f - smooth) / factor + smooth);
    }
  }
  return factors;
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
  for (const bool is_query : {true, false}) {
    Op rope{.kind = OpKind::kRope, .layer = layer};
    rope.out = rope.x = is_query ? r.query : r.keys;
    rope.heads = is_query ? spec.heads : spec.kv_heads;
    rope.width = spec.head_dim;
    rope.rotary = spec.rotary;
    rope.rope_theta = spec.rope_theta;
    rope.pairing = spec.rope_pairing;
    rope.rope_factors = factors;
    builder.add_op(rope);
  }
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
  WeightId factors = -1;
  if (builder.has("rope_factors")) {
    BATON_TRY(factors, builder.weight("rope_factors", -1, 1, spec.rotary / 2));
  } else {
    BATON_TRY(const std::vector<float> values, rope_factors(builder.container(), spec));
    if (!values.empty()) factors = builder.add_vector("rope_factors", values);
  }
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

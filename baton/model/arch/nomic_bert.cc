// Nomic's BERT: BERT with rotated queries and keys, SwiGLU and few biases. Its configuration is written in GPT-2's
// words (nomic-ai's files) or in BERT's (those of transformers).
#include <fmt/format.h>

#include <algorithm>

#include "baton/model/arch/encoder.h"
#include "baton/model/container_text.h"

namespace baton {
namespace {

constexpr TensorRule kVector = TensorRule::kVector;
constexpr TensorRole kRoles[] = {
    {"embed", "embeddings.word_embeddings.weight", "token_embd.weight"},
    {"types", "embeddings.token_type_embeddings.weight", "token_types.weight", TensorRule::kFirstRow},
    {"norm", "emb_ln.weight", "token_embd_norm.weight", kVector},
    {"norm.bias", "emb_ln.bias", "token_embd_norm.bias", kVector},
    {"layers.{}.attn.q", "encoder.layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},
    {"layers.{}.attn.k", "encoder.layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},
    {"layers.{}.attn.v", "encoder.layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},
    {"layers.{}.attn.o", "encoder.layers.{}.attn.out_proj.weight", "blk.{}.attn_output.weight"},
    {"layers.{}.mlp.gate", "encoder.layers.{}.mlp.fc12.weight", "blk.{}.ffn_gate.weight"},
    {"layers.{}.mlp.up", "encoder.layers.{}.mlp.fc11.weight", "blk.{}.ffn_up.weight"},
    {"layers.{}.mlp.down", "encoder.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight"},
    {"layers.{}.attn.q.bias", "encoder.layers.{}.attn.Wqkv.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.k.bias", "encoder.layers.{}.attn.Wqkv.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.v.bias", "encoder.layers.{}.attn.Wqkv.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.o.bias", "encoder.layers.{}.attn.out_proj.bias", "blk.{}.attn_output.bias", kVector},
    {"layers.{}.mlp.gate.bias", "encoder.layers.{}.mlp.fc12.bias", "blk.{}.ffn_gate.bias", kVector},
    {"layers.{}.mlp.up.bias", "encoder.layers.{}.mlp.fc11.bias", "blk.{}.ffn_up.bias", kVector},
    {"layers.{}.mlp.down.bias", "encoder.layers.{}.mlp.fc2.bias", "blk.{}.ffn_down.bias", kVector},
    {"layers.{}.norm1", "encoder.layers.{}.norm1.weight", "blk.{}.attn_output_norm.weight", kVector},
    {"layers.{}.norm1.bias", "encoder.layers.{}.norm1.bias", "blk.{}.attn_output_norm.bias", kVector},
    {"layers.{}.norm2", "encoder.layers.{}.norm2.weight", "blk.{}.layer_output_norm.weight", kVector},
    {"layers.{}.norm2.bias", "encoder.layers.{}.norm2.bias", "blk.{}.layer_output_norm.bias", kVector},
};

bool matches(const Container& container) {
  if (is_gguf_of(container, "nomic-bert")) return true;
  return is_folder_of(container, {"nomic_bert"});
}

void set_blocks(ModelSpec& spec, Activation activation) {
  spec.encoder.gated = spec.encoder.fused_qkv = true;
  spec.encoder.activation = activation;
}

Status check_rest(const ConfigReader& config, const std::string& file) {
  for (const auto& [field, wanted] :
       {std::pair{"prenorm", false}, std::pair{"parallel_block", false}, std::pair{"use_rms_norm", false},
        std::pair{"causal", false}, std::pair{"rotary_emb_interleaved", false}, std::pair{"scale_attn_weights", true},
        std::pair{"scale_attn_by_inverse_layer_idx", false}}) {
    BATON_TRY(const bool found, config.boolean(field, wanted));
    if (found == wanted) continue;
    return fail(Code::kUnsupported, fmt::format("{}: field '{}' is {}; it must be {}", file, field, found, wanted));
  }
  BATON_TRY(const float share, config.real("rotary_emb_fraction", 0, 1, 1));
  const Json* scale = config.value("rotary_emb_scale_base");
  if (share != 1 || scale != nullptr) {
    return fail(Code::kUnsupported, fmt::format("{}: rotary_emb_fraction must be 1, and rotary_emb_scale_base null: "
                                                "whole heads are turned here",
                                                file));
  }
  return {};
}

// Positions are stretched only beyond what the model was trained for: texts end there.
Status read_context(const ConfigReader& config, ModelSpec& spec) {
  BATON_TRY(const int32_t trained, config.integer("max_trained_positions", 1, 1 << 20, spec.context_max));
  if (config.value("rotary_scaling_factor") != nullptr) spec.context_max = std::min(spec.context_max, trained);
  return {};
}

constexpr float kTheta = 1000;

Result<ModelSpec> read_folder_of_transformers(const Container& container) {
  const std::string file = (container.path / "config.json").string();
  const ConfigReader config(container.config, file);
  BATON_TRY(ModelSpec spec, start_encoder(config, file, {.usual_activation = "silu", .positions = "rope"}));
  set_blocks(spec, spec.encoder.activation);
  spec.attention_bias = spec.mlp_bias = false;
  BATON_TRY(spec.token_types, config.integer("type_vocab_size", 0, 1 << 10, 2));
  BATON_OK(read_encoder_rope(config, file, kTheta, spec));
  return finish_encoder(config, file, {}, std::move(spec));
}

Result<ModelSpec> read_folder(const Container& container) {
  if (!container.config.contains("n_embd")) return read_folder_of_transformers(container);
  const std::string file = (container.path / "config.json").string();
  // "swiglu" says gate and activation in one.
  Json fields = container.config;
  if (fields.contains("activation_function") && fields["activation_function"] == "swiglu")
    fields["activation_function"] = "silu";
  const ConfigReader config(fields, file);
  BATON_TRY(ModelSpec spec, start_encoder(config, file,
                                          {.hidden = "n_embd",
                                           .layers = "n_layer",
                                           .intermediate = "n_inner",
                                           .heads = "n_head",
                                           .context = "n_positions",
                                           .activation = "activation_function",
                                           .usual_activation = "silu",
                                           .eps = "layer_norm_epsilon",
                                           .positions = "rope"}));
  if (spec.encoder.activation != Activation::kSilu) {
    return fail(Code::kUnsupported, fmt::format("{}: activation_function must be swiglu", file));
  }
  set_blocks(spec, Activation::kSilu);
  BATON_TRY(spec.token_types, config.integer("type_vocab_size", 0, 1 << 10, 2));
  BATON_TRY(spec.attention_bias, config.boolean("qkv_proj_bias", true));
  BATON_TRY(spec.mlp_bias, config.boolean("mlp_fc1_bias", true));
  BATON_TRY(const bool behind, config.boolean("mlp_fc2_bias", true));
  if (behind != spec.mlp_bias)
    return fail(Code::kUnsupported, fmt::format("{}: mlp_fc1_bias and mlp_fc2_bias must be the same", file));
  spec.encoder.position_rows = 0;
  spec.rotary = spec.head_dim;
  BATON_TRY(spec.rope_theta, config.real("rotary_emb_base", 1, 1e12, 10000));
  BATON_OK(read_context(config, spec));
  BATON_OK(check_rest(config, file));
  return finish_encoder(
      config, file,
      {"attn_pdrop", "embd_pdrop", "resid_pdrop", "fused_bias_fc", "fused_dropout_add_ln", "dense_seq_output",
       "last_layer_subset", "pad_vocab_size_multiple", "reorder_and_upcast_attn", "summary_activation",
       "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "use_xentropy"},
      std::move(spec));
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind != ContainerKind::kGguf) return read_folder(container);
  const GgufReader keys(container, "nomic-bert");
  BATON_TRY(ModelSpec spec, start_encoder_keys(container, keys, true, kTheta));
  set_blocks(spec, Activation::kSilu);
  return finish_encoder_keys(keys, std::move(spec));
}

}  // namespace

extern const Architecture k_nomic_bert;
const Architecture k_nomic_bert = {"nomic_bert", "nomic-bert", kRoles, matches, read_spec, build_encoder};

}  // namespace baton

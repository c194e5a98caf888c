// GTE's later encoders (gte-multilingual, gte-en-v1.5): BERT with rotated queries and keys and GeGLU.
#include <fmt/format.h>

#include <cmath>

#include "baton/model/arch/encoder.h"

namespace baton {
namespace {

constexpr TensorRule kVector = TensorRule::kVector;
constexpr TensorRole kRoles[] = {
    {"embed", "embeddings.word_embeddings.weight", "token_embd.weight"},
    {"types", "embeddings.token_type_embeddings.weight", "token_types.weight", TensorRule::kFirstRow},
    {"norm", "embeddings.LayerNorm.weight", "token_embd_norm.weight", kVector},
    {"norm.bias", "embeddings.LayerNorm.bias", "token_embd_norm.bias", kVector},
    {"layers.{}.attn.q", "encoder.layer.{}.attention.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
    {"layers.{}.attn.k", "encoder.layer.{}.attention.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
    {"layers.{}.attn.v", "encoder.layer.{}.attention.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
    {"layers.{}.attn.o", "encoder.layer.{}.attention.o_proj.weight", "blk.{}.attn_output.weight"},
    {"layers.{}.mlp.gate", "encoder.layer.{}.mlp.up_gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"layers.{}.mlp.up", "encoder.layer.{}.mlp.up_gate_proj.weight", "blk.{}.ffn_up.weight"},
    {"layers.{}.mlp.down", "encoder.layer.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"layers.{}.attn.q.bias", "encoder.layer.{}.attention.qkv_proj.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.k.bias", "encoder.layer.{}.attention.qkv_proj.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.v.bias", "encoder.layer.{}.attention.qkv_proj.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.o.bias", "encoder.layer.{}.attention.o_proj.bias", "blk.{}.attn_output.bias", kVector},
    {"layers.{}.mlp.down.bias", "encoder.layer.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", kVector},
    {"layers.{}.norm1", "encoder.layer.{}.attn_ln.weight", "blk.{}.attn_output_norm.weight", kVector},
    {"layers.{}.norm1.bias", "encoder.layer.{}.attn_ln.bias", "blk.{}.attn_output_norm.bias", kVector},
    {"layers.{}.norm2", "encoder.layer.{}.mlp_ln.weight", "blk.{}.layer_output_norm.weight", kVector},
    {"layers.{}.norm2.bias", "encoder.layer.{}.mlp_ln.bias", "blk.{}.layer_output_norm.bias", kVector},
};
constexpr float kTheta = 160000;

bool matches(const Container& container) { return is_folder_of(container, {"gte", "new"}); }

// The published files' "ntk" of a factor f: theta becomes f theta, and frequencies f^(2 / head_dim) times slower.
Status read_rotation(const ConfigReader& config, const std::string& file, ModelSpec& spec) {
  const Json* scaling = config.value("rope_scaling");
  const bool stretched =
      scaling != nullptr && scaling->is_object() && scaling->contains("type") && (*scaling)["type"] == "ntk";
  if (!stretched) return read_encoder_rope(config, file, kTheta, spec);
  const ConfigReader of_scaling(*scaling, file + ": rope_scaling");
  static_cast<void>(of_scaling.value("type"));
  BATON_TRY(const float factor, of_scaling.real("factor", 1, 1 << 20));
  BATON_OK(of_scaling.refuse_unread({}));
  BATON_TRY(spec.rope_theta, config.real("rope_theta", 1, 1e9, 10000));
  spec.rope_theta *= factor;
  spec.rotary = spec.head_dim;
  spec.encoder.position_rows = 0;
  spec.rope_scaling.kind = RopeKind::kLinear;
  spec.rope_scaling.factor = std::pow(factor, 2.0F / static_cast<float>(spec.head_dim));
  return {};
}

Result<ModelSpec> read_spec(const Container& container) {
  const std::string file = (container.path / "config.json").string();
  const ConfigReader config(container.config, file);
  BATON_TRY(ModelSpec spec, start_encoder(config, file, {.positions = "rope"}));
  spec.encoder.gated = spec.encoder.fused_qkv = spec.encoder.fused_gate_up = true;
  spec.encoder.gate_first = false;
  BATON_TRY(spec.token_types, config.integer("type_vocab_size", 0, 1 << 10, 1));
  BATON_OK(read_rotation(config, file, spec));
  BATON_TRY(const std::string norms, config.text("layer_norm_type", "layer_norm"));
  BATON_TRY(const bool packed, config.boolean("pack_qkv", true));
  BATON_TRY(const bool by_length, config.boolean("logn_attention_scale", false));
  if (norms != "layer_norm" || !packed || by_length) {
    return fail(Code::kUnsupported, fmt::format("{}: layer_norm_type must be layer_norm, pack_qkv true and "
                                                "logn_attention_scale false",
                                                file));
  }
  return finish_encoder(config, file, {"logn_attention_clip1", "unpad_inputs", "use_memory_efficient_attention"},
                        std::move(spec));
}

}  // namespace

extern const Architecture k_gte;
const Architecture k_gte = {"gte", "gte", kRoles, matches, read_spec, build_encoder};

}  // namespace baton

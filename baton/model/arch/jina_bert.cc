// Jina's second BERT: no positions, but scores that fall with distance (ALiBi), and GeGLU. GGUF files hold gate and up
// matrix apart.
#include <fmt/format.h>

#include "baton/model/arch/encoder.h"
#include "baton/model/container_text.h"

namespace baton {
namespace {

constexpr TensorRule kVector = TensorRule::kVector;
constexpr std::array<TensorRole, 6> kNetwork = {
    {{"layers.{}.mlp.gate", "encoder.layer.{}.mlp.gated_layers.weight", "blk.{}.ffn_gate.weight"},
     {"layers.{}.mlp.up", "encoder.layer.{}.mlp.gated_layers.weight", "blk.{}.ffn_up.weight"},
     {"layers.{}.mlp.down", "encoder.layer.{}.mlp.wo.weight", "blk.{}.ffn_down.weight"},
     {"layers.{}.mlp.down.bias", "encoder.layer.{}.mlp.wo.bias", "blk.{}.ffn_down.bias", kVector},
     {"layers.{}.norm2", "encoder.layer.{}.mlp.layernorm.weight", "blk.{}.layer_output_norm.weight", kVector},
     {"layers.{}.norm2.bias", "encoder.layer.{}.mlp.layernorm.bias", "blk.{}.layer_output_norm.bias", kVector}}};
constexpr auto kRoles = join_roles(kBertEndsRoles, kBertAttentionRoles, kNetwork);

bool matches(const Container& container) {
  if (is_gguf_of(container, "jina-bert-v2")) return true;
  if (!is_folder_of(container, {"bert"})) return false;
  const auto positions = ConfigReader(container.config, "").text("position_embedding_type", "");
  return positions && *positions == "alibi";
}

constexpr float kAlibi = 8;

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "jina-bert-v2");
    BATON_TRY(ModelSpec spec, start_encoder_keys(container, keys, false));
    spec.encoder.gated = true;
    BATON_TRY(spec.encoder.alibi, keys.real("attention.max_alibi_bias", 0, 64, kAlibi));
    return finish_encoder_keys(keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const ConfigReader config(container.config, file);
  BATON_TRY(ModelSpec spec, start_encoder(config, file, {.positions = "alibi"}));
  BATON_TRY(const std::string network, config.text("feed_forward_type", "original"));
  if (network != "geglu") {
    return fail(Code::kUnsupported,
                fmt::format("{}: feed_forward_type '{}' is not supported; there is: geglu", file, shown(network)));
  }
  spec.encoder.gated = spec.encoder.fused_gate_up = true;
  spec.encoder.position_rows = 0;
  spec.encoder.alibi = kAlibi;
  BATON_TRY(spec.token_types, config.integer("type_vocab_size", 1, 1 << 10, 2));
  return finish_encoder(config, file, {"attn_implementation", "emb_pooler", "attention_probs_dropout_prob"},
                        std::move(spec));
}

}  // namespace

extern const Architecture k_jina_bert;
const Architecture k_jina_bert = {"jina_bert", "jina-bert-v2", kRoles, matches, read_spec, build_encoder};

}  // namespace baton

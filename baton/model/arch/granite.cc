// Granite 3 dense: Llama's blocks, with factors of the embedding, of attention's scores, of what is added to the
// residual stream and of the logits.
#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr auto kRoles =
    join_roles(ends_roles(), kNormRoles, attention_roles(GgufOrder::kRotaryRowsQ, GgufOrder::kRotaryRowsK),
               qkv_bias_roles(GgufOrder::kRotaryRowsQ, GgufOrder::kRotaryRowsK), kOutputBiasRole, kNetworkRoles,
               kNetworkBiasRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "granite") || is_folder_of(container, {"granite"});
}

Result<ModelSpec> read_spec(const Container& container) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "granite");
    BATON_TRY(ModelSpec spec, start_keys(container, keys, {}));
    spec.rope_pairing = RopePairing::kAdjacent;
    BATON_TRY(spec.blocks.embedding_scale, keys.real("embedding_scale", kLeast, kMost, 1.0f));
    BATON_TRY(spec.blocks.residual_scale, keys.real("residual_scale", kLeast, kMost, 1.0f));
    BATON_TRY(spec.blocks.attention_scale, keys.real("attention.scale", 0, kMost, 0.0f));
    BATON_TRY(const float divisor, keys.real("logit_scale", kLeast, kMost, 1.0f));
    spec.blocks.logit_scale = 1 / divisor;
    return finish_keys(container, keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec, start_config(config, file, {.context = 2048}));
  BATON_TRY(spec.blocks.embedding_scale, config.real("embedding_multiplier", kLeast, kMost, 1.0f));
  BATON_TRY(spec.blocks.residual_scale, config.real("residual_multiplier", kLeast, kMost, 1.0f));
  BATON_TRY(spec.blocks.attention_scale, config.real("attention_multiplier", kLeast, kMost, 1.0f));
  BATON_TRY(const float divisor, config.real("logits_scaling", kLeast, kMost, 1.0f));
  spec.blocks.logit_scale = 1 / divisor;
  BATON_OK(check_activation(config, file));
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_granite;
const Architecture k_granite = {"granite", "granite", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

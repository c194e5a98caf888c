// Ministral 3: Llama's blocks; queries are the longer the further the token is behind the length of training.
#include <fmt/format.h>

#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(ends_roles(), kNormRoles,
                                   attention_roles(GgufOrder::kRotaryRowsQ, GgufOrder::kRotaryRowsK), kNetworkRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "mistral3") || is_folder_of(container, {"ministral3"});
}

constexpr double kScaleMost = 1e3;

// The factor is among the fields of scaled positions, which know nothing of it.
Json without_factor(const Json& text) {
  Json rest = text;
  for (const char* object : {"rope_parameters", "rope_scaling"}) {
    if (!rest.is_object() || !rest.contains(object) || !rest[object].is_object()) continue;
    for (const char* field : {"llama_4_scaling_beta", "max_position_embeddings"}) rest[object].erase(field);
  }
  return rest;
}

Result<float> read_factor(const ConfigReader& config, const std::string& file) {
  float factor = 0;
  for (const char* object : {"rope_parameters", "rope_scaling"}) {
    const Json* const found = config.value(object);
    if (found == nullptr || !found->is_object()) continue;
    BATON_TRY(factor, ConfigReader(*found, file).real("llama_4_scaling_beta", 0, kScaleMost, factor));
  }
  return factor;
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "mistral3");
    BATON_TRY(ModelSpec spec, start_keys(container, keys, {}));
    spec.rope_pairing = RopePairing::kAdjacent;
    BATON_TRY(spec.blocks.position_scale, keys.real("attention.temperature_scale", 0, kScaleMost, 0.0f));
    spec.blocks.position_scale_tokens = spec.rope_scaling.original;
    return finish_keys(container, keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const Json rest = without_factor(text_config_of(container));
  const ConfigReader config(rest, file);
  // transformers would take yarn, 16 times as far, and a factor of queries.
  if (config.value("rope_parameters") == nullptr) {
    return fail(Code::kInvalidInput, fmt::format("{}: field 'rope_parameters' is missing; it must say how positions "
                                                 "turn: {{\"rope_type\": \"default\", \"rope_theta\": ...}} or another",
                                                 file));
  }
  BATON_TRY(ModelSpec spec,
            start_config(config, file, {.head_dim = 128, .kv_heads = 8, .context = 262144, .theta = 1e6f}));
  BATON_TRY(spec.blocks.position_scale, read_factor(ConfigReader(text_config_of(container), file), file));
  spec.blocks.position_scale_tokens = spec.rope_scaling.original;
  BATON_OK(check_activation(config, file));
  BATON_OK(read_one_window(config, file, spec, false, 0));
  if (spec.rotary != spec.head_dim)
    return fail(Code::kUnsupported, fmt::format("{}: partial_rotary_factor is not 1; whole heads are turned", file));
  return finish_config(container, config, text_config_of(container), std::move(spec));
}

}  // namespace

extern const Architecture k_ministral3;
const Architecture k_ministral3 = {"ministral3", "mistral3", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

// Llama family (SmolLM2, Llama 2 and 3, TinyLlama): pre-norm blocks of grouped-query attention with RoPE and SwiGLU.
#include <fmt/format.h>

#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(
    ends_roles(), kNormRoles, attention_roles(GgufOrder::kRotaryRowsQ, GgufOrder::kRotaryRowsK), kNetworkRoles,
    qkv_bias_roles(GgufOrder::kRotaryRowsQ, GgufOrder::kRotaryRowsK), kOutputBiasRole, kNetworkBiasRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "llama") ||
         (container.kind != ContainerKind::kGguf && is_folder_of(container, {"llama"}));
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

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "llama");
    BATON_TRY(ModelSpec spec, start_keys(container, keys, {}));
    spec.rope_pairing = RopePairing::kAdjacent;
    BATON_OK(read_windows(keys, container, 0, spec));  // of Mistral, whose files are llama's
    return finish_keys(container, keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec, start_config(config, file, {.context = 2048}));
  if (spec.rotary != spec.head_dim) {
    return fail(Code::kUnsupported,
                fmt::format("{}: partial_rotary_factor {:g} is not supported for llama; there is: 1", file,
                            static_cast<float>(spec.rotary) / spec.head_dim));
  }
  BATON_OK(check_activation(config, file));
  BATON_OK(check_window(config, file, spec));
  BATON_OK(check_layer_types(config, file, spec.layers));
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_llama;
const Architecture k_llama = {"llama", "llama", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

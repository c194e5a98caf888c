// Qwen2 and Qwen2.5: Llama's blocks with biases of queries, keys and values.
#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(ends_roles(), kNormRoles, attention_roles(), qkv_bias_roles(), kNetworkRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "qwen2") || is_folder_of(container, {"qwen2"});
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "qwen2");
    BATON_TRY(ModelSpec spec, start_keys(container, keys, {}));
    return finish_keys(container, keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec, start_config(config, file, {.kv_heads = 32, .context = 32768}));
  BATON_TRY(spec.attention_bias, config.boolean("attention_bias", true));
  BATON_OK(check_activation(config, file));
  BATON_OK(read_switched_windows(config, file, spec));
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_qwen2;
const Architecture k_qwen2 = {"qwen2", "qwen2", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

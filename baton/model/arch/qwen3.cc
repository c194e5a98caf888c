// Qwen3 dense: Llama's blocks with RMS norms of each query and key head.
#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(ends_roles(), kNormRoles, attention_roles(), qk_norm_roles(), qkv_bias_roles(),
                                   kOutputBiasRole, kNetworkRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "qwen3") || is_folder_of(container, {"qwen3"});
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "qwen3");
    BATON_TRY(ModelSpec spec, start_keys(container, keys, {}));
    spec.blocks.qk_norm = QkNorm::kHeads;
    return finish_keys(container, keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec, start_config(config, file, {.head_dim = 128, .kv_heads = 32, .context = 32768}));
  spec.blocks.qk_norm = QkNorm::kHeads;
  BATON_OK(check_activation(config, file));
  BATON_OK(read_switched_windows(config, file, spec));
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_qwen3;
const Architecture k_qwen3 = {"qwen3", "qwen3", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

// Qwen3 mixtures: Qwen3's attention, and in each layer experts without a shared one.
#include "baton/model/arch/dense_decoder.h"
#include "baton/model/arch/expert_parts.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(ends_roles(), kNormRoles, attention_roles(), qk_norm_roles(), qkv_bias_roles(),
                                   kOutputBiasRole, kExpertRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "qwen3moe") || is_folder_of(container, {"qwen3_moe"});
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "qwen3moe");
    BATON_TRY(ModelSpec spec, start_keys(container, keys, {.experts = true}));
    spec.blocks.qk_norm = QkNorm::kHeads;
    BATON_OK(read_experts(keys, container.path.string(), false, spec));
    return finish_keys(container, keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec,
            start_config(config, file, {.head_dim = 128, .kv_heads = 4, .context = 32768, .experts = true}));
  spec.blocks.qk_norm = QkNorm::kHeads;
  BATON_OK(read_experts(config, file, false, false, spec));
  BATON_OK(check_activation(config, file));
  BATON_OK(read_one_window(config, file, spec, true, 4096));
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_qwen3_moe;
const Architecture k_qwen3_moe = {"qwen3_moe", "qwen3moe", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

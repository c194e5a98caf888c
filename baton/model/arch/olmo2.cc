// OLMo 2: norms behind attention and network and none before, RMS over all queries and all keys of a token.
#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(ends_roles(), kNormBehindRoles, attention_roles(), qk_norm_roles(), qkv_bias_roles(),
                                   kOutputBiasRole, kNetworkRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "olmo2") || is_folder_of(container, {"olmo2"});
}

void set_blocks(ModelSpec& spec) {
  spec.blocks.norms_before = false;
  spec.blocks.norms_behind = true;
  spec.blocks.qk_norm = QkNorm::kWhole;
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "olmo2");
    BATON_TRY(ModelSpec spec, start_keys(container, keys, {}));
    set_blocks(spec);
    return finish_keys(container, keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec, start_config(config, file, {.context = 2048, .eps = 1e-5f}));
  set_blocks(spec);
  BATON_OK(check_activation(config, file));
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_olmo2;
const Architecture k_olmo2 = {"olmo2", "olmo2", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

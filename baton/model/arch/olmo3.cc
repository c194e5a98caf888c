// OLMo 3: OLMo 2's blocks, windows in three of four layers, whose positions are not scaled. Its GGUF files are of
// architecture olmo2 and have a window.
#include <fmt/format.h>

#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(ends_roles(), kNormBehindRoles, attention_roles(), qk_norm_roles(), qkv_bias_roles(),
                                   kOutputBiasRole, kNetworkRoles);

bool matches(const Container& container) {
  if (is_folder_of(container, {"olmo3"})) return true;
  const auto window = GgufReader(container, "olmo2").integer("attention.sliding_window", 0, 1 << 30, 0);
  return is_gguf_of(container, "olmo2") && window && *window != 0;
}

void set_blocks(ModelSpec& spec) {
  spec.blocks.norms_before = false;
  spec.blocks.norms_behind = true;
  spec.blocks.qk_norm = QkNorm::kWhole;
}

Result<ModelSpec> read_spec(const Container& container) {
  constexpr float kTheta = 500000;
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "olmo2");
    BATON_TRY(ModelSpec spec, start_keys(container, keys, {.theta = kTheta}));
    set_blocks(spec);
    BATON_OK(read_windows(keys, container, 4, spec));
    BATON_TRY(const float near, keys.real("rope.freq_base_swa", 1, 1e12, spec.rope_theta));
    set_near_positions(spec, near);
    return finish_keys(container, keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec, start_config(config, file, {.context = 2048, .eps = 1e-5f}, false));
  set_blocks(spec);
  BATON_OK(check_activation(config, file));
  if (config.value("sliding_window") == nullptr) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: field 'sliding_window' is missing; it must say how many tokens the layers with a "
                            "window see",
                            file));
  }
  BATON_OK(read_windows(config, file, spec, 0, [](int32_t layer) { return layer % 4 != 3; }));
  BATON_OK(read_near_rope(config, file, kTheta, spec, kTheta));
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_olmo3;
const Architecture k_olmo3 = {"olmo3", "olmo2", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

// Gemma 2: (1 + w) norms before and behind attention and network, GeGLU, soft caps, every second layer with a window.
#include <cmath>

#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr TensorRule kNorm = TensorRule::kRawNorm;
constexpr auto kRoles = join_roles(ends_roles(kNorm), norm_around_roles(kNorm), attention_roles(), qkv_bias_roles(),
                                   kOutputBiasRole, kNetworkRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "gemma2") || is_folder_of(container, {"gemma2"});
}

void set_blocks(ModelSpec& spec) {
  spec.blocks.norms_behind = true;
  spec.blocks.activation = Activation::kGelu;
  spec.gelu = Gelu::kTanh;
  spec.blocks.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
}

Result<ModelSpec> read_gguf(const Container& container) {
  const GgufReader keys(container, "gemma2");
  BATON_TRY(ModelSpec spec, start_keys(container, keys, {}));
  set_blocks(spec);
  BATON_OK(read_windows(keys, container, 2, spec));
  BATON_TRY(spec.blocks.score_cap, keys.real("attn_logit_softcapping", 0, 1e6, 50.0f));
  BATON_TRY(spec.blocks.logit_cap, keys.real("final_logit_softcapping", 0, 1e6, 30.0f));
  // The 27B has 46 layers, and scores by the width of hidden states a head; the file does not say so.
  const float scaled_by = static_cast<float>(spec.layers == 46 ? spec.hidden / spec.heads : spec.head_dim);
  BATON_TRY(spec.blocks.attention_scale, keys.real("attention.scale", 0, 1e3, 1.0f / std::sqrt(scaled_by)));
  return finish_keys(container, keys, std::move(spec));
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) return read_gguf(container);
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec,
            start_config(config, file,
                         {.head_dim = 256, .heads = 8, .kv_heads = 4, .vocab = 256000, .context = 8192, .tied = true}));
  set_blocks(spec);
  BATON_OK(check_gelu_tanh(config, file));
  BATON_OK(read_windows(config, file, spec, 4096, [](int32_t layer) { return layer % 2 == 0; }));
  // Null is none.
  const auto cap = [&](const char* field, float usual) {
    return config.real(field, 0, 1e6, config.absent(field) ? usual : 0.0f);
  };
  BATON_TRY(spec.blocks.score_cap, cap("attn_logit_softcapping", 50));
  BATON_TRY(spec.blocks.logit_cap, cap("final_logit_softcapping", 30));
  BATON_TRY(const float scaled_by, config.real("query_pre_attn_scalar", 1e-3, 1e6, 256.0f));
  spec.blocks.attention_scale = 1.0f / std::sqrt(scaled_by);
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_gemma2;
const Architecture k_gemma2 = {"gemma2", "gemma2", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

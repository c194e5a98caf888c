// Gemma 3 (text, and the text model of multimodal files): (1 + w) norms before and behind attention and network and of
// query and key heads, GeGLU, windows in five of six layers, whose positions turn by a base of their own.
#include <fmt/format.h>

#include <cmath>

#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr TensorRule kNorm = TensorRule::kRawNorm;
constexpr auto kRoles = join_roles(ends_roles(kNorm), norm_around_roles(kNorm), attention_roles(), qk_norm_roles(kNorm),
                                   qkv_bias_roles(), kOutputBiasRole, kNetworkRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "gemma3") || is_folder_of(container, {"gemma3_text", "gemma3"});
}

void set_blocks(ModelSpec& spec) {
  spec.blocks.norms_behind = true;
  spec.blocks.qk_norm = QkNorm::kHeads;
  spec.blocks.activation = Activation::kGelu;
  spec.gelu = Gelu::kTanh;
  // transformers rounds it to the type it runs in.
  spec.blocks.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
}

Result<ModelSpec> read_gguf(const Container& container) {
  const GgufReader keys(container, "gemma3");
  BATON_TRY(ModelSpec spec, start_keys(container, keys, {.theta = 1e6f}));
  set_blocks(spec);
  BATON_OK(read_windows(keys, container, 6, spec));
  BATON_TRY(const float near, keys.real("rope.freq_base_swa", 1, 1e12, 10000.0f));
  set_near_positions(spec, near);
  BATON_TRY(spec.blocks.logit_cap, keys.real("final_logit_softcapping", 0, 1e6, 0.0f));
  // The 27B has 62 layers, and scores by the width of hidden states a head; the file does not say so.
  const float scaled_by = static_cast<float>(spec.layers == 62 ? spec.hidden / spec.heads : spec.head_dim);
  BATON_TRY(spec.blocks.attention_scale, keys.real("attention.scale", 0, 1e3, 1.0f / std::sqrt(scaled_by)));
  return finish_keys(container, keys, std::move(spec));
}

// Every sixth layer sees all, or as many as `pattern` says.
Status read_layers(const ConfigReader& config, const std::string& file, ModelSpec& spec) {
  BATON_TRY(const int32_t pattern, config.integer("sliding_window_pattern", 1, 1024, 6));
  BATON_TRY(const int32_t kept, config.integer("_sliding_window_pattern", 1, 1024, pattern));
  if (kept != pattern && config.value("layer_types") == nullptr) {
    return fail(Code::kUnsupported, fmt::format("{}: field '_sliding_window_pattern' is {}, and transformers reads "
                                                "sliding_window_pattern ({}): name it so, or give layer_types",
                                                file, kept, pattern));
  }
  BATON_OK(read_windows(config, file, spec, 4096));
  for (int32_t layer = pattern - 1; layer < spec.layers && config.value("layer_types") == nullptr; layer += pattern) {
    if (!spec.blocks.windows.empty()) spec.blocks.windows[static_cast<size_t>(layer)] = 0;
  }
  return {};
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) return read_gguf(container);
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec,
            start_config(config, file,
                         {.head_dim = 256, .heads = 8, .kv_heads = 4, .vocab = 262208, .context = 131072, .tied = true},
                         false));
  set_blocks(spec);
  BATON_OK(check_gelu_tanh(config, file));
  BATON_OK(read_layers(config, file, spec));
  BATON_OK(read_near_rope(config, file, 10000.0f, spec));
  BATON_TRY(spec.blocks.logit_cap, config.real("final_logit_softcapping", 0, 1e6, 0.0f));
  BATON_TRY(const float scaled_by, config.real("query_pre_attn_scalar", 1e-3, 1e6, 256.0f));
  spec.blocks.attention_scale = 1.0f / std::sqrt(scaled_by);
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_gemma3;
const Architecture k_gemma3 = {"gemma3", "gemma3", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

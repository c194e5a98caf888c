// ModernBERT: norms first and without shifts, rotation, GeGLU, and windows in all but every third layer.
#include <fmt/format.h>

#include "baton/model/arch/encoder.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

constexpr TensorRule kVector = TensorRule::kVector;
constexpr TensorRole kRoles[] = {
    {"embed", "embeddings.tok_embeddings.weight", "token_embd.weight"},
    {"norm", "embeddings.norm.weight", "token_embd_norm.weight", kVector},
    {"norm.bias", "embeddings.norm.bias", "token_embd_norm.bias", kVector},
    {"last_norm", "final_norm.weight", "output_norm.weight", kVector},
    {"last_norm.bias", "final_norm.bias", "output_norm.bias", kVector},
    {"layers.{}.attn.q", "layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},
    {"layers.{}.attn.k", "layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},
    {"layers.{}.attn.v", "layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},
    {"layers.{}.attn.o", "layers.{}.attn.Wo.weight", "blk.{}.attn_output.weight"},
    {"layers.{}.mlp.gate", "layers.{}.mlp.Wi.weight", "blk.{}.ffn_up.weight"},
    {"layers.{}.mlp.up", "layers.{}.mlp.Wi.weight", "blk.{}.ffn_up.weight"},
    {"layers.{}.mlp.down", "layers.{}.mlp.Wo.weight", "blk.{}.ffn_down.weight"},
    {"layers.{}.attn.q.bias", "layers.{}.attn.Wqkv.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.k.bias", "layers.{}.attn.Wqkv.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.v.bias", "layers.{}.attn.Wqkv.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.o.bias", "layers.{}.attn.Wo.bias", "blk.{}.attn_output.bias", kVector},
    {"layers.{}.mlp.gate.bias", "layers.{}.mlp.Wi.bias", "blk.{}.ffn_up.bias", kVector},
    {"layers.{}.mlp.up.bias", "layers.{}.mlp.Wi.bias", "blk.{}.ffn_up.bias", kVector},
    {"layers.{}.mlp.down.bias", "layers.{}.mlp.Wo.bias", "blk.{}.ffn_down.bias", kVector},
    {"layers.{}.norm1", "layers.{}.attn_norm.weight", "blk.{}.attn_norm.weight", kVector},
    {"layers.{}.norm1.bias", "layers.{}.attn_norm.bias", "blk.{}.attn_norm.bias", kVector},
    {"layers.{}.norm2", "layers.{}.mlp_norm.weight", "blk.{}.ffn_norm.weight", kVector},
    {"layers.{}.norm2.bias", "layers.{}.mlp_norm.bias", "blk.{}.ffn_norm.bias", kVector},
};
constexpr float kFarTheta = 160000, kNearTheta = 10000;
constexpr int32_t kFarEvery = 3;  // layers

bool matches(const Container& container) {
  return is_gguf_of(container, "modern-bert") || is_folder_of(container, {"modernbert"});
}

void set_blocks(ModelSpec& spec) {
  spec.encoder.norms_first = spec.encoder.gated = spec.encoder.fused_qkv = spec.encoder.fused_gate_up = true;
}

// A window counts the tokens to both sides. `far` by layer, or every so many-th from the first on.
Status set_windows(int32_t both, int32_t every, const std::vector<bool>& far, const std::string& file,
                   ModelSpec& spec) {
  if (!far.empty() && far.size() != static_cast<size_t>(spec.layers)) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: windows of {} layers are given, there are {}", file, far.size(), spec.layers));
  }
  if (both < 2)
    return fail(Code::kUnsupported, fmt::format("{}: a window of {} tokens; it must be 2 at least", file, both));
  for (int32_t layer = 0; layer < spec.layers; ++layer) {
    const bool sees_all = far.empty() ? every == 0 || layer % every == 0 : far[static_cast<size_t>(layer)];
    spec.encoder.windows.push_back(sees_all ? 0 : both / 2);
  }
  return {};
}

Result<std::vector<bool>> read_layer_types(const ConfigReader& config, const std::string& file) {
  std::vector<bool> far;
  const Json* types = config.value("layer_types");
  if (types == nullptr) return far;
  if (!types->is_array()) return fail(Code::kInvalidInput, fmt::format("{}: layer_types must be a list", file));
  for (const Json& type : *types) {
    far.push_back(type == "full_attention");
    if (far.back() || type == "sliding_attention") continue;
    return fail(Code::kUnsupported,
                fmt::format("{}: layer_types has {}; there are: full_attention, sliding_attention", file, type.dump()));
  }
  return far;
}

// rope_parameters by kind of layer, or old files' global_rope_theta and local_rope_theta.
Status read_rotation(const ConfigReader& config, const std::string& file, ModelSpec& spec) {
  spec.rotary = spec.head_dim;
  BATON_TRY(spec.rope_theta, config.real("global_rope_theta", 1, 1e12, kFarTheta));
  BATON_TRY(spec.encoder.near_theta, config.real("local_rope_theta", 1, 1e12, kNearTheta));
  const Json* parameters = config.value("rope_parameters");
  if (parameters == nullptr) return {};
  const Json none = Json::object();
  for (const bool near : {false, true}) {
    const char* name = near ? "sliding_attention" : "full_attention";
    const bool there = parameters->is_object() && parameters->contains(name);
    const ConfigReader of_kind(there ? (*parameters)[name] : none, fmt::format("{}: rope_parameters.{}", file, name));
    BATON_TRY(const std::string type, of_kind.text("rope_type", "default"));
    if (type != "default") {
      return fail(Code::kUnsupported, fmt::format("{}: rope_parameters.{}: rope_type must be default", file, name));
    }
    float& theta = near ? spec.encoder.near_theta : spec.rope_theta;
    BATON_TRY(theta, of_kind.real("rope_theta", 1, 1e12, theta));
    BATON_OK(of_kind.refuse_unread({}));
  }
  return {};
}

Result<ModelSpec> read_folder(const Container& container) {
  const std::string file = (container.path / "config.json").string();
  const ConfigReader config(container.config, file);
  BATON_TRY(ModelSpec spec,
            start_encoder(config, file, {.activation = "hidden_activation", .eps = "norm_eps", .usual_eps = 1e-5F}));
  set_blocks(spec);
  spec.encoder.position_rows = 0;
  BATON_TRY(spec.encoder.norm_bias, config.boolean("norm_bias", false));
  BATON_TRY(spec.attention_bias, config.boolean("attention_bias", false));
  BATON_TRY(spec.mlp_bias, config.boolean("mlp_bias", false));
  BATON_TRY(const int32_t window, config.integer("local_attention", 0, 1 << 20, 128));
  BATON_TRY(const int32_t every, config.integer("global_attn_every_n_layers", 1, kLayersMax, kFarEvery));
  BATON_TRY(const std::vector<bool> far, read_layer_types(config, file));
  BATON_OK(set_windows(window, every, far, file, spec));
  BATON_OK(read_rotation(config, file, spec));
  return finish_encoder(
      config, file,
      {"classifier_activation", "classifier_bias", "classifier_pooling", "decoder_bias", "deterministic_flash_attn",
       "embedding_dropout", "initializer_cutoff_factor", "layer_norm_eps", "mlp_dropout", "reference_compile",
       "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction"},
      std::move(spec));
}

Result<ModelSpec> read_keys(const Container& container) {
  const GgufReader keys(container, "modern-bert");
  const std::string file = container.path.string();
  BATON_TRY(ModelSpec spec, start_encoder_keys(container, keys, true, kFarTheta));
  set_blocks(spec);
  spec.encoder.norm_bias = container.find("token_embd_norm.bias") != nullptr;
  BATON_TRY(spec.encoder.near_theta, keys.real("rope.freq_base_swa", 1, 1e12, kNearTheta));
  BATON_TRY(const int32_t window, keys.integer("attention.sliding_window", 0, 1 << 20, 128));
  int32_t every = kFarEvery;
  std::vector<bool> far;
  if (keys.is_list("attention.sliding_window_pattern")) {
    BATON_TRY(const std::vector<int64_t> near, keys.integers("attention.sliding_window_pattern"));
    for (const int64_t each : near) far.push_back(each == 0);
  } else {
    BATON_TRY(every, keys.integer("attention.sliding_window_pattern", 0, kLayersMax, kFarEvery));
  }
  BATON_OK(set_windows(window, every, far, file, spec));
  return finish_encoder_keys(keys, std::move(spec));
}

Result<ModelSpec> read_spec(const Container& container) {
  return container.kind == ContainerKind::kGguf ? read_keys(container) : read_folder(container);
}

}  // namespace

extern const Architecture k_modernbert;
const Architecture k_modernbert = {"modernbert", "modern-bert", kRoles, matches, read_spec, build_encoder};

}  // namespace baton

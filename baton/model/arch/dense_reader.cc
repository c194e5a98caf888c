// What configurations and GGUF keys of dense decoders have in common.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "baton/model/arch/dense_decoder.h"
#include "baton/model/container_text.h"
#include "baton/model/harmless.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

std::optional<int32_t> if_set(int32_t value) { return value == 0 ? std::nullopt : std::optional(value); }

constexpr int32_t kWindowMax = 1 << 30;

void set_window(ModelSpec& spec, int32_t layer, int32_t window) {
  if (window == 0) return;
  spec.blocks.windows.resize(static_cast<size_t>(spec.layers));
  spec.blocks.windows[static_cast<size_t>(layer)] = window;
}

// A window that holds all that can come is none. Positions are chosen before.
void drop_wide_windows(ModelSpec& spec) {
  std::vector<int32_t>& windows = spec.blocks.windows;
  for (int32_t& window : windows) window = window < spec.context_max ? window : 0;
  if (std::all_of(windows.begin(), windows.end(), [](int32_t window) { return window == 0; })) windows.clear();
}

Status read_layer_types(const Json& types, const std::string& file, int32_t window, ModelSpec& spec) {
  if (!types.is_array() || types.size() != static_cast<size_t>(spec.layers)) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: layer_types must be a list with one entry for each of {} layers", file, spec.layers));
  }
  for (int32_t layer = 0; layer < spec.layers; ++layer) {
    const Json& type = types[static_cast<size_t>(layer)];
    const bool slides = type == "sliding_attention";
    if (!slides && type != "full_attention") {
      return fail(Code::kUnsupported,
                  fmt::format("{}: layer_types[{}] is {}; it must be full_attention or sliding_attention", file, layer,
                              type.dump()));
    }
    if (slides && window == 0) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: layer_types[{}] is sliding_attention; field 'sliding_window' must say of how many "
                              "tokens",
                              file, layer));
    }
    if (slides) set_window(spec, layer, window);
  }
  return {};
}

Status check_not_switched(bool used, int32_t window, const std::string& file, const ModelSpec& spec) {
  if (used || window == 0 || window >= spec.context_max) return {};
  return fail(Code::kUnsupported,
              fmt::format("{}: use_sliding_window is false, and transformers does not look at it in models of this "
                          "kind: set sliding_window to null, or leave the field out",
                          file));
}

// One number, or one for each layer, 0 for those without attention.
Status read_kv_heads(const GgufReader& keys, const std::string& file, bool convolves, ModelSpec& spec) {
  constexpr const char* kKey = "attention.head_count_kv";
  spec.layer_kinds.assign(static_cast<size_t>(spec.layers), LayerKind::kFullAttention);
  if (!keys.is_list(kKey)) {
    BATON_TRY(spec.kv_heads, keys.integer(kKey, 1, kHeadsMax, spec.heads));
    return {};
  }
  BATON_TRY(const std::vector<int64_t> heads, keys.integers(kKey));
  if (heads.size() != spec.layer_kinds.size()) {
    return fail(Code::kInvalidInput, fmt::format("{}: key '{}' has {} entries for {} layers; give one for each", file,
                                                 keys.name(kKey), heads.size(), spec.layers));
  }
  spec.kv_heads = static_cast<int32_t>(std::clamp<int64_t>(*std::max_element(heads.begin(), heads.end()), 0, 1 << 30));
  if (spec.kv_heads == 0) spec.kv_heads = 1;  // nobody looks at them
  for (size_t i = 0; i < heads.size(); ++i) {
    if (heads[i] == 0 && convolves) spec.layer_kinds[i] = LayerKind::kShortConvolution;
    if (heads[i] == spec.kv_heads || (heads[i] == 0 && convolves)) continue;
    return fail(Code::kUnsupported, fmt::format("{}: key '{}': {} heads in layer {}, {} in others; all layers must "
                                                "have as many",
                                                file, keys.name(kKey), heads[i], i, spec.kv_heads));
  }
  return {};
}

}  // namespace

const Json& text_config_of(const Container& container) {
  if (container.config.is_object()) {
    const auto found = container.config.find("text_config");
    if (found != container.config.end() && found->is_object()) return *found;
  }
  return container.config;
}

bool is_gguf_of(const Container& container, std::string_view architecture) {
  if (container.kind != ContainerKind::kGguf) return false;
  const auto name = container.gguf.text("general.architecture");
  return name && *name && **name == architecture;
}

bool is_folder_of(const Container& container, std::initializer_list<std::string_view> types) {
  if (container.kind == ContainerKind::kGguf) return false;
  const auto root = ConfigReader(container.config, "").text("model_type", "");
  const auto type = ConfigReader(text_config_of(container), "").text("model_type", root ? *root : "");
  return type && std::find(types.begin(), types.end(), *type) != types.end();
}

Result<ModelSpec> start_config(const ConfigReader& config, const std::string& file, const DecoderDefaults& defaults,
                               bool rope) {
  ModelSpec spec;
  BATON_TRY(spec.hidden, config.integer("hidden_size", 1, kHiddenMax));
  BATON_TRY(spec.layers, config.integer("num_hidden_layers", 1, kLayersMax));
  if (!defaults.experts) {
    BATON_TRY(spec.intermediate, config.integer("intermediate_size", 1, 8 * kHiddenMax));
  }
  BATON_TRY(spec.heads, config.integer("num_attention_heads", 1, kHeadsMax, if_set(defaults.heads)));
  const bool usual_kv = defaults.kv_heads != 0 && config.absent("num_key_value_heads");
  const int32_t kv_heads = usual_kv ? defaults.kv_heads : spec.heads;
  BATON_TRY(spec.kv_heads, config.integer("num_key_value_heads", 1, kHeadsMax, kv_heads));
  const int32_t usual = defaults.head_dim != 0 ? defaults.head_dim : std::max(1, spec.hidden / spec.heads);
  BATON_TRY(spec.head_dim, config.integer("head_dim", 1, kHeadDimMax, usual));
  BATON_TRY(spec.vocab, config.integer("vocab_size", 1, kVocabMax, if_set(defaults.vocab)));
  BATON_TRY(spec.context_max, config.integer("max_position_embeddings", 1, 1 << 30, if_set(defaults.context)));
  BATON_TRY(spec.rms_eps, config.real("rms_norm_eps", 1e-12, 1e-2, defaults.eps));
  BATON_TRY(spec.tied_head, config.boolean("tie_word_embeddings", defaults.tied));
  BATON_TRY(spec.attention_bias, config.boolean("attention_bias", false));
  BATON_TRY(spec.mlp_bias, config.boolean("mlp_bias", false));
  spec.rope_pairing = RopePairing::kHalf;
  spec.layer_kinds.assign(static_cast<size_t>(spec.layers), LayerKind::kFullAttention);
  spec.rotary = spec.head_dim;
  if (!rope) return spec;
  BATON_TRY(const float rotated, read_rotated_share(config, file, 1));
  spec.rotary = static_cast<int32_t>(static_cast<float>(spec.head_dim) * rotated);
  BATON_OK(read_rope(config, file, defaults.theta, spec));
  return spec;
}

Result<ModelSpec> finish_config(const Container& container, const ConfigReader& config, const Json& text,
                                ModelSpec spec) {
  const std::string file = (container.path / "config.json").string();
  drop_wide_windows(spec);
  BATON_OK(check_switches(config, file, spec.blocks.qk_norm != QkNorm::kNone));
  BATON_TRY(spec.stop_ids, read_stop_ids(container, text));
  BATON_OK(config.refuse_unread(harmless_fields()));
  if (&text == &container.config) return spec;
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (ConfigReader(container.config, file).value(field) == nullptr) continue;
    return fail(Code::kUnsupported, fmt::format("{}: '{}' is outside text_config; move it inside", file, field));
  }
  BATON_TRY(const bool tied, ConfigReader(container.config, file).boolean("tie_word_embeddings", spec.tied_head));
  spec.tied_head = spec.tied_head || tied;
  return spec;
}

Result<ModelSpec> start_keys(const Container& container, const GgufReader& keys, const DecoderDefaults& defaults,
                             bool rope) {
  ModelSpec spec;
  const std::string file = container.path.string();
  BATON_TRY(const auto name, container.gguf.text("general.name"));
  spec.name = name.value_or("");
  BATON_TRY(spec.hidden, keys.integer("embedding_length", 1, kHiddenMax));
  BATON_TRY(spec.layers, keys.integer("block_count", 1, kLayersMax));
  if (!defaults.experts) {
    BATON_TRY(spec.intermediate, keys.integer("feed_forward_length", 1, 8 * kHiddenMax));
  }
  BATON_TRY(spec.heads, keys.integer("attention.head_count", 1, kHeadsMax));
  BATON_OK(read_kv_heads(keys, file, defaults.convolves, spec));
  BATON_TRY(spec.head_dim, keys.integer("attention.key_length", 1, kHeadDimMax, std::max(1, spec.hidden / spec.heads)));
  BATON_TRY(spec.context_max, keys.integer("context_length", 1, 1 << 30));
  const TensorView* embedding = container.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return fail(Code::kInvalidInput, fmt::format("{}: tensor 'token_embd.weight' is missing or not a matrix", file));
  }
  spec.vocab = static_cast<int32_t>(std::min<uint64_t>(embedding->shape[0], uint64_t{1} << 30));
  spec.tied_head = container.find("output.weight") == nullptr;
  BATON_OK(check_causal(keys, file));
  BATON_TRY(const int32_t values, keys.integer("attention.value_length", 1, kHeadDimMax, spec.head_dim));
  if (values != spec.head_dim) {
    return fail(Code::kUnsupported,
                fmt::format("{}: values of {} in heads of {}; both must be the same", file, values, spec.head_dim));
  }
  BATON_TRY(const int32_t experts, keys.integer("expert_count", 0, kHeadsMax, 0));
  if (experts != 0 && !defaults.experts)
    return fail(Code::kUnsupported, fmt::format("{}: {} experts; mixtures are not supported here", file, experts));
  if (!rope) return spec;
  BATON_TRY(spec.rms_eps, keys.real("attention.layer_norm_rms_epsilon", 1e-12, 1e-2));
  BATON_TRY(spec.rope_theta, keys.real("rope.freq_base", 1, 1e12, defaults.theta));
  BATON_TRY(spec.rotary, keys.integer("rope.dimension_count", 0, kHeadDimMax, spec.head_dim));
  BATON_OK(read_rope(keys, container, spec));
  return spec;
}

Result<ModelSpec> finish_keys(const Container& container, const GgufReader& keys, ModelSpec spec) {
  drop_wide_windows(spec);
  BATON_TRY(spec.stop_ids, read_stop_ids(container, Json()));
  BATON_OK(keys.refuse_unread(harmless_keys()));
  return spec;
}

Status read_windows(const ConfigReader& config, const std::string& file, ModelSpec& spec, int32_t usual,
                    bool (*slides)(int32_t layer)) {
  const int32_t fallback = config.absent("sliding_window") ? usual : 0;
  BATON_TRY(const int32_t window, config.integer("sliding_window", 0, kWindowMax, fallback));
  BATON_TRY(const bool used, config.boolean("use_sliding_window", true));
  BATON_OK(check_not_switched(used, window, file, spec));
  const Json* types = config.value("layer_types");
  if (types != nullptr) return read_layer_types(*types, file, window, spec);
  for (int32_t layer = 0; layer < spec.layers; ++layer) {
    if (slides == nullptr || slides(layer)) set_window(spec, layer, window);
  }
  return {};
}

Status read_switched_windows(const ConfigReader& config, const std::string& file, ModelSpec& spec) {
  BATON_TRY(const bool used, config.boolean("use_sliding_window", false));
  const Json* types = config.value("layer_types");
  if (used && types == nullptr) {
    return fail(Code::kUnsupported,
                fmt::format("{}: use_sliding_window is true; layer_types must say of which layers", file));
  }
  if (used) return read_windows(config, file, spec);
  static_cast<void>(config.value("sliding_window"));
  return types == nullptr ? Status() : read_layer_types(*types, file, 0, spec);
}

Status read_one_window(const ConfigReader& config, const std::string& file, ModelSpec& spec, bool switched,
                       int32_t usual) {
  const int32_t fallback = config.absent("sliding_window") ? usual : 0;
  BATON_TRY(int32_t window, config.integer("sliding_window", 0, kWindowMax, fallback));
  BATON_TRY(const bool used, config.boolean("use_sliding_window", !switched));
  if (!switched) BATON_OK(check_not_switched(used, window, file, spec));
  if (!used) window = 0;
  for (int32_t layer = 0; layer < spec.layers; ++layer) set_window(spec, layer, window);
  const Json* types = config.value("layer_types");
  if (types == nullptr) return {};
  const std::vector<int32_t> all = spec.blocks.windows;
  spec.blocks.windows.clear();
  BATON_OK(read_layer_types(*types, file, window, spec));
  if (spec.blocks.windows == all || window >= spec.context_max) return {};
  return fail(Code::kUnsupported,
              fmt::format("{}: layer_types has layers with a window and others, or full_attention where there is a "
                          "window; transformers gives all layers of this kind of model the same: make the list "
                          "agree with sliding_window, or leave it out",
                          file));
}

Status read_windows(const GgufReader& keys, const Container& container, int32_t pattern, ModelSpec& spec,
                    int32_t usual) {
  BATON_TRY(const int32_t window, keys.integer("attention.sliding_window", 0, kWindowMax, usual));
  std::vector<int64_t> flags;
  if (keys.is_list("attention.sliding_window_pattern")) {
    BATON_TRY(flags, keys.integers("attention.sliding_window_pattern"));
    if (flags.size() != static_cast<size_t>(spec.layers)) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: key '{}' has {} entries for {} layers; give one for each", container.path.string(),
                              keys.name("attention.sliding_window_pattern"), flags.size(), spec.layers));
    }
  } else {
    BATON_TRY(pattern, keys.integer("attention.sliding_window_pattern", 0, kLayersMax, pattern));
  }
  for (int32_t layer = 0; layer < spec.layers; ++layer) {
    const bool slides =
        !flags.empty() ? flags[static_cast<size_t>(layer)] != 0 : pattern == 0 || layer % pattern < pattern - 1;
    if (slides) set_window(spec, layer, window);
  }
  return {};
}

Status check_gelu_tanh(const ConfigReader& config, const std::string& file) {
  BATON_TRY(const std::string old_name, config.text("hidden_act", "gelu_pytorch_tanh"));
  BATON_TRY(const std::string name, config.text("hidden_activation", old_name));
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") return {};
  return fail(
      Code::kUnsupported,
      fmt::format("{}: hidden_activation '{}' is not supported; there is: gelu_pytorch_tanh", file, shown(name)));
}

void set_near_positions(ModelSpec& spec, float theta) {
  spec.blocks.near_theta = theta;
  spec.blocks.positions.clear();
  for (int32_t layer = 0; layer < spec.layers; ++layer)
    spec.blocks.positions.push_back(spec.blocks.window(layer) != 0 ? Positions::kNearRope : Positions::kRope);
}

Status read_near_rope(const ConfigReader& config, const std::string& file, float near_default, ModelSpec& spec,
                      float far_default) {
  BATON_TRY(float near, config.real("rope_local_base_freq", 1, 1e12, near_default));
  const Json* parameters = config.value("rope_parameters");
  const auto of_type = [&](const char* type) -> const Json* {
    if (parameters == nullptr || !parameters->is_object()) return nullptr;
    const auto found = parameters->find(type);
    return found != parameters->end() && found->is_object() ? &*found : nullptr;
  };
  const Json *far_object = of_type("full_attention"), *near_object = of_type("sliding_attention");
  if (far_object == nullptr && near_object == nullptr) {
    if (parameters != nullptr && parameters->is_object() && !parameters->empty()) {
      return fail(Code::kUnsupported,
                  fmt::format("{}: rope_parameters must have full_attention and sliding_attention, each with its own "
                              "fields: transformers does not read others",
                              file));
    }
    BATON_OK(read_rope(config, file, far_default, spec));
  } else {
    for (const auto& [name, value] : parameters->items()) {
      if (name == "full_attention" || name == "sliding_attention") continue;
      return fail(Code::kUnsupported, fmt::format("{}: rope_parameters has '{}'; there are: full_attention, "
                                                  "sliding_attention",
                                                  file, shown(name)));
    }
    if (far_object != nullptr) {
      const Json far_only = {{"rope_parameters", *far_object}};
      BATON_OK(read_rope(ConfigReader(far_only, file), file, far_default, spec));
    } else {
      spec.rope_theta = far_default;
    }
    ModelSpec other = spec;
    other.rope_scaling = {};
    if (near_object != nullptr) {
      const Json near_only = {{"rope_parameters", *near_object}};
      BATON_OK(read_rope(ConfigReader(near_only, file), file, near, other));
      near = other.rope_theta;
      spec.blocks.near_scaling = other.rope_scaling;
    }
  }
  set_near_positions(spec, near);
  return {};
}

}  // namespace baton

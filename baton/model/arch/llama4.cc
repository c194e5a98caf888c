// Llama 4's text: layers with positions see their own chunk of the text and have queries and keys of one length; every
// fourth has no positions, sees all, and its queries grow with the distance. Experts take what the router has scaled.
#include <fmt/format.h>

#include <algorithm>

#include "baton/model/arch/dense_decoder.h"
#include "baton/model/arch/expert_parts.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

// Published folders have the experts of a layer in one tensor, [experts, in, out], gate before up; mlx-lm's apart.
constexpr std::array<TensorRole, 12> kFeedForwardRoles = {
    {{"layers.{}.mlp.gate", "layers.{}.feed_forward.gate_proj.weight", "blk.{}.ffn_gate.weight"},
     {"layers.{}.mlp.up", "layers.{}.feed_forward.up_proj.weight", "blk.{}.ffn_up.weight"},
     {"layers.{}.mlp.down", "layers.{}.feed_forward.down_proj.weight", "blk.{}.ffn_down.weight"},
     {"layers.{}.experts.router", "layers.{}.feed_forward.router.weight", "blk.{}.ffn_gate_inp.weight"},
     {"layers.{}.experts.gate", "layers.{}.feed_forward.experts.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
     {"layers.{}.experts.up", "layers.{}.feed_forward.experts.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
     {"layers.{}.experts.down", "layers.{}.feed_forward.experts.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
     {"layers.{}.experts.gate_up", "layers.{}.feed_forward.experts.gate_up_proj", "blk.{}.ffn_gate_up_exps.weight",
      TensorRule::kTurnedExperts},
     {"layers.{}.experts.down_fused", "layers.{}.feed_forward.experts.down_proj", "blk.{}.ffn_down_exps.weight",
      TensorRule::kTurnedExperts},
     {"layers.{}.shared.gate", "layers.{}.feed_forward.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
     {"layers.{}.shared.up", "layers.{}.feed_forward.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
     {"layers.{}.shared.down", "layers.{}.feed_forward.shared_expert.down_proj.weight",
      "blk.{}.ffn_down_shexp.weight"}}};
constexpr auto kRoles =
    join_roles(ends_roles(), kNormRoles, attention_roles(), qkv_bias_roles(), kOutputBiasRole, kFeedForwardRoles);

constexpr int32_t kUsualTokens = 8192;  // of a chunk, and of one factor of the queries
constexpr float kUsualScale = 0.1f;
constexpr int32_t kUsualInterval = 4;
constexpr int32_t kTokensMax = 1 << 30;
constexpr int32_t kSigmoidRouter = 2;   // expert_gating_func
constexpr int32_t kWithoutNorms = 128;  // GGUF: the model of so many experts has no norms of queries and keys

bool matches(const Container& container) {
  return is_gguf_of(container, "llama4") || is_folder_of(container, {"llama4_text", "llama4"});
}

// What the layers that `mixes` says are made of; the others have a network.
Status set_experts(const std::vector<bool>& mixes, const std::string& file, ModelSpec& spec) {
  if (std::find(mixes.begin(), mixes.end(), true) == mixes.end()) {
    spec.experts = spec.experts_used = spec.expert_width = 0;
    return {};
  }
  spec.shared_width = spec.expert_width;
  spec.shared_gated = false;
  spec.routing = Routing::kSigmoidOfInput;
  for (const bool of_layer : mixes) spec.dense_layers.push_back(!of_layer);
  return check_expert_counts(spec, file);
}

void set_scale(ModelSpec& spec, float scale, int32_t tokens) {
  spec.blocks.position_scale = scale;
  spec.blocks.position_scale_tokens = tokens;
  spec.blocks.position_scale_ahead = 1;
  spec.blocks.position_scale_unturned = true;
}

std::vector<bool> every(int32_t interval, int32_t layers) {
  std::vector<bool> all;
  for (int32_t layer = 0; layer < layers; ++layer) all.push_back((layer + 1) % interval == 0);
  return all;
}

void set_positions(ModelSpec& spec, const std::vector<bool>& without) {
  for (const bool none : without) spec.blocks.positions.push_back(none ? Positions::kNone : Positions::kRope);
}

Status read_networks(const ConfigReader& config, const std::string& file, ModelSpec& spec) {
  BATON_TRY(spec.expert_width, config.integer("intermediate_size", 1, 8 * kHiddenMax, 8192));
  BATON_TRY(spec.intermediate, config.integer("intermediate_size_mlp", 1, 8 * kHiddenMax, 16384));
  BATON_TRY(spec.experts, config.integer("num_local_experts", 0, kExpertsMax, 16));
  BATON_TRY(spec.experts_used, config.integer("num_experts_per_tok", 0, kExpertsUsedMax, 1));
  for (const char* of_training : {"router_jitter_noise", "for_llm_compressor"})
    static_cast<void>(config.value(of_training));
  const Json* layers = config.value("moe_layers");
  BATON_TRY(const int32_t step, config.integer("interleave_moe_layer_step", layers != nullptr ? 0 : 1, kLayersMax, 1));
  std::vector<bool> mixes = every(std::max(1, step), spec.layers);
  if (layers != nullptr) {
    if (!layers->is_array())
      return fail(Code::kInvalidInput, fmt::format("{}: moe_layers must be a list of layers' numbers", file));
    mixes.assign(mixes.size(), false);
    for (const Json& layer : *layers) {
      if (!layer.is_number_integer() || layer < 0 || layer >= spec.layers) {
        return fail(Code::kInvalidInput, fmt::format("{}: moe_layers has {}; it must be 0 to {}, the number of a layer",
                                                     file, layer.dump(), spec.layers - 1));
      }
      mixes[layer.get<size_t>()] = true;
    }
  }
  const bool any = std::find(mixes.begin(), mixes.end(), true) != mixes.end();
  for (const auto& [field, value] :
       {std::pair("num_local_experts", spec.experts), {"num_experts_per_tok", spec.experts_used}}) {
    if (!any || value > 0) continue;
    return fail(Code::kInvalidInput, fmt::format("{}: field '{}' is 0, but there are layers of experts: give their "
                                                 "number, or an empty list as moe_layers",
                                                 file, field));
  }
  return set_experts(mixes, file, spec);
}

// 1 for a layer that has positions, by the field's name the other way round.
Status read_positions(const ConfigReader& config, const std::string& file, ModelSpec& spec) {
  BATON_TRY(const int32_t interval, config.integer("no_rope_layer_interval", 1, kLayersMax, kUsualInterval));
  const Json* layers = config.value("no_rope_layers");
  std::vector<bool> without = every(interval, spec.layers);
  if (layers != nullptr && !(layers->is_array() && layers->empty())) {
    if (!layers->is_array() || layers->size() < without.size()) {
      return fail(Code::kInvalidInput, fmt::format("{}: no_rope_layers must be a list with one entry for each of {} "
                                                   "layers",
                                                   file, spec.layers));
    }
    for (size_t layer = 0; layer < without.size(); ++layer) {
      const Json& with = (*layers)[layer];
      if (with != 0 && with != 1) {
        return fail(Code::kInvalidInput,
                    fmt::format("{}: no_rope_layers[{}] is {}; it must be 0 or 1", file, layer, with.dump()));
      }
      without[layer] = with == 0;
    }
  }
  set_positions(spec, without);
  return {};
}

// Without layer_types, layers with positions have the chunk.
Status read_chunks(const ConfigReader& config, const std::string& file, ModelSpec& spec) {
  const int32_t usual = config.absent("attention_chunk_size") ? kUsualTokens : 0;
  BATON_TRY(const int32_t chunk, config.integer("attention_chunk_size", 1, kTokensMax, usual));
  spec.blocks.chunked = true;
  const Json* types = config.value("layer_types");
  if (types != nullptr && (!types->is_array() || types->size() != static_cast<size_t>(spec.layers))) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: layer_types must be a list with one entry for each of {} layers", file, spec.layers));
  }
  for (int32_t layer = 0; layer < spec.layers; ++layer) {
    bool has_chunk = spec.blocks.position(layer) != Positions::kNone && chunk != 0;
    if (types != nullptr) {
      const Json& type = (*types)[static_cast<size_t>(layer)];
      has_chunk = type == "chunked_attention";
      if (!has_chunk && type != "full_attention") {
        return fail(Code::kUnsupported,
                    fmt::format("{}: layer_types[{}] is {}; it must be full_attention or chunked_attention", file,
                                layer, type.dump()));
      }
      if (has_chunk && chunk == 0) {
        return fail(Code::kInvalidInput, fmt::format("{}: layer_types[{}] is chunked_attention; field "
                                                     "'attention_chunk_size' must say of how many tokens",
                                                     file, layer));
      }
    }
    spec.blocks.windows.push_back(has_chunk ? chunk : 0);
  }
  return {};
}

// attn_temperature_tuning is a switch, in the first files a number.
Status read_scale(const ConfigReader& config, const std::string& file, ModelSpec& spec) {
  BATON_TRY(const int32_t tokens, config.integer("floor_scale", 1, kTokensMax, kUsualTokens));
  BATON_TRY(const float scale, config.real("attn_scale", 0, 1e3, kUsualScale));
  const Json* tuned = config.value("attn_temperature_tuning");
  if (tuned != nullptr && !tuned->is_boolean() && !tuned->is_number_integer()) {
    return fail(Code::kInvalidInput, fmt::format("{}: field 'attn_temperature_tuning' is of type {}; it must be true "
                                                 "or false",
                                                 file, tuned->type_name()));
  }
  const bool on = tuned == nullptr ? config.absent("attn_temperature_tuning") : *tuned != false && *tuned != 0;
  set_scale(spec, on ? scale : 0, tokens);
  return {};
}

Result<ModelSpec> read_folder(const Container& container) {
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  DecoderDefaults usual{.head_dim = 128, .heads = 40, .kv_heads = 8, .vocab = 202048, .context = 131072};
  usual.theta = 500000;
  usual.experts = true;
  usual.eps = 1e-5f;
  BATON_TRY(ModelSpec spec, start_config(config, file, usual));
  spec.rope_pairing = RopePairing::kAdjacent;
  if (spec.rotary != spec.head_dim)
    return fail(Code::kUnsupported,
                fmt::format("{}: partial_rotary_factor is not supported for llama4; there is: 1", file));
  BATON_TRY(const bool normed, config.boolean("use_qk_norm", true));
  spec.blocks.qk_norm = normed ? QkNorm::kUnit : QkNorm::kNone;
  BATON_OK(check_activation(config, file));
  BATON_OK(read_networks(config, file, spec));
  BATON_OK(read_positions(config, file, spec));
  BATON_OK(read_chunks(config, file, spec));
  BATON_OK(read_scale(config, file, spec));
  return finish_config(container, config, text, std::move(spec));
}

// What keys do not say is as in the published models: llama.cpp has no keys for it.
Result<ModelSpec> read_file(const Container& container) {
  const GgufReader keys(container, "llama4");
  const std::string file = container.path.string();
  BATON_TRY(ModelSpec spec, start_keys(container, keys, {.theta = 500000, .experts = true}));
  spec.rope_pairing = RopePairing::kAdjacent;
  BATON_TRY(spec.intermediate, keys.integer("feed_forward_length", 1, 8 * kHiddenMax));
  BATON_TRY(spec.experts, keys.integer("expert_count", 0, kExpertsMax, 0));
  spec.blocks.qk_norm = spec.experts != kWithoutNorms ? QkNorm::kUnit : QkNorm::kNone;
  if (spec.experts != 0) {
    BATON_TRY(spec.experts_used, keys.integer("expert_used_count", 1, kExpertsUsedMax));
    BATON_TRY(spec.expert_width, keys.integer("expert_feed_forward_length", 1, 8 * kHiddenMax));
    BATON_TRY(const int32_t function, keys.integer("expert_gating_func", 0, 16, kSigmoidRouter));
    if (function != kSigmoidRouter) {
      return fail(Code::kUnsupported, fmt::format("{}: key '{}' is {}; there is: {} (sigmoid)", file,
                                                  keys.name("expert_gating_func"), function, kSigmoidRouter));
    }
  }
  BATON_TRY(const int32_t step, keys.integer("interleave_moe_layer_step", 0, kLayersMax, 1));
  const bool any = spec.experts != 0 && step != 0;
  BATON_OK(set_experts(any ? every(step, spec.layers) : std::vector<bool>(), file, spec));
  if (spec.experts != 0) {
    BATON_TRY(spec.shared_width,
              keys.integer("expert_shared_feed_forward_length", 1, 8 * kHiddenMax, spec.expert_width));
  }
  BATON_TRY(const int32_t chunk, keys.integer("attention.sliding_window", 0, kTokensMax, kUsualTokens));
  set_positions(spec,
                chunk == 0 ? std::vector<bool>(static_cast<size_t>(spec.layers)) : every(kUsualInterval, spec.layers));
  spec.blocks.chunked = true;
  BATON_OK(read_windows(keys, container, kUsualInterval, spec, kUsualTokens));
  BATON_TRY(const float scale, keys.real("attention.temperature_scale", 0, 1e3, kUsualScale));
  BATON_TRY(const int32_t tokens, keys.integer("attention.temperature_length", 1, kTokensMax, kUsualTokens));
  set_scale(spec, scale, tokens);
  return finish_keys(container, keys, std::move(spec));
}

Result<ModelSpec> read_spec(const Container& container) {
  return container.kind == ContainerKind::kGguf ? read_file(container) : read_folder(container);
}

}  // namespace

extern const Architecture k_llama4;
const Architecture k_llama4 = {"llama4", "llama4", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

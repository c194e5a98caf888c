// LFM2: layers of gated short convolutions, some of attention with norms of each query and key head, SwiGLU in all.
#include <fmt/format.h>

#include <cmath>

#include "baton/model/arch/dense_decoder.h"
#include "baton/model/container_text.h"

namespace baton {
namespace {

constexpr TensorRule kVector = TensorRule::kVector;
constexpr const char* kIn = "layers.{}.conv.in_proj.weight";
constexpr const char* kGgufIn = "blk.{}.shortconv.in_proj.weight";
constexpr TensorRole kRoles[] = {
    {"embed", "embed_tokens.weight", "token_embd.weight"},
    {"norm", "embedding_norm.weight", "token_embd_norm.weight", kVector},  // behind the layers, in spite of its name
    {"head", "lm_head.weight", "output.weight"},
    {"layers.{}.norm1", "layers.{}.operator_norm.weight", "blk.{}.attn_norm.weight", kVector},
    {"layers.{}.norm2", "layers.{}.ffn_norm.weight", "blk.{}.ffn_norm.weight", kVector},
    {"layers.{}.attn.q", "layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"layers.{}.attn.k", "layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"layers.{}.attn.v", "layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"layers.{}.attn.o", "layers.{}.self_attn.out_proj.weight", "blk.{}.attn_output.weight"},
    {"layers.{}.attn.q_norm", "layers.{}.self_attn.q_layernorm.weight", "blk.{}.attn_q_norm.weight", kVector},
    {"layers.{}.attn.k_norm", "layers.{}.self_attn.k_layernorm.weight", "blk.{}.attn_k_norm.weight", kVector},
    {"layers.{}.conv.b", kIn, kGgufIn},
    {"layers.{}.conv.c", kIn, kGgufIn},
    {"layers.{}.conv.x", kIn, kGgufIn},
    {"layers.{}.conv.taps", "layers.{}.conv.conv.weight", "blk.{}.shortconv.conv.weight", TensorRule::kConv},
    {"layers.{}.conv.out", "layers.{}.conv.out_proj.weight", "blk.{}.shortconv.out_proj.weight"},
    {"layers.{}.mlp.gate", "layers.{}.feed_forward.w1.weight", "blk.{}.ffn_gate.weight"},
    {"layers.{}.mlp.up", "layers.{}.feed_forward.w3.weight", "blk.{}.ffn_up.weight"},
    {"layers.{}.mlp.down", "layers.{}.feed_forward.w2.weight", "blk.{}.ffn_down.weight"},
};

bool matches(const Container& container) { return is_gguf_of(container, "lfm2") || is_folder_of(container, {"lfm2"}); }

// Fields under the names that others have: block_ff_dim goes before intermediate_size, as transformers reads it.
Json renamed(const Json& text) {
  Json all = text;
  for (const auto& [from, to] : {std::pair{"norm_eps", "rms_norm_eps"}, std::pair{"block_ff_dim", "intermediate_size"},
                                 std::pair{"tie_embedding", "tie_word_embeddings"}}) {
    if (!all.is_object() || !all.contains(from) || all[from].is_null()) continue;
    all[to] = all[from];
    all.erase(from);
  }
  return all;
}

// The network's width is two thirds of what the file says, times a factor, rounded up, unless it says that it is not.
Status adjust_width(const ConfigReader& config, const std::string& file, ModelSpec& spec) {
  BATON_TRY(const bool adjusts, config.boolean("block_auto_adjust_ff_dim", true));
  BATON_TRY(const float factor, config.real("block_ffn_dim_multiplier", 0.01, 100, 1.0f));
  BATON_TRY(const int32_t multiple, config.integer("block_multiple_of", 1, 1 << 20, 256));
  if (!adjusts) return {};
  const auto scaled = static_cast<int64_t>(static_cast<double>(factor) * (2 * int64_t{spec.intermediate} / 3));
  const int64_t width = (scaled + multiple - 1) / multiple * multiple;
  if (width < 1 || width > (int64_t{1} << 30)) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: block_ff_dim {} becomes a width of {}; correct the block_* fields", file,
                            spec.intermediate, width));
  }
  spec.intermediate = static_cast<int32_t>(width);
  return {};
}

// What is there twice must be the same, and what can be switched is on; the rest is of training.
Status check_rest(const ConfigReader& config, const std::string& file, const ModelSpec& spec) {
  for (const auto& [field, wanted] : {std::pair{"block_dim", spec.hidden}, std::pair{"conv_dim", spec.hidden},
                                      std::pair{"conv_dim_out", spec.hidden}, std::pair{"num_heads", spec.heads}}) {
    BATON_TRY(const int32_t found, config.integer(field, 0, 1 << 30, wanted));
    if (found != wanted)
      return fail(Code::kUnsupported, fmt::format("{}: field '{}' is {}; it must be {}", file, field, found, wanted));
  }
  BATON_TRY(const float eps, config.real("block_norm_eps", 0, 1, spec.rms_eps));
  if (eps != spec.rms_eps)
    return fail(Code::kUnsupported,
                fmt::format("{}: block_norm_eps {:g} is not norm_eps {:g}", file, eps, spec.rms_eps));
  for (const auto& [field, wanted] :
       {std::pair{"conv_bias", false}, std::pair{"block_use_swiglu", true}, std::pair{"use_pos_enc", true}}) {
    BATON_TRY(const bool found, config.boolean(field, wanted));
    if (found != wanted)
      return fail(Code::kUnsupported, fmt::format("{}: field '{}' is {}; it must be {}", file, field, found, wanted));
  }
  for (const char* field : {"block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init",
                            "conv_use_xavier_init", "full_attn_idxs"}) {
    static_cast<void>(config.value(field));
  }
  return {};
}

// layer_types, or the numbers of the layers with attention.
Status read_kinds(const ConfigReader& config, const std::string& file, ModelSpec& spec) {
  const Json *types = config.value("layer_types"), *numbers = config.value("full_attn_idxs");
  const auto layers = static_cast<size_t>(spec.layers);
  if (types == nullptr && numbers == nullptr) return {};
  if (types != nullptr && (!types->is_array() || types->size() != layers)) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: layer_types must be a list with one entry for each of {} layers", file, layers));
  }
  spec.layer_kinds.assign(layers, LayerKind::kShortConvolution);
  for (size_t i = 0; types != nullptr && i < layers; ++i) {
    const Json& type = (*types)[i];
    if (type == "full_attention") spec.layer_kinds[i] = LayerKind::kFullAttention;
    if (type == "full_attention" || type == "conv") continue;
    return fail(Code::kUnsupported,
                fmt::format("{}: layer_types[{}] is {}; it must be conv or full_attention", file, i, type.dump()));
  }
  if (types != nullptr) return {};
  if (!numbers->is_array())
    return fail(Code::kInvalidInput, fmt::format("{}: full_attn_idxs must be a list of layers", file));
  for (const Json& number : *numbers) {
    if (!number.is_number_integer() || number < 0 || number >= spec.layers) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: full_attn_idxs has {}; there are layers 0 to {}", file, number.dump(), layers - 1));
    }
    spec.layer_kinds[number.get<size_t>()] = LayerKind::kFullAttention;
  }
  return {};
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "lfm2");
    BATON_TRY(ModelSpec spec, start_keys(container, keys, {.theta = 1e6f, .convolves = true}));
    spec.blocks.qk_norm = QkNorm::kHeads;
    BATON_TRY(spec.conv_taps, keys.integer("shortconv.l_cache", 2, 16));
    BATON_OK(read_windows(keys, container, 0, spec));
    return finish_keys(container, keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const Json text = renamed(text_config_of(container));
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec,
            start_config(config, file, {.kv_heads = 8, .context = 128000, .theta = 1e6f, .tied = true}));
  BATON_TRY(spec.rms_eps, config.real("rms_norm_eps", 1e-12, 1e-2, 1e-5f));
  BATON_TRY(spec.conv_taps, config.integer("conv_L_cache", 2, 16, 3));
  spec.blocks.qk_norm = QkNorm::kHeads;
  BATON_OK(adjust_width(config, file, spec));
  BATON_OK(read_kinds(config, file, spec));
  BATON_OK(check_rest(config, file, spec));
  return finish_config(container, config, text_config_of(container), std::move(spec));
}

}  // namespace

extern const Architecture k_lfm2;
const Architecture k_lfm2 = {"lfm2", "lfm2", kRoles, matches, read_spec, build_decoder};

}  // namespace baton

// Dense decoders: attention and one network in each layer. What their files have in common is read here, and their
// Program is built from ModelSpec::blocks. A family (one file, one line of arch_list.inc) brings its names, the fields
// and keys of its own, and what it refuses.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "baton/model/arch.h"
#include "baton/model/arch/decoder_parts.h"
#include "baton/model/config_reader.h"

namespace baton {

// Tables of roles one behind the other.
template <size_t... Sizes>
constexpr auto join_roles(const std::array<TensorRole, Sizes>&... tables) {
  std::array<TensorRole, (Sizes + ...)> all{};
  size_t at = 0;
  const auto add = [&](const auto& table) {
    for (const TensorRole& role : table) all[at++] = role;
  };
  (add(tables), ...);
  return all;
}

// Embedding, head and the matrices of a layer, as most name them. `q` and `k`: what becomes of their rows in GGUF.
constexpr std::array<TensorRole, 4> attention_roles(GgufOrder q = GgufOrder::kSame, GgufOrder k = GgufOrder::kSame) {
  return {{{"layers.{}.attn.q", "layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", TensorRule::kMatrix, q},
           {"layers.{}.attn.k", "layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", TensorRule::kMatrix, k},
           {"layers.{}.attn.v", "layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
           {"layers.{}.attn.o", "layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"}}};
}
// Of queries, keys and values; that of the output is a role of its own.
constexpr std::array<TensorRole, 3> qkv_bias_roles(GgufOrder q = GgufOrder::kSame, GgufOrder k = GgufOrder::kSame) {
  return {{{"layers.{}.attn.q.bias", "layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", TensorRule::kVector, q},
           {"layers.{}.attn.k.bias", "layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", TensorRule::kVector, k},
           {"layers.{}.attn.v.bias", "layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", TensorRule::kVector}}};
}
inline constexpr std::array<TensorRole, 1> kOutputBiasRole = {
    {{"layers.{}.attn.o.bias", "layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", TensorRule::kVector}}};
inline constexpr std::array<TensorRole, 3> kNetworkRoles = {
    {{"layers.{}.mlp.gate", "layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
     {"layers.{}.mlp.up", "layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
     {"layers.{}.mlp.down", "layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"}}};
inline constexpr std::array<TensorRole, 3> kNetworkBiasRoles = {
    {{"layers.{}.mlp.gate.bias", "layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", TensorRule::kVector},
     {"layers.{}.mlp.up.bias", "layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", TensorRule::kVector},
     {"layers.{}.mlp.down.bias", "layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", TensorRule::kVector}}};
constexpr std::array<TensorRole, 3> ends_roles(TensorRule norm = TensorRule::kVector) {
  return {{{"embed", "embed_tokens.weight", "token_embd.weight"},
           {"norm", "norm.weight", "output_norm.weight", norm},
           {"head", "lm_head.weight", "output.weight"}}};
}
// Before attention and before the network.
inline constexpr std::array<TensorRole, 2> kNormRoles = {
    {{"layers.{}.norm1", "layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", TensorRule::kVector},
     {"layers.{}.norm2", "layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", TensorRule::kVector}}};
// Behind attention and behind the network, in files that have none before.
inline constexpr std::array<TensorRole, 2> kNormBehindRoles = {
    {{"layers.{}.norm1.behind", "layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight",
      TensorRule::kVector},
     {"layers.{}.norm2.behind", "layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight",
      TensorRule::kVector}}};
// Before and behind both, as Gemma names them.
constexpr std::array<TensorRole, 4> norm_around_roles(TensorRule norm) {
  return {
      {{"layers.{}.norm1", "layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", norm},
       {"layers.{}.norm1.behind", "layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight",
        norm},
       {"layers.{}.norm2", "layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", norm},
       {"layers.{}.norm2.behind", "layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", norm}}};
}
constexpr std::array<TensorRole, 2> qk_norm_roles(TensorRule norm = TensorRule::kVector) {
  return {{{"layers.{}.attn.q_norm", "layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", norm},
           {"layers.{}.attn.k_norm", "layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", norm}}};
}

// What stands for fields that are absent; 0: the field must be there. Where num_key_value_heads is null there are as
// many as heads.
struct DecoderDefaults {
  int32_t head_dim = 0;  // hidden / heads
  int32_t heads = 0, kv_heads = 0, vocab = 0, context = 0;
  float theta = 10000;
  bool tied = false;
  bool experts = false;    // in place of the network, whose size is not read: expert_parts.h
  bool convolves = false;  // GGUF: layers of no kv heads are short convolutions
  float eps = 1e-6f;
};

bool is_gguf_of(const Container& container, std::string_view architecture);
// "model_type" of the text_config in config.json, or where it says nothing of config.json itself.
bool is_folder_of(const Container& container, std::initializer_list<std::string_view> types);
// text_config, or the root where there is none.
const Json& text_config_of(const Container& container);

// Sizes, norms' eps, head, and with `rope` positions: of config.json and of GGUF keys. spec.rotary is the head dim's
// share that is turned. A family reads what is its own between this and finish_*, which take the ends of an answer and
// refuse what nobody asked for.
Result<ModelSpec> start_config(const ConfigReader& config, const std::string& file, const DecoderDefaults& defaults,
                               bool rope = true);
Result<ModelSpec> finish_config(const Container& container, const ConfigReader& config, const Json& text,
                                ModelSpec spec);
Result<ModelSpec> start_keys(const Container& container, const GgufReader& keys, const DecoderDefaults& defaults,
                             bool rope = true);
Result<ModelSpec> finish_keys(const Container& container, const GgufReader& keys, ModelSpec spec);

// layer_types and sliding_window, into spec.blocks.windows. Without layer_types all layers have the window, or those
// that `slides` says. use_sliding_window must not be false where there is one. `usual`: where there is no
// sliding_window, 0 for none; null is none.
Status read_windows(const ConfigReader& config, const std::string& file, ModelSpec& spec, int32_t usual = 0,
                    bool (*slides)(int32_t layer) = nullptr);
// The same where there are windows only if use_sliding_window says so.
Status read_switched_windows(const ConfigReader& config, const std::string& file, ModelSpec& spec);
// One window of all layers, whatever layer_types says: refused where that says otherwise. `switched`: none unless
// use_sliding_window is true. `usual`: where there is no sliding_window.
Status read_one_window(const ConfigReader& config, const std::string& file, ModelSpec& spec, bool switched,
                       int32_t usual);
// attention.sliding_window and attention.sliding_window_pattern: one flag for each layer, or a number: each so many-th
// layer sees all, 0 for none of them. `pattern` and `usual`: where there is no key of them.
Status read_windows(const GgufReader& keys, const Container& container, int32_t pattern, ModelSpec& spec,
                    int32_t usual = 0);
// hidden_activation or hidden_act, one of the names of gelu by tanh.
Status check_gelu_tanh(const ConfigReader& config, const std::string& file);
// Positions near and far: those of layers with a window are near.
void set_near_positions(ModelSpec& spec, float theta);
// rope_parameters by layer_types, or rope_local_base_freq beside the others: near positions are those of layers with a
// window. The defaults stand for bases that are absent.
Status read_near_rope(const ConfigReader& config, const std::string& file, float near_default, ModelSpec& spec,
                      float far_default = 1e6f);

// The Program of spec.blocks.
Status build_decoder(ModelBuilder& builder);

}  // namespace baton

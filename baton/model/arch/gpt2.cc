// GPT-2: learned positions, LayerNorm, GELU by tanh, biases everywhere. Hugging Face files hold matrices [in, out], and
// queries, keys and values in one.
#include <fmt/format.h>

#include "baton/model/arch/dense_decoder.h"
#include "baton/model/container_text.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

constexpr TensorRule kTurned = TensorRule::kTurned, kVector = TensorRule::kVector;
constexpr TensorRole kRoles[] = {
    {"embed", "wte.weight", "token_embd.weight"},
    {"positions", "wpe.weight", "position_embd.weight"},
    {"norm", "ln_f.weight", "output_norm.weight", kVector},
    {"norm.bias", "ln_f.bias", "output_norm.bias", kVector},
    {"head", "lm_head.weight", "output.weight"},
    {"layers.{}.norm1", "h.{}.ln_1.weight", "blk.{}.attn_norm.weight", kVector},
    {"layers.{}.norm1.bias", "h.{}.ln_1.bias", "blk.{}.attn_norm.bias", kVector},
    {"layers.{}.norm2", "h.{}.ln_2.weight", "blk.{}.ffn_norm.weight", kVector},
    {"layers.{}.norm2.bias", "h.{}.ln_2.bias", "blk.{}.ffn_norm.bias", kVector},
    {"layers.{}.attn.q", "h.{}.attn.c_attn.weight", "blk.{}.attn_qkv.weight", kTurned},
    {"layers.{}.attn.k", "h.{}.attn.c_attn.weight", "blk.{}.attn_qkv.weight", kTurned},
    {"layers.{}.attn.v", "h.{}.attn.c_attn.weight", "blk.{}.attn_qkv.weight", kTurned},
    {"layers.{}.attn.o", "h.{}.attn.c_proj.weight", "blk.{}.attn_output.weight", kTurned},
    {"layers.{}.mlp.up", "h.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight", kTurned},
    {"layers.{}.mlp.down", "h.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight", kTurned},
    {"layers.{}.attn.q.bias", "h.{}.attn.c_attn.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.k.bias", "h.{}.attn.c_attn.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.v.bias", "h.{}.attn.c_attn.bias", "blk.{}.attn_qkv.bias", kVector},
    {"layers.{}.attn.o.bias", "h.{}.attn.c_proj.bias", "blk.{}.attn_output.bias", kVector},
    {"layers.{}.mlp.up.bias", "h.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias", kVector},
    {"layers.{}.mlp.down.bias", "h.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias", kVector},
};

bool matches(const Container& container) { return is_gguf_of(container, "gpt2") || is_folder_of(container, {"gpt2"}); }

BlockSpec blocks_of_gpt2() {
  BlockSpec blocks;
  blocks.layer_norms = blocks.learned_positions = blocks.fused_qkv = true;
  blocks.gated = false;
  blocks.activation = Activation::kGelu;
  return blocks;
}

// What transformers may do otherwise, and what is of training or of heads that are not read.
Status check_rest(const ConfigReader& config, const std::string& file) {
  for (const auto& [field, wanted] :
       {std::pair{"scale_attn_weights", true}, std::pair{"scale_attn_by_inverse_layer_idx", false},
        std::pair{"add_cross_attention", false}}) {
    BATON_TRY(const bool found, config.boolean(field, wanted));
    if (found != wanted)
      return fail(Code::kUnsupported, fmt::format("{}: field '{}' is {}; it must be {}", file, field, found, wanted));
  }
  for (const char* field : {"reorder_and_upcast_attn", "n_ctx", "summary_type", "summary_use_proj",
                            "summary_activation", "summary_proj_to_labels", "summary_first_dropout"}) {
    static_cast<void>(config.value(field));
  }
  return {};
}

Result<ModelSpec> read_folder(const Container& container) {
  const std::string file = (container.path / "config.json").string();
  const ConfigReader config(container.config, file);
  ModelSpec spec;
  BATON_TRY(spec.hidden, config.integer("n_embd", 1, kHiddenMax));
  BATON_TRY(spec.layers, config.integer("n_layer", 1, kLayersMax));
  BATON_TRY(spec.heads, config.integer("n_head", 1, kHeadsMax));
  BATON_TRY(spec.context_max, config.integer("n_positions", 1, 1 << 20, 1024));
  BATON_TRY(spec.intermediate, config.integer("n_inner", 1, 8 * kHiddenMax, 4 * spec.hidden));
  BATON_TRY(spec.vocab, config.integer("vocab_size", 1, kVocabMax));
  BATON_TRY(spec.rms_eps, config.real("layer_norm_epsilon", 1e-12, 1e-2, 1e-5f));
  BATON_TRY(spec.tied_head, config.boolean("tie_word_embeddings", true));
  BATON_TRY(const std::string activation, config.text("activation_function", "gelu_new"));
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh" && activation != "gelu_fast" &&
      activation != "gelu") {
    return fail(Code::kUnsupported, fmt::format("{}: activation_function '{}' is not supported; there are: gelu_new, "
                                                "gelu_pytorch_tanh, gelu",
                                                file, shown(activation)));
  }
  spec.gelu = activation == "gelu" ? Gelu::kErf : Gelu::kTanh;
  if (spec.hidden % spec.heads != 0) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: n_embd {} is no multiple of n_head {}", file, spec.hidden, spec.heads));
  }
  spec.kv_heads = spec.heads;
  spec.head_dim = spec.hidden / spec.heads;
  spec.attention_bias = spec.mlp_bias = true;
  spec.layer_kinds.assign(static_cast<size_t>(spec.layers), LayerKind::kFullAttention);
  spec.blocks = blocks_of_gpt2();
  BATON_OK(check_rest(config, file));
  return finish_config(container, config, container.config, std::move(spec));
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind != ContainerKind::kGguf) return read_folder(container);
  const GgufReader keys(container, "gpt2");
  BATON_TRY(ModelSpec spec, start_keys(container, keys, {}, false));
  BATON_TRY(spec.rms_eps, keys.real("attention.layer_norm_epsilon", 1e-12, 1e-2));
  spec.gelu = Gelu::kTanh;
  spec.blocks = blocks_of_gpt2();
  return finish_keys(container, keys, std::move(spec));
}

Status build(ModelBuilder& builder) {
  // Old files hold the causal mask of each layer.
  for (const TensorView& tensor : builder.container().tensors) {
    if (tensor.name.ends_with(".attn.masked_bias") || (tensor.name.ends_with(".attn.bias") && tensor.shape.size() == 4))
      builder.mark_used(tensor.name);
  }
  return build_decoder(builder);
}

}  // namespace

extern const Architecture k_gpt2;
const Architecture k_gpt2 = {"gpt2", "gpt2", kRoles, matches, read_spec, build};

}  // namespace baton

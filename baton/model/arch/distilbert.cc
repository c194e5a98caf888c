// DistilBERT: BERT without token types, by other names.
#include <fmt/format.h>

#include "baton/model/arch/encoder.h"

namespace baton {
namespace {

constexpr TensorRule kVector = TensorRule::kVector;
constexpr TensorRole kRoles[] = {
    {"embed", "embeddings.word_embeddings.weight", "token_embd.weight"},
    {"positions", "embeddings.position_embeddings.weight", "position_embd.weight"},
    {"norm", "embeddings.LayerNorm.weight", "token_embd_norm.weight", kVector},
    {"norm.bias", "embeddings.LayerNorm.bias", "token_embd_norm.bias", kVector},
    {"layers.{}.attn.q", "transformer.layer.{}.attention.q_lin.weight", "blk.{}.attn_q.weight"},
    {"layers.{}.attn.k", "transformer.layer.{}.attention.k_lin.weight", "blk.{}.attn_k.weight"},
    {"layers.{}.attn.v", "transformer.layer.{}.attention.v_lin.weight", "blk.{}.attn_v.weight"},
    {"layers.{}.attn.o", "transformer.layer.{}.attention.out_lin.weight", "blk.{}.attn_output.weight"},
    {"layers.{}.mlp.up", "transformer.layer.{}.ffn.lin1.weight", "blk.{}.ffn_up.weight"},
    {"layers.{}.mlp.down", "transformer.layer.{}.ffn.lin2.weight", "blk.{}.ffn_down.weight"},
    {"layers.{}.attn.q.bias", "transformer.layer.{}.attention.q_lin.bias", "blk.{}.attn_q.bias", kVector},
    {"layers.{}.attn.k.bias", "transformer.layer.{}.attention.k_lin.bias", "blk.{}.attn_k.bias", kVector},
    {"layers.{}.attn.v.bias", "transformer.layer.{}.attention.v_lin.bias", "blk.{}.attn_v.bias", kVector},
    {"layers.{}.attn.o.bias", "transformer.layer.{}.attention.out_lin.bias", "blk.{}.attn_output.bias", kVector},
    {"layers.{}.mlp.up.bias", "transformer.layer.{}.ffn.lin1.bias", "blk.{}.ffn_up.bias", kVector},
    {"layers.{}.mlp.down.bias", "transformer.layer.{}.ffn.lin2.bias", "blk.{}.ffn_down.bias", kVector},
    {"layers.{}.norm1", "transformer.layer.{}.sa_layer_norm.weight", "blk.{}.attn_output_norm.weight", kVector},
    {"layers.{}.norm1.bias", "transformer.layer.{}.sa_layer_norm.bias", "blk.{}.attn_output_norm.bias", kVector},
    {"layers.{}.norm2", "transformer.layer.{}.output_layer_norm.weight", "blk.{}.layer_output_norm.weight", kVector},
    {"layers.{}.norm2.bias", "transformer.layer.{}.output_layer_norm.bias", "blk.{}.layer_output_norm.bias", kVector},
};

bool matches(const Container& container) { return is_folder_of(container, {"distilbert"}); }

Result<ModelSpec> read_spec(const Container& container) {
  const std::string file = (container.path / "config.json").string();
  const ConfigReader config(container.config, file);
  BATON_TRY(ModelSpec spec, start_encoder(config, file,
                                          {.hidden = "dim",
                                           .layers = "n_layers",
                                           .intermediate = "hidden_dim",
                                           .heads = "n_heads",
                                           .activation = "activation"}));
  spec.rms_eps = 1e-12F;  // whatever layer_norm_eps says: transformers does not look at it
  // A table either way: the published ones were saved with it.
  static_cast<void>(config.value("sinusoidal_pos_embds"));
  return finish_encoder(config, file,
                        {"dropout", "qa_dropout", "seq_classif_dropout", "tie_weights_", "attention_dropout"},
                        std::move(spec));
}

}  // namespace

extern const Architecture k_distilbert;
const Architecture k_distilbert = {"distilbert", "bert", kRoles, matches, read_spec, build_encoder};

}  // namespace baton

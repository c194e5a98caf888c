// Encoders: attention over the whole text and one network in each layer. What their files have in common is read here,
// and their Program is built from ModelSpec::encoder. A family (one file, one line of arch_list.inc) brings its names,
// the fields and keys of its own, and what it refuses. The output is the last hidden state of each token; what a text's
// vector is made of is the reader's (api/embed_spec.h).
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "baton/model/arch/dense_decoder.h"

namespace baton {

// As BERT names them.
inline constexpr std::array<TensorRole, 5> kBertEndsRoles = {
    {{"embed", "embeddings.word_embeddings.weight", "token_embd.weight"},
     {"positions", "embeddings.position_embeddings.weight", "position_embd.weight"},
     {"types", "embeddings.token_type_embeddings.weight", "token_types.weight", TensorRule::kFirstRow},
     {"norm", "embeddings.LayerNorm.weight", "token_embd_norm.weight", TensorRule::kVector},
     {"norm.bias", "embeddings.LayerNorm.bias", "token_embd_norm.bias", TensorRule::kVector}}};
inline constexpr std::array<TensorRole, 10> kBertAttentionRoles = {
    {{"layers.{}.attn.q", "encoder.layer.{}.attention.self.query.weight", "blk.{}.attn_q.weight"},
     {"layers.{}.attn.k", "encoder.layer.{}.attention.self.key.weight", "blk.{}.attn_k.weight"},
     {"layers.{}.attn.v", "encoder.layer.{}.attention.self.value.weight", "blk.{}.attn_v.weight"},
     {"layers.{}.attn.o", "encoder.layer.{}.attention.output.dense.weight", "blk.{}.attn_output.weight"},
     {"layers.{}.attn.q.bias", "encoder.layer.{}.attention.self.query.bias", "blk.{}.attn_q.bias", TensorRule::kVector},
     {"layers.{}.attn.k.bias", "encoder.layer.{}.attention.self.key.bias", "blk.{}.attn_k.bias", TensorRule::kVector},
     {"layers.{}.attn.v.bias", "encoder.layer.{}.attention.self.value.bias", "blk.{}.attn_v.bias", TensorRule::kVector},
     {"layers.{}.attn.o.bias", "encoder.layer.{}.attention.output.dense.bias", "blk.{}.attn_output.bias",
      TensorRule::kVector},
     {"layers.{}.norm1", "encoder.layer.{}.attention.output.LayerNorm.weight", "blk.{}.attn_output_norm.weight",
      TensorRule::kVector},
     {"layers.{}.norm1.bias", "encoder.layer.{}.attention.output.LayerNorm.bias", "blk.{}.attn_output_norm.bias",
      TensorRule::kVector}}};
inline constexpr std::array<TensorRole, 6> kBertNetworkRoles = {
    {{"layers.{}.mlp.up", "encoder.layer.{}.intermediate.dense.weight", "blk.{}.ffn_up.weight"},
     {"layers.{}.mlp.down", "encoder.layer.{}.output.dense.weight", "blk.{}.ffn_down.weight"},
     {"layers.{}.mlp.up.bias", "encoder.layer.{}.intermediate.dense.bias", "blk.{}.ffn_up.bias", TensorRule::kVector},
     {"layers.{}.mlp.down.bias", "encoder.layer.{}.output.dense.bias", "blk.{}.ffn_down.bias", TensorRule::kVector},
     {"layers.{}.norm2", "encoder.layer.{}.output.LayerNorm.weight", "blk.{}.layer_output_norm.weight",
      TensorRule::kVector},
     {"layers.{}.norm2.bias", "encoder.layer.{}.output.LayerNorm.bias", "blk.{}.layer_output_norm.bias",
      TensorRule::kVector}}};

// What fields of config.json are called.
struct EncoderFields {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* intermediate = "intermediate_size";
  const char* heads = "num_attention_heads";
  const char* context = "max_position_embeddings";
  const char* activation = "hidden_act";
  const char* usual_activation = "gelu";
  const char* eps = "layer_norm_eps";
  float usual_eps = 1e-12F;
  const char* positions = "absolute";  // what position_embedding_type says where it is there
};

// Sizes, norms' eps and activation: gelu, gelu_new (gelu_pytorch_tanh, gelu_fast), and silu (swish) in a gated network.
// A table of positions has a row for each token of the context, until a family says otherwise.
Result<ModelSpec> start_encoder(const ConfigReader& config, const std::string& file, const EncoderFields& fields);
// Switches that are refused, fields of training that go unread, and what nobody asked for.
Result<ModelSpec> finish_encoder(const ConfigReader& config, const std::string& file,
                                 std::initializer_list<const char*> unused, ModelSpec spec);
// Of GGUF keys; `rope`: rope.freq_base too. Token types and positions by the tensors that are there.
Result<ModelSpec> start_encoder_keys(const Container& container, const GgufReader& keys, bool rope,
                                     float usual_theta = 10000);
Result<ModelSpec> finish_encoder_keys(const GgufReader& keys, ModelSpec spec);
// Rotation of whole heads.
Status read_encoder_rope(const ConfigReader& config, const std::string& file, float usual_theta, ModelSpec& spec);

// The Program of spec.encoder.
Status build_encoder(ModelBuilder& builder);

}  // namespace baton

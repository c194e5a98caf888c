// BERT encoders (sentence-transformers' MiniLM, BGE, E5, GTE of that family): post-norm blocks of attention over the
// whole text with learned positions. The output is the last hidden state of each token; what a text's vector is made of
// is the reader's (api/embed.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/model/config_reader.h"
#include "baton/model/container_text.h"
#include "baton/model/harmless.h"
#include "baton/model/model_builder.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

constexpr TensorRole kRoles[] = {
    {"embed", "embeddings.word_embeddings.weight", "token_embd.weight"},
    {"positions", "embeddings.position_embeddings.weight", "position_embd.weight"},
    {"types", "embeddings.token_type_embeddings.weight", "token_types.weight", TensorRule::kFirstRow},
    {"norm", "embeddings.LayerNorm.weight", "token_embd_norm.weight", TensorRule::kVector},
    {"norm.bias", "embeddings.LayerNorm.bias", "token_embd_norm.bias", TensorRule::kVector},
    {"layers.{}.attn.q", "encoder.layer.{}.attention.self.query.weight", "blk.{}.attn_q.weight"},
    {"layers.{}.attn.k", "encoder.layer.{}.attention.self.key.weight", "blk.{}.attn_k.weight"},
    {"layers.{}.attn.v", "encoder.layer.{}.attention.self.value.weight", "blk.{}.attn_v.weight"},
    {"layers.{}.attn.o", "encoder.layer.{}.attention.output.dense.weight", "blk.{}.attn_output.weight"},
    {"layers.{}.mlp.up", "encoder.layer.{}.intermediate.dense.weight", "blk.{}.ffn_up.weight"},
    {"layers.{}.mlp.down", "encoder.layer.{}.output.dense.weight", "blk.{}.ffn_down.weight"},
    {"layers.{}.attn.q.bias", "encoder.layer.{}.attention.self.query.bias", "blk.{}.attn_q.bias", TensorRule::kVector},
    {"layers.{}.attn.k.bias", "encoder.layer.{}.attention.self.key.bias", "blk.{}.attn_k.bias", TensorRule::kVector},
    {"layers.{}.attn.v.bias", "encoder.layer.{}.attention.self.value.bias", "blk.{}.attn_v.bias", TensorRule::kVector},
    {"layers.{}.attn.o.bias", "encoder.layer.{}.attention.output.dense.bias", "blk.{}.attn_output.bias",
     TensorRule::kVector},
    {"layers.{}.mlp.up.bias", "encoder.layer.{}.intermediate.dense.bias", "blk.{}.ffn_up.bias", TensorRule::kVector},
    {"layers.{}.mlp.down.bias", "encoder.layer.{}.output.dense.bias", "blk.{}.ffn_down.bias", TensorRule::kVector},
    {"layers.{}.norm1", "encoder.layer.{}.attention.output.LayerNorm.weight", "blk.{}.attn_output_norm.weight",
     TensorRule::kVector},
    {"layers.{}.norm1.bias", "encoder.layer.{}.attention.output.LayerNorm.bias", "blk.{}.attn_output_norm.bias",
     TensorRule::kVector},
    {"layers.{}.norm2", "encoder.layer.{}.output.LayerNorm.weight", "blk.{}.layer_output_norm.weight",
     TensorRule::kVector},
    {"layers.{}.norm2.bias", "encoder.layer.{}.output.LayerNorm.bias", "blk.{}.layer_output_norm.bias",
     TensorRule::kVector},
};

bool matches(const Container& container) {
  if (container.kind == ContainerKind::kGguf) return false;
  const auto type = ConfigReader(container.config, "").text("model_type", "");
  return type && *type == "bert";
}

// What BERT's configuration may switch on beside what is computed here.
Status check_switches_of_bert(const ConfigReader& config, const std::string& file) {
  BATON_TRY(const std::string positions, config.text("position_embedding_type", "absolute"));
  if (positions != "absolute") {
    return fail(Code::kUnsupported, fmt::format("{}: position_embedding_type '{}' is not supported; there is: absolute",
                                                file, shown(positions)));
  }
  for (const char* field : {"is_decoder", "add_cross_attention"}) {
    BATON_TRY(const bool on, config.boolean(field, false));
    if (on)
      return fail(Code::kUnsupported, fmt::format("{}: field '{}' is true; there are encoders here", file, field));
  }
  return {};
}

Result<Gelu> read_activation(const ConfigReader& config, const std::string& file) {
  BATON_TRY(const std::string name, config.text("hidden_act", "gelu"));
  if (name == "gelu") return Gelu::kErf;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Gelu::kTanh;
  return fail(Code::kUnsupported, fmt::format("{}: hidden_act '{}' is not supported; there are: gelu, gelu_new, "
                                              "gelu_pytorch_tanh",
                                              file, shown(name)));
}

constexpr std::string_view kUnused[] = {"hidden_dropout_prob",
                                        "attention_probs_dropout_prob",
                                        "classifier_dropout",
                                        "directionality",
                                        "pooler_fc_size",
                                        "pooler_num_fc_layers",
                                        "pooler_size_per_head",
                                        "pooler_type",
                                        "pooler_num_attention_heads",
                                        "tie_word_embeddings"};

Result<ModelSpec> read_spec(const Container& container) {
  const std::string file = (container.path / "config.json").string();
  const ConfigReader config(container.config, file);
  ModelSpec spec;
  BATON_TRY(spec.hidden, config.integer("hidden_size", 1, kHiddenMax));
  BATON_TRY(spec.layers, config.integer("num_hidden_layers", 1, kLayersMax));
  BATON_TRY(spec.intermediate, config.integer("intermediate_size", 1, 8 * kHiddenMax));
  BATON_TRY(spec.heads, config.integer("num_attention_heads", 1, kHeadsMax));
  BATON_TRY(spec.vocab, config.integer("vocab_size", 1, kVocabMax));
  BATON_TRY(spec.context_max, config.integer("max_position_embeddings", 1, 1 << 20));
  BATON_TRY(spec.token_types, config.integer("type_vocab_size", 1, 1 << 10, 2));
  BATON_TRY(spec.rms_eps, config.real("layer_norm_eps", 0, 1e-2, 1e-12f));
  BATON_TRY(spec.gelu, read_activation(config, file));
  BATON_OK(check_switches_of_bert(config, file));
  if (spec.hidden % spec.heads != 0) {
    return fail(Code::kInvalidInput, fmt::format("{}: hidden_size {} is no multiple of num_attention_heads {}", file,
                                                 spec.hidden, spec.heads));
  }
  spec.kv_heads = spec.heads;
  spec.head_dim = spec.hidden / spec.heads;
  spec.attention_bias = spec.mlp_bias = true;
  spec.layer_kinds.assign(static_cast<size_t>(spec.layers), LayerKind::kFullAttention);
  for (const std::string_view field : kUnused) static_cast<void>(config.value(field));
  BATON_OK(config.refuse_unread(harmless_fields()));
  return spec;
}

class Encoder {
 public:
  explicit Encoder(ModelBuilder& builder) : builder_(builder), spec_(builder.spec()) {
    x_ = builder.add_register("x", spec_.hidden);
    query_ = builder.add_register("q", spec_.hidden);
    keys_ = builder.add_register("k", spec_.hidden);
    values_ = builder.add_register("v", spec_.hidden);
    mixed_ = builder.add_register("att", spec_.hidden);
    out_ = builder.add_register("o", spec_.hidden);
    up_ = builder.add_register("up", spec_.intermediate);
  }

  // Every text is its first and only part: token type 0.
  Status embedding() {
    Op embed{.kind = OpKind::kEmbed};
    embed.out = x_;
    BATON_TRY(embed.weights[Op::kMatrix], builder_.weight("embed", -1, spec_.vocab, spec_.hidden));
    builder_.add_op(embed);
    Op position{.kind = OpKind::kPosition};
    position.out = position.x = x_;
    BATON_TRY(position.weights[Op::kMatrix], builder_.weight("positions", -1, spec_.context_max, spec_.hidden));
    builder_.add_op(position);
    Op type{.kind = OpKind::kBias};
    type.out = type.x = x_;
    BATON_TRY(type.weights[Op::kOffset], builder_.weight("types", -1, spec_.token_types, spec_.hidden));
    builder_.add_op(type);
    return norm("norm", -1);
  }

  Status layer(int32_t layer) {
    BATON_OK(linear("layers.{}.attn.q", layer, x_, query_));
    BATON_OK(linear("layers.{}.attn.k", layer, x_, keys_));
    BATON_OK(linear("layers.{}.attn.v", layer, x_, values_));
    for (const auto& [role, to] : {std::pair{"layers.{}.attn.q", query_}, std::pair{"layers.{}.attn.k", keys_},
                                   std::pair{"layers.{}.attn.v", values_}}) {
      BATON_OK(bias(role, layer, to));
    }
    Op attend{.kind = OpKind::kAttendAll, .layer = layer};
    attend.out = mixed_;
    attend.x = query_;
    attend.y = keys_;
    attend.z = values_;
    attend.heads = attend.kv_heads = spec_.heads;
    attend.width = spec_.head_dim;
    attend.scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
    builder_.add_op(attend);
    BATON_OK(add_to_x("layers.{}.attn.o", layer, mixed_));
    BATON_OK(norm("layers.{}.norm1", layer));
    BATON_OK(linear("layers.{}.mlp.up", layer, x_, up_));
    BATON_OK(bias("layers.{}.mlp.up", layer, up_));
    Op gelu{.kind = OpKind::kGelu, .layer = layer};
    gelu.out = gelu.x = up_;
    gelu.gelu = spec_.gelu;
    builder_.add_op(gelu);
    BATON_OK(add_to_x("layers.{}.mlp.down", layer, up_));
    return norm("layers.{}.norm2", layer);
  }

  void output() {
    Op op{.kind = OpKind::kOutput};
    op.x = x_;
    builder_.add_op(op);
  }

 private:
  Status linear(std::string_view role, int32_t layer, RegisterId in, RegisterId out) {
    Op op{.kind = OpKind::kLinear, .layer = layer};
    op.out = out;
    op.x = in;
    BATON_TRY(op.weights[Op::kMatrix], builder_.weight(role, layer, builder_.width(out), builder_.width(in)));
    builder_.add_op(op);
    return {};
  }
  Status bias(std::string_view role, int32_t layer, RegisterId x) {
    Op op{.kind = OpKind::kBias, .layer = layer};
    op.out = op.x = x;
    BATON_TRY(op.weights[Op::kOffset], builder_.weight(std::string(role) + ".bias", layer, 1, builder_.width(x)));
    builder_.add_op(op);
    return {};
  }
  // x = x + (W in + b), the sum with the product first: units do it as they multiply.
  Status add_to_x(std::string_view role, int32_t layer, RegisterId in) {
    BATON_OK(linear(role, layer, in, out_));
    Op add{.kind = OpKind::kAdd, .layer = layer};
    add.out = add.x = x_;
    add.y = out_;
    builder_.add_op(add);
    return bias(role, layer, x_);
  }
  Status norm(std::string_view role, int32_t layer) {
    Op op{.kind = OpKind::kLayerNorm, .layer = layer};
    op.out = op.x = x_;
    BATON_TRY(op.weights[Op::kScale], builder_.weight(role, layer, 1, spec_.hidden));
    BATON_TRY(op.weights[Op::kShift], builder_.weight(std::string(role) + ".bias", layer, 1, spec_.hidden));
    op.width = spec_.hidden;
    op.eps = spec_.rms_eps;
    builder_.add_op(op);
    return {};
  }

  ModelBuilder& builder_;
  const ModelSpec& spec_;
  RegisterId x_, query_, keys_, values_, mixed_, out_, up_;
};

Status build(ModelBuilder& builder) {
  Encoder encoder(builder);
  BATON_OK(encoder.embedding());
  for (int32_t layer = 0; layer < builder.spec().layers; ++layer) BATON_OK(encoder.layer(layer));
  encoder.output();
  builder.set_whole_sequence();
  // The pooler and the head of training are behind what is read here.
  for (const TensorView& tensor : builder.container().tensors) {
    const std::string_view name =
        tensor.name.starts_with("bert.") ? tensor.name.substr(std::string_view("bert.").size()) : tensor.name;
    if (name.starts_with("pooler.") || name.starts_with("cls.")) builder.mark_used(tensor.name);
  }
  return {};
}

}  // namespace

extern const Architecture k_bert;
const Architecture k_bert = {"bert", "bert", kRoles, matches, read_spec, build};

}  // namespace baton

// Programs of encoders.
#include "baton/model/arch/encoder.h"

#include <cmath>

namespace baton {
namespace {

class Encoder {
 public:
  explicit Encoder(ModelBuilder& builder) : builder_(builder), spec_(builder.spec()), encoder_(builder.spec().encoder) {
    x_ = builder.add_register("x", spec_.hidden);
    if (encoder_.norms_first) normed_ = builder.add_register("n", spec_.hidden);
    const int32_t width = spec_.heads * spec_.head_dim;
    query_ = builder.add_register("q", width);
    keys_ = builder.add_register("k", width);
    values_ = builder.add_register("v", width);
    mixed_ = builder.add_register("att", width);
    out_ = builder.add_register("o", spec_.hidden);
    if (encoder_.gated) gate_ = builder.add_register("gate", spec_.intermediate);
    up_ = builder.add_register("up", spec_.intermediate);
    if (spec_.rotary != 0) factors_ = add_rope_factors(builder);
    if (!encoder_.norm_bias)
      no_shift_ = builder.add_vector("no_shift", std::vector<float>(static_cast<size_t>(spec_.hidden)));
  }

  // Every text is its first and only part: token type 0.
  Status embedding() {
    Op embed{.kind = OpKind::kEmbed};
    embed.out = x_;
    BATON_TRY(embed.weights[Op::kMatrix], builder_.weight("embed", -1, spec_.vocab, spec_.hidden));
    builder_.add_op(embed);
    if (encoder_.position_rows != 0) {
      Op position{.kind = OpKind::kPosition};
      position.out = position.x = x_;
      BATON_TRY(position.weights[Op::kMatrix], builder_.weight("positions", -1, spec_.context_max, spec_.hidden,
                                                               {encoder_.first_position, encoder_.position_rows}));
      builder_.add_op(position);
    }
    if (spec_.token_types != 0) {
      Op type{.kind = OpKind::kBias};
      type.out = type.x = x_;
      BATON_TRY(type.weights[Op::kOffset], builder_.weight("types", -1, spec_.token_types, spec_.hidden));
      builder_.add_op(type);
    }
    return norm("norm", -1, x_);
  }

  Status layer(int32_t layer) {
    BATON_TRY(const RegisterId mixer_in, norm_before("layers.{}.norm1", layer));
    BATON_OK(attention(mixer_in, layer));
    BATON_OK(add_to_x("layers.{}.attn.o", layer, mixed_));
    BATON_OK(norm_behind("layers.{}.norm1", layer));
    BATON_TRY(const RegisterId network_in, norm_before("layers.{}.norm2", layer));
    BATON_TRY(const RegisterId inner, network(network_in, layer));
    BATON_OK(add_to_x("layers.{}.mlp.down", layer, inner));
    return norm_behind("layers.{}.norm2", layer);
  }

  Status output() {
    if (encoder_.norms_first) BATON_OK(norm("last_norm", -1, x_));
    Op op{.kind = OpKind::kOutput};
    op.x = x_;
    builder_.add_op(op);
    return {};
  }

 private:
  // `part` of the rows that the file has together.
  Status linear(std::string_view role, int32_t layer, RegisterId in, RegisterId out, RowPart part = {}) {
    Op op{.kind = OpKind::kLinear, .layer = layer};
    op.out = out;
    op.x = in;
    BATON_TRY(op.weights[Op::kMatrix], builder_.weight(role, layer, builder_.width(out), builder_.width(in), part));
    builder_.add_op(op);
    return {};
  }
  Status bias(std::string_view role, int32_t layer, RegisterId x, RowPart part = {}) {
    BATON_TRY(const bool biased, builder_.has_bias(role, layer));
    if (!biased) return {};
    Op op{.kind = OpKind::kBias, .layer = layer};
    op.out = op.x = x;
    BATON_TRY(op.weights[Op::kOffset], builder_.weight(std::string(role) + ".bias", layer, 1, builder_.width(x), part));
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

  Status norm(std::string_view role, int32_t layer, RegisterId out) {
    Op op{.kind = OpKind::kLayerNorm, .layer = layer};
    op.out = out;
    op.x = x_;
    BATON_TRY(op.weights[Op::kScale], builder_.weight(role, layer, 1, spec_.hidden));
    op.weights[Op::kShift] = no_shift_;
    if (encoder_.norm_bias) {
      BATON_TRY(op.weights[Op::kShift], builder_.weight(std::string(role) + ".bias", layer, 1, spec_.hidden));
    }
    op.width = spec_.hidden;
    op.eps = spec_.rms_eps;
    builder_.add_op(op);
    return {};
  }
  // What goes into the first layer comes out of the embedding's norm, and may have no other.
  Result<RegisterId> norm_before(std::string_view role, int32_t layer) {
    if (!encoder_.norms_first || (layer == 0 && !builder_.has(role, layer))) return x_;
    BATON_OK(norm(role, layer, normed_));
    return normed_;
  }
  Status norm_behind(std::string_view role, int32_t layer) {
    return encoder_.norms_first ? Status() : norm(role, layer, x_);
  }

  Status attention(RegisterId in, int32_t layer) {
    struct Part {
      std::string_view role;
      RegisterId to;
      RowPart rows;
    };
    const int64_t width = builder_.width(query_), total = encoder_.fused_qkv ? 3 * width : 0;
    const Part parts[] = {{"layers.{}.attn.q", query_, {0, total}},
                          {"layers.{}.attn.k", keys_, {total == 0 ? 0 : width, total}},
                          {"layers.{}.attn.v", values_, {total == 0 ? 0 : 2 * width, total}}};
    for (const Part& part : parts) BATON_OK(linear(part.role, layer, in, part.to, part.rows));
    for (const Part& part : parts) BATON_OK(bias(part.role, layer, part.to, part.rows));
    const int32_t window = encoder_.window(layer);
    if (spec_.rotary != 0) {
      const float theta = window != 0 && encoder_.near_theta != 0 ? encoder_.near_theta : spec_.rope_theta;
      for (const RegisterId x : {query_, keys_})
        add_rope(builder_, x, spec_.heads, factors_, layer, theta, spec_.rope_scaling.magnitude);
    }
    Op attend{.kind = OpKind::kAttendAll, .layer = layer};
    attend.out = mixed_;
    attend.x = query_;
    attend.y = keys_;
    attend.z = values_;
    attend.heads = attend.kv_heads = spec_.heads;
    attend.width = spec_.head_dim;
    attend.scale = 1.0F / std::sqrt(static_cast<float>(spec_.head_dim));
    attend.window = window;
    attend.alibi = encoder_.alibi;
    builder_.add_op(attend);
    return {};
  }

  // What goes into the last matrix.
  Result<RegisterId> network(RegisterId in, int32_t layer) {
    const int64_t width = spec_.intermediate, total = encoder_.fused_gate_up ? 2 * width : 0;
    const RowPart first{0, total}, second{total == 0 ? 0 : width, total};
    const RowPart gate = encoder_.gate_first ? first : second, up = encoder_.gate_first ? second : first;
    if (encoder_.gated) {
      BATON_OK(linear("layers.{}.mlp.gate", layer, in, gate_, gate));
      BATON_OK(linear("layers.{}.mlp.up", layer, in, up_, up));
      BATON_OK(bias("layers.{}.mlp.gate", layer, gate_, gate));
    } else {
      BATON_OK(linear("layers.{}.mlp.up", layer, in, up_));
    }
    BATON_OK(bias("layers.{}.mlp.up", layer, up_, encoder_.gated ? up : RowPart{}));
    const bool silu = encoder_.activation == Activation::kSilu;
    Op op{.kind = !encoder_.gated ? OpKind::kGelu : silu ? OpKind::kSwiGlu : OpKind::kGeGlu, .layer = layer};
    op.out = op.x = encoder_.gated ? gate_ : up_;
    if (encoder_.gated) op.y = up_;
    if (op.kind != OpKind::kSwiGlu) op.gelu = spec_.gelu;
    builder_.add_op(op);
    return op.out;
  }

  ModelBuilder& builder_;
  const ModelSpec& spec_;
  const EncoderSpec& encoder_;
  RegisterId x_, normed_ = -1, query_, keys_, values_, mixed_, out_, gate_ = -1, up_;
  WeightId factors_ = -1, no_shift_ = -1;
};

// Poolers and the heads of training, behind what is read here.
constexpr std::string_view kBehind[] = {"pooler.",          "cls.predictions.",  "cls.seq_relationship.", "lm_head.",
                                        "vocab_transform.", "vocab_layer_norm.", "vocab_projector.",      "head.",
                                        "decoder."};

// A model of classes of whole texts ranks or sorts; its vectors are nobody's.
bool sorts_texts(const Json& config) {
  if (!config.is_object() || !config.contains("architectures")) return false;
  const Json& names = config["architectures"];
  return names.is_array() && !names.empty() && names[0].is_string() &&
         std::string_view(names[0].get_ref<const std::string&>()).ends_with("ForSequenceClassification");
}

void mark_heads(ModelBuilder& builder) {
  const Container& container = builder.container();
  const bool gguf = container.kind == ContainerKind::kGguf, sorts = sorts_texts(container.config);
  for (const TensorView& tensor : container.tensors) {
    const std::string_view name = builder.without_prefix(tensor.name);
    bool behind = gguf ? name.starts_with("cls.") : name.starts_with("classifier.") && !sorts;
    for (const std::string_view begin : kBehind)
      behind |= !gguf && (name.starts_with(begin) || tensor.name.starts_with(begin));
    if (behind) builder.mark_used(tensor.name);
  }
}

}  // namespace

Status build_encoder(ModelBuilder& builder) {
  Encoder encoder(builder);
  BATON_OK(encoder.embedding());
  for (int32_t layer = 0; layer < builder.spec().layers; ++layer) BATON_OK(encoder.layer(layer));
  BATON_OK(encoder.output());
  builder.set_whole_sequence();
  mark_heads(builder);
  return {};
}

}  // namespace baton

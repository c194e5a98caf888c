// Programs of dense decoders.
#include "baton/model/arch/dense_decoder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "baton/model/arch/expert_parts.h"

namespace baton {
namespace {

class Decoder {
 public:
  explicit Decoder(ModelBuilder& builder) : builder_(builder), spec_(builder.spec()), blocks_(builder.spec().blocks) {
    block_.x = builder.add_register("x", spec_.hidden);
    block_.normed = builder.add_register("n", spec_.hidden);
    block_.out = builder.add_register("o", spec_.hidden);
    const auto& dense = spec_.dense_layers;
    if (spec_.experts != 0) experts_.emplace(builder);
    if (spec_.experts == 0 || std::find(dense.begin(), dense.end(), true) != dense.end()) {
      if (blocks_.gated) block_.gate = builder.add_register("gate", spec_.intermediate);
      block_.up = builder.add_register("up", spec_.intermediate);
    }
    const int32_t query_width = spec_.heads * spec_.head_dim, kv_width = spec_.kv_heads * spec_.head_dim;
    query_ = builder.add_register("q", query_width);
    keys_ = builder.add_register("k", kv_width);
    values_ = builder.add_register("v", kv_width);
    mixed_ = builder.add_register("att", query_width);
    const auto& kinds = spec_.layer_kinds;
    if (std::find(kinds.begin(), kinds.end(), LayerKind::kShortConvolution) != kinds.end()) {
      for (const char* name : {"cb", "cc", "cx"}) convolution_.push_back(builder.add_register(name, spec_.hidden));
    }
    factors_ = add_rope_factors(builder);
    near_factors_ = ones_ = -1;
    if (blocks_.qk_norm == QkNorm::kUnit)
      ones_ = builder.add_vector("qk_norm.ones", std::vector<float>(static_cast<size_t>(spec_.head_dim), 1.0f));
    if (blocks_.near_theta == 0) return;
    const std::vector<float> divisors = rope_divisors(blocks_.near_scaling, blocks_.near_theta, spec_.rotary);
    if (!divisors.empty()) near_factors_ = builder.add_vector("near_rope_factors", divisors);
  }

  Status embedding() {
    BATON_OK(add_embedding(builder_, block_));
    if (blocks_.learned_positions) {
      Op position{.kind = OpKind::kPosition};
      position.out = position.x = block_.x;
      BATON_TRY(position.weights[Op::kMatrix], builder_.weight("positions", -1, spec_.context_max, spec_.hidden));
      builder_.add_op(position);
    }
    scale(block_.x, blocks_.embedding_scale, -1);
    return {};
  }

  Status layer(int32_t layer) {
    BATON_TRY(const RegisterId mixer_in, norm_before("layers.{}.norm1", layer));
    const bool convolves = spec_.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kShortConvolution;
    BATON_OK(convolves ? short_convolution(mixer_in, layer) : attention(mixer_in, layer));
    BATON_OK(add_to_x("layers.{}.norm1.behind", layer));
    BATON_TRY(const RegisterId network_in, norm_before("layers.{}.norm2", layer));
    BATON_OK(network(network_in, layer));
    return add_to_x("layers.{}.norm2.behind", layer);
  }

  Status head() {
    BATON_OK(norm("norm", -1, block_.x, block_.normed, spec_.hidden));
    scale(block_.normed, blocks_.logit_scale, -1);
    return add_head_alone(builder_, block_, blocks_.logit_cap);
  }

 private:
  void scale(RegisterId x, float factor, int32_t layer) {
    if (factor == 1) return;
    Op op{.kind = OpKind::kScale, .layer = layer};
    op.out = op.x = x;
    op.scale = factor;
    builder_.add_op(op);
  }

  // out = norm(x) over groups of `width`.
  Status norm(std::string_view role, int32_t layer, RegisterId x, RegisterId out, int32_t width) {
    Op op{.kind = blocks_.layer_norms ? OpKind::kLayerNorm : OpKind::kRmsNorm, .layer = layer};
    op.out = out;
    op.x = x;
    BATON_TRY(op.weights[Op::kScale], builder_.weight(role, layer, 1, width));
    if (blocks_.layer_norms) {
      BATON_TRY(op.weights[Op::kShift], builder_.weight(std::string(role) + ".bias", layer, 1, width));
    }
    op.width = width;
    op.eps = spec_.rms_eps;
    builder_.add_op(op);
    return {};
  }
  // x = norm(x) of each head, without weights.
  void unit_norm(RegisterId x, int32_t layer) {
    Op op{.kind = OpKind::kRmsNorm, .layer = layer};
    op.out = op.x = x;
    op.weights[Op::kScale] = ones_;
    op.width = spec_.head_dim;
    op.eps = spec_.rms_eps;
    builder_.add_op(op);
  }
  Result<RegisterId> norm_before(std::string_view role, int32_t layer) {
    if (!blocks_.norms_before) return block_.x;
    BATON_OK(norm(role, layer, block_.x, block_.normed, spec_.hidden));
    return block_.normed;
  }

  // out = W in + b, `part` of the rows that the file has together.
  Status linear(std::string_view role, int32_t layer, RegisterId in, RegisterId out, RowPart part = {}) {
    if (part.total == 0) return add_linear(builder_, role, layer, in, out);
    Op op{.kind = OpKind::kLinear, .layer = layer};
    op.out = out;
    op.x = in;
    BATON_TRY(op.weights[Op::kMatrix], builder_.weight(role, layer, builder_.width(out), builder_.width(in), part));
    builder_.add_op(op);
    BATON_TRY(const bool biased, builder_.has_bias(role, layer));
    if (!biased) return {};
    Op bias{.kind = OpKind::kBias, .layer = layer};
    BATON_TRY(bias.weights[Op::kOffset],
              builder_.weight(std::string(role) + ".bias", layer, 1, builder_.width(out), part));
    bias.out = bias.x = out;
    builder_.add_op(bias);
    return {};
  }

  Status attention(RegisterId in, int32_t layer) {
    const int64_t queries = builder_.width(query_), pairs = builder_.width(keys_);
    const int64_t total = blocks_.fused_qkv ? queries + 2 * pairs : 0;
    BATON_OK(linear("layers.{}.attn.q", layer, in, query_, {0, total}));
    BATON_OK(linear("layers.{}.attn.k", layer, in, keys_, {queries, total}));
    BATON_OK(linear("layers.{}.attn.v", layer, in, values_, {queries + pairs, total}));
    if (blocks_.qk_norm == QkNorm::kHeads || blocks_.qk_norm == QkNorm::kWhole) {
      const bool whole = blocks_.qk_norm == QkNorm::kWhole;
      BATON_OK(norm("layers.{}.attn.q_norm", layer, query_, query_, whole ? builder_.width(query_) : spec_.head_dim));
      BATON_OK(norm("layers.{}.attn.k_norm", layer, keys_, keys_, whole ? builder_.width(keys_) : spec_.head_dim));
    }
    turn(query_, spec_.heads, layer);
    turn(keys_, spec_.kv_heads, layer);
    const bool turned = blocks_.position(layer) != Positions::kNone;
    if (ones_ >= 0 && turned) {
      unit_norm(query_, layer);
      unit_norm(keys_, layer);
    }
    if (blocks_.position_scale != 0 && !(turned && blocks_.position_scale_unturned)) {
      Op op{.kind = OpKind::kPositionScale, .layer = layer};
      op.out = op.x = query_;
      op.scale = blocks_.position_scale;
      op.window = blocks_.position_scale_tokens;
      op.ahead = blocks_.position_scale_ahead;
      builder_.add_op(op);
    }
    Op attend{.kind = OpKind::kAttend, .layer = layer};
    attend.out = mixed_;
    attend.x = query_;
    attend.y = keys_;
    attend.z = values_;
    std::tie(attend.slot, attend.slot2) = add_kv_slots(builder_, layer);
    attend.heads = spec_.heads;
    attend.kv_heads = spec_.kv_heads;
    attend.width = spec_.head_dim;
    attend.scale =
        blocks_.attention_scale != 0 ? blocks_.attention_scale : 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
    (blocks_.chunked ? attend.chunk : attend.window) = blocks_.window(layer);
    attend.cap = blocks_.score_cap;
    builder_.add_op(attend);
    return linear("layers.{}.attn.o", layer, mixed_, block_.out);
  }

  // out = W (c * conv(b * x)): b, c and x are rows of one matrix in the file.
  Status short_convolution(RegisterId in, int32_t layer) {
    constexpr std::string_view kRoles[] = {"layers.{}.conv.b", "layers.{}.conv.c", "layers.{}.conv.x"};
    const int64_t width = spec_.hidden;
    for (size_t i = 0; i < 3; ++i)
      BATON_OK(linear(kRoles[i], layer, in, convolution_[i], {static_cast<int64_t>(i) * width, 3 * width}));
    Op op{.kind = OpKind::kShortConv, .layer = layer};
    op.x = op.out2 = convolution_[2];
    op.y = convolution_[0];
    op.z = convolution_[1];
    op.out = block_.normed;
    op.taps = spec_.conv_taps;
    BATON_TRY(op.weights[Op::kTaps], builder_.weight("layers.{}.conv.taps", layer, width, spec_.conv_taps));
    Slot slot{.kind = SlotKind::kConv, .layer = layer};
    slot.heads = 1;
    slot.rows = spec_.conv_taps - 1;
    slot.columns = spec_.hidden;
    op.slot = builder_.add_slot(slot);
    builder_.add_op(op);
    return linear("layers.{}.conv.out", layer, op.out, block_.out);
  }

  void turn(RegisterId x, int32_t heads, int32_t layer) {
    const Positions positions = blocks_.position(layer);
    if (positions == Positions::kNone || spec_.rotary == 0) return;
    const bool near = positions == Positions::kNearRope;
    add_rope(builder_, x, heads, near ? near_factors_ : factors_, layer, near ? blocks_.near_theta : spec_.rope_theta,
             near ? blocks_.near_scaling.magnitude : spec_.rope_scaling.magnitude);
  }

  Status network(RegisterId in, int32_t layer) {
    const bool dense = !spec_.dense_layers.empty() && spec_.dense_layers[static_cast<size_t>(layer)];
    if (experts_ && !dense) return experts_->add(in, block_.out, layer);
    const int64_t width = spec_.intermediate, total = blocks_.fused_gate_up ? 2 * width : 0;
    if (blocks_.gated) BATON_OK(linear("layers.{}.mlp.gate", layer, in, block_.gate, {0, total}));
    BATON_OK(linear("layers.{}.mlp.up", layer, in, block_.up, {blocks_.fused_gate_up ? width : 0, total}));
    Op op{.kind = !blocks_.gated                            ? OpKind::kGelu
                  : blocks_.activation == Activation::kSilu ? OpKind::kSwiGlu
                                                            : OpKind::kGeGlu,
          .layer = layer};
    op.out = op.x = blocks_.gated ? block_.gate : block_.up;
    if (blocks_.gated) op.y = block_.up;
    if (op.kind != OpKind::kSwiGlu) op.gelu = spec_.gelu;
    builder_.add_op(op);
    return linear("layers.{}.mlp.down", layer, op.out, block_.out);
  }

  // x = x + scale norm(out)
  Status add_to_x(std::string_view role, int32_t layer) {
    if (blocks_.norms_behind) BATON_OK(norm(role, layer, block_.out, block_.out, spec_.hidden));
    scale(block_.out, blocks_.residual_scale, layer);
    add_residual(builder_, block_, layer);
    return {};
  }

  ModelBuilder& builder_;
  const ModelSpec& spec_;
  const BlockSpec& blocks_;
  BlockRegisters block_{};
  RegisterId query_, keys_, values_, mixed_;
  std::vector<RegisterId> convolution_;  // b, c, x of short convolutions, if there are any
  WeightId factors_, near_factors_;
  WeightId ones_;  // of norms without weights
  std::optional<ExpertNetwork> experts_;
};

}  // namespace

Status build_decoder(ModelBuilder& builder) {
  Decoder decoder(builder);
  BATON_OK(decoder.embedding());
  for (int32_t layer = 0; layer < builder.spec().layers; ++layer) BATON_OK(decoder.layer(layer));
  return decoder.head();
}

}  // namespace baton

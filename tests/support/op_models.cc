// Random one-op models.
#include "tests/support/op_models.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "baton/quant/samples_test.h"

namespace baton::test {
namespace {

class Maker {
 public:
  explicit Maker(Random& random) : random_(random) {}

  int32_t between(int32_t low, int32_t high) { return low + static_cast<int32_t>(random_.below(high - low + 1)); }

  std::vector<float> values(size_t count, float low, float high) {
    std::vector<float> out(count);
    for (float& value : out) value = random_.uniform(low, high);
    return out;
  }

  enum class Alignment { kNone, kF32 };
  WeightId add(DType dtype, int64_t rows, int64_t columns, const std::vector<float>& from,
               Alignment alignment = Alignment::kNone) {
    const uint64_t row_size = *row_bytes(dtype, static_cast<uint64_t>(columns));
    const size_t bytes = row_size * static_cast<size_t>(rows);
    // One byte off alignment: mapped weights may be unaligned. Vectors and taps are promised to be aligned f32.
    const size_t shift = rows > 1 && alignment == Alignment::kNone ? 1 : 0;
    auto memory = std::make_unique<std::byte[]>(bytes + shift);
    const std::vector<std::byte> blocks = blocks_like(format_of(dtype), from, random_);
    std::copy(blocks.begin(), blocks.end(), memory.get() + shift);
    model_->weights.push_back(
        {fmt::format("w{}", model_->weights.size()), dtype, rows, columns, memory.get() + shift, bytes, ""});
    model_->owned.push_back(std::move(memory));
    return static_cast<WeightId>(model_->weights.size()) - 1;
  }
  WeightId vector(int64_t count, float low, float high) { return add(DType::kF32, 1, count, values(count, low, high)); }
  WeightId matrix(DType dtype, int64_t rows, int64_t columns) {
    const float spread = 1.7f / std::sqrt(static_cast<float>(columns));
    return add(dtype, rows, columns, values(static_cast<size_t>(rows * columns), -spread, spread));
  }

  RegisterId reg(int32_t width) {
    model_->program.registers.push_back({fmt::format("r{}", model_->program.registers.size()), width});
    return static_cast<RegisterId>(model_->program.registers.size()) - 1;
  }
  SlotId slot(SlotKind kind, int32_t heads, int32_t rows, int32_t columns) {
    model_->program.slots.push_back({kind, 0, heads, rows, columns});
    return static_cast<SlotId>(model_->program.slots.size()) - 1;
  }
  int32_t width(RegisterId id) const { return model_->program.registers[static_cast<size_t>(id)].width; }
  void op(const Op& op) { model_->program.ops.push_back(op); }

  // The embedding of the token, `width` values.
  RegisterId input(int32_t width, DType dtype = DType::kF32) {
    Op embed{.kind = OpKind::kEmbed};
    embed.out = reg(width);
    embed.weights[Op::kMatrix] = add(dtype, kVocab, width, values(size_t{kVocab} * width, -2.0f, 2.0f));
    op(embed);
    return embed.out;
  }
  RegisterId linear(RegisterId x, int32_t width, DType dtype = DType::kF32) {
    Op linear{.kind = OpKind::kLinear};
    linear.layer = 0;
    linear.out = reg(width);
    linear.x = x;
    linear.weights[Op::kMatrix] = matrix(dtype, width, model_->program.registers[x].width);
    op(linear);
    return linear.out;
  }
  // logits = W x; the identity unless a type is under test.
  void head(RegisterId x, DType dtype = DType::kF32, bool identity = true, float cap = 0) {
    const int32_t width = model_->program.registers[x].width;
    Op head{.kind = OpKind::kHead};
    head.x = x;
    head.cap = cap;
    const int32_t vocab = std::max(width, kVocab);
    if (identity) {
      std::vector<float> eye(static_cast<size_t>(vocab) * width, 0.0f);
      for (int32_t i = 0; i < width; ++i) eye[static_cast<size_t>(i) * width + i] = 1.0f;
      head.weights[Op::kMatrix] = add(DType::kF32, vocab, width, eye);
    } else {
      head.weights[Op::kMatrix] = matrix(dtype, vocab, width);
    }
    op(head);
    model_->program.vocab = model_->program.output_width = vocab;
  }
  void output(RegisterId x) {
    op({.kind = OpKind::kOutput, .x = x});
    model_->program.vocab = kVocab;
    model_->program.output_width = model_->program.registers[x].width;
  }
  // Tokens see later ones; up to `tokens` of them.
  void whole_sequence(int32_t tokens) {
    model_->program.whole_sequence = true;
    model_->spec.context_max = tokens;
  }
  OpModel finish(std::string description) {
    model_->spec.vocab = model_->program.vocab;
    model_->spec.layers = 1;
    model_->program.hidden = model_->spec.hidden = model_->program.registers[0].width;
    return {std::move(model_), std::move(description)};
  }

  static constexpr int32_t kVocab = 37;

 private:
  Random& random_;
  std::shared_ptr<Model> model_ = std::make_shared<Model>();
};

OpModel make_attend(Maker& make, bool window = false, bool cap = false, bool chunk = false) {
  const int32_t kv_heads = make.between(1, 3), group = make.between(1, 4), width = 2 * make.between(2, 40);
  const RegisterId x = make.input(24);
  Op op{.kind = OpKind::kAttend, .layer = 0};
  op.x = make.linear(x, kv_heads * group * width);
  op.y = make.linear(x, kv_heads * width);
  op.z = make.linear(x, kv_heads * width);
  op.slot = make.slot(SlotKind::kKeys, kv_heads, 0, width);
  op.slot2 = make.slot(SlotKind::kValues, kv_heads, 0, width);
  op.out = make.reg(kv_heads * group * width);
  op.heads = kv_heads * group;
  op.kv_heads = kv_heads;
  op.width = width;
  op.scale = 1.0f / std::sqrt(static_cast<float>(width));
  // Short ones, around a tile of 64 keys, and some that see all.
  if (window) op.window = make.between(0, 2) == 0 ? make.between(60, 70) : make.between(1, 40);
  if (cap) op.cap = make.between(0, 1) == 0 ? 50.0f : 0.7f;
  if (chunk) op.chunk = make.between(0, 2) == 0 ? make.between(60, 70) : make.between(1, 40);
  make.op(op);
  make.head(op.out);
  return make.finish(fmt::format("attend kv_heads={} group={} head_dim={} window={} cap={} chunk={}", kv_heads, group,
                                 width, op.window, op.cap, op.chunk));
}

OpModel make_attend_all(Maker& make, bool window = false, bool alibi = false) {
  const int32_t kv_heads = make.between(1, 3), group = make.between(1, 4), width = make.between(2, 80);
  const RegisterId x = make.input(24);
  Op op{.kind = OpKind::kAttendAll, .layer = 0};
  op.x = make.linear(x, kv_heads * group * width);
  op.y = make.linear(x, kv_heads * width);
  op.z = make.linear(x, kv_heads * width);
  op.out = make.reg(kv_heads * group * width);
  op.heads = kv_heads * group;
  op.kv_heads = kv_heads;
  op.width = width;
  op.scale = 1.0f / std::sqrt(static_cast<float>(width));
  if (window) op.window = make.between(0, 2) == 0 ? 64 : make.between(1, 90);
  if (alibi) op.alibi = 8;
  make.op(op);
  make.head(op.out);
  make.whole_sequence(600);
  return make.finish(fmt::format("attend_all kv_heads={} group={} head_dim={} window={} alibi={}", kv_heads, group,
                                 width, op.window, op.alibi));
}

OpModel make_position(Maker& make) {
  const int32_t width = make.between(1, 200);
  Op op{.kind = OpKind::kPosition};
  op.x = make.input(width);
  op.weights[Op::kMatrix] = make.add(DType::kF32, 200, width, make.values(size_t{200} * width, -2.0f, 2.0f));
  op.out = make.between(0, 1) == 0 ? op.x : make.reg(width);
  make.op(op);
  make.head(op.out);
  return make.finish(fmt::format("position width={}", width));
}

OpModel make_scale(Maker& make) {
  const int32_t width = make.between(1, 200);
  Op op{.kind = OpKind::kScale, .layer = 0};
  op.x = make.linear(make.input(24), width);
  op.scale = make.between(0, 1) == 0 ? 0.22f : -12.0f;
  op.out = make.between(0, 1) == 0 ? op.x : make.reg(width);
  make.op(op);
  make.head(op.out);
  return make.finish(fmt::format("scale {} width={}", op.scale, width));
}

OpModel make_gelu(Maker& make) {
  const int32_t width = make.between(1, 200);
  Op op{.kind = OpKind::kGelu, .layer = 0};
  op.x = make.linear(make.input(24), width);
  op.gelu = make.between(0, 1) == 0 ? Gelu::kErf : Gelu::kTanh;
  op.out = make.between(0, 1) == 0 ? op.x : make.reg(width);
  make.op(op);
  make.head(op.out);
  return make.finish(fmt::format("gelu {} width={}", op.gelu == Gelu::kErf ? "erf" : "tanh", width));
}

OpModel make_output(Maker& make) {
  const int32_t width = make.between(1, 200);
  make.output(make.linear(make.input(24), width));
  return make.finish(fmt::format("output width={}", width));
}

// More experts than tokens choose in a short text, one for all, and one that all choose; widths of no multiple.
OpModel make_experts(Maker& make, DType dtype, bool gated_input = false, int32_t used_least = 1) {
  const auto block = static_cast<int32_t>(format_of(dtype).block_elements);
  const int32_t experts = make.between(used_least, 40), used = make.between(used_least, std::min(experts, 9));
  const auto size = [&](int32_t most) {
    return block == 1 ? make.between(1, most) : block * make.between(1, block == 256 ? 2 : 5);
  };
  const int32_t width = size(150), inner = size(90);
  Op op{.kind = OpKind::kExperts, .layer = 0};
  op.x = make.input(width);
  op.out = make.reg(make.between(0, 1) == 0 ? width : make.between(1, 120));
  op.experts = experts;
  op.experts_used = used;
  op.routing = make.between(0, 1) == 0 ? Routing::kSoftmaxOfAll : Routing::kSoftmaxOfChosen;
  if (gated_input) op.routing = Routing::kSigmoidOfInput;
  op.weights[Op::kRouter] = make.matrix(DType::kF32, experts, width);
  const auto all = [&](int64_t rows, int64_t columns) {
    const WeightId first = make.matrix(dtype, rows, columns);
    for (int32_t e = 1; e < experts; ++e) make.matrix(dtype, rows, columns);
    return first;
  };
  op.weights[Op::kGates] = all(inner, width);
  op.weights[Op::kUps] = all(inner, width);
  op.weights[Op::kDowns] = all(make.width(op.out), inner);
  make.op(op);
  make.head(op.out);
  return make.finish(fmt::format("experts {} {} of {} width={} inner={} out={} {}", to_string(dtype), used, experts,
                                 width, inner, make.width(op.out), to_string(op.routing)));
}

OpModel make_one_gate(Maker& make) {
  const int32_t width = make.between(2, 60), groups = make.between(1, 4);
  const RegisterId x = make.input(24);
  Op op{.kind = OpKind::kSigmoidGate, .layer = 0};
  op.x = make.linear(x, width * groups);
  op.y = make.linear(x, groups);
  op.width = width;
  op.out = make.between(0, 1) == 0 ? op.x : make.reg(width * groups);
  make.op(op);
  make.head(op.out);
  return make.finish(fmt::format("sigmoid_gate of {} values, {} gates", width, groups));
}

OpModel make_delta(Maker& make) {
  const int32_t key_heads = make.between(1, 3), repeat = make.between(1, 3), value_heads = key_heads * repeat;
  const int32_t key_dim = 4 * make.between(1, 18), value_dim = 4 * make.between(1, 18);
  const RegisterId x = make.input(20);
  Op op{.kind = OpKind::kDeltaRule, .layer = 0};
  op.x = make.linear(x, 2 * key_heads * key_dim + value_heads * value_dim);
  op.y = make.linear(x, value_heads);
  op.z = make.linear(x, value_heads);
  op.weights[Op::kDecayRate] = make.vector(value_heads, -4.0f, -0.01f);
  op.weights[Op::kTimeBias] = make.vector(value_heads, -3.0f, 1.0f);
  op.slot = make.slot(SlotKind::kRecurrent, value_heads, key_dim, value_dim);
  op.out = make.reg(value_heads * value_dim);
  op.heads = value_heads;
  op.kv_heads = key_heads;
  op.key_dim = key_dim;
  op.value_dim = value_dim;
  op.eps = 1e-6f;
  op.head_map = make.between(0, 1) == 0 ? HeadMap::kGrouped : HeadMap::kTiled;
  make.op(op);
  make.head(op.out);
  return make.finish(fmt::format("delta_rule key_heads={} value_heads={} key_dim={} value_dim={} map={}", key_heads,
                                 value_heads, key_dim, value_dim, static_cast<int>(op.head_map)));
}

OpModel make_rope(Maker& make) {
  const int32_t heads = make.between(1, 5), width = 2 * make.between(2, 40);
  Op op{.kind = OpKind::kRope, .layer = 0};
  op.heads = heads;
  op.width = width;
  op.rotary = 2 * make.between(1, width / 2);
  op.rope_theta = make.between(0, 1) == 0 ? 1e4f : 1e7f;
  op.pairing = make.between(0, 1) == 0 ? RopePairing::kHalf : RopePairing::kAdjacent;
  op.x = op.out = make.input(heads * width);
  if (make.between(0, 1) == 0) op.weights[Op::kRopeFactors] = make.vector(op.rotary / 2, 1.0f, 8.0f);
  if (make.between(0, 1) == 0) op.rope_magnitude = 1.25f;
  make.op(op);
  make.head(op.out);
  return make.finish(fmt::format("rope heads={} head_dim={} rotary={} pairing={} factors={} magnitude={}", heads, width,
                                 op.rotary, static_cast<int>(op.pairing), op.weights[Op::kRopeFactors] >= 0,
                                 op.rope_magnitude));
}

OpModel make_conv(Maker& make) {
  const int32_t channels = make.between(1, 90), taps = make.between(2, 6);
  Op op{.kind = OpKind::kCausalConv, .layer = 0};
  op.x = make.input(channels);
  op.taps = taps;
  op.weights[Op::kTaps] =
      make.add(DType::kF32, channels, taps, make.values(static_cast<size_t>(channels) * taps, -1.0f, 1.0f),
               Maker::Alignment::kF32);
  op.slot = make.slot(SlotKind::kConv, 1, taps - 1, channels);
  op.out = make.reg(channels);
  make.op(op);
  make.head(op.out);
  return make.finish(fmt::format("causal_conv channels={} taps={}", channels, taps));
}

OpModel make_short_conv(Maker& make) {
  const int32_t channels = make.between(1, 90), taps = make.between(2, 6);
  Op op{.kind = OpKind::kShortConv, .layer = 0};
  const RegisterId x = make.input(20);
  op.x = make.linear(x, channels);
  op.y = make.linear(x, channels);
  op.z = make.linear(x, channels);
  op.taps = taps;
  op.weights[Op::kTaps] =
      make.add(DType::kF32, channels, taps, make.values(static_cast<size_t>(channels) * taps, -1.0f, 1.0f),
               Maker::Alignment::kF32);
  op.slot = make.slot(SlotKind::kConv, 1, taps - 1, channels);
  op.out2 = make.between(0, 1) == 0 ? op.x : make.reg(channels);
  op.out = make.reg(channels);
  make.op(op);
  // Both outputs reach the logits.
  Op gate{.kind = OpKind::kSigmoidGate, .layer = 0};
  gate.x = op.out;
  gate.y = op.out2;
  gate.out = make.reg(channels);
  make.op(gate);
  make.head(gate.out);
  return make.finish(
      fmt::format("short_conv channels={} taps={} in place={}", channels, taps, op.out2 == op.x ? "yes" : "no"));
}

OpModel make_position_scale(Maker& make, bool ahead = false) {
  const int32_t width = make.between(1, 200);
  Op op{.kind = OpKind::kPositionScale, .layer = 0};
  op.x = make.linear(make.input(24), width);
  op.scale = make.between(0, 1) == 0 ? 0.1f : 1.5f;
  op.window = make.between(1, 30);
  if (ahead) op.ahead = make.between(1, 40);
  op.out = make.between(0, 1) == 0 ? op.x : make.reg(width);
  make.op(op);
  make.head(op.out);
  return make.finish(
      fmt::format("position_scale {} tokens={} ahead={} width={}", op.scale, op.window, op.ahead, width));
}

OpModel make_grouped(Maker& make, OpKind kind) {
  const int32_t groups = make.between(1, 6), width = make.between(1, 80);
  Op op{.kind = kind, .layer = 0};
  op.width = width;
  op.eps = 1e-6f;
  const RegisterId x = make.input(groups * width);
  if (kind == OpKind::kSplitPairs) {
    op.x = make.linear(x, 2 * groups * width);
    op.heads = groups;
    op.out = make.reg(groups * width);
    op.out2 = make.reg(groups * width);
    make.op(op);
    // Both outputs reach the logits: a + 0.5 b would hide a swap, a * sigmoid(b) does not.
    Op gate{.kind = OpKind::kSigmoidGate, .layer = 0};
    gate.x = op.out;
    gate.y = op.out2;
    gate.out = make.reg(groups * width);
    make.op(gate);
    make.head(gate.out);
  } else {
    op.x = x;
    if (kind == OpKind::kGatedNorm) op.y = make.linear(x, groups * width);
    op.weights[Op::kScale] = make.vector(width, -1.0f, 2.0f);
    if (kind == OpKind::kLayerNorm) op.weights[Op::kShift] = make.vector(width, -1.0f, 1.0f);
    op.out = make.between(0, 1) == 0 ? op.x : make.reg(groups * width);
    make.op(op);
    make.head(op.out);
  }
  return make.finish(fmt::format("{} groups={} width={}", to_string(kind), groups, width));
}

OpModel make_binary(Maker& make, OpKind kind) {
  const int32_t width = make.between(1, 200);
  const RegisterId x = make.input(width);
  Op op{.kind = kind, .layer = 0};
  op.x = make.linear(x, width);
  op.y = make.linear(x, width);
  if (kind == OpKind::kGeGlu && make.between(0, 1) == 0) op.gelu = Gelu::kTanh;
  op.out = make.between(0, 1) == 0 ? op.x : make.reg(width);
  make.op(op);
  make.head(op.out);
  return make.finish(fmt::format("{} width={} gelu={}", to_string(kind), width, static_cast<int>(op.gelu)));
}

OpModel make_bias(Maker& make) {
  const int32_t width = make.between(1, 200);
  Op op{.kind = OpKind::kBias, .layer = 0};
  op.x = make.linear(make.input(24), width);
  op.weights[Op::kScale] = make.vector(width, -2.0f, 2.0f);
  op.out = make.between(0, 1) == 0 ? op.x : make.reg(width);
  make.op(op);
  make.head(op.out);
  return make.finish(fmt::format("bias width={}", width));
}

OpModel make_matrix(Maker& make, OpKind kind, DType dtype) {
  const int32_t block = static_cast<int32_t>(format_of(dtype).block_elements);
  const int32_t columns = block == 1 ? make.between(1, 150) : block * make.between(1, block == 256 ? 3 : 9);
  const int32_t rows = make.between(1, 90);
  if (kind == OpKind::kEmbed) {
    make.head(make.input(columns, dtype));
  } else if (kind == OpKind::kLinear) {
    make.head(make.linear(make.input(columns), rows, dtype));
  } else {
    make.head(make.input(columns), dtype, false);
  }
  return make.finish(fmt::format("{} {} columns={} rows={}", to_string(kind), to_string(dtype), columns, rows));
}

}  // namespace

OpModel make_op_model(OpKind kind, DType dtype, Random& random) {
  Maker make(random);
  switch (kind) {
    case OpKind::kEmbed:
    case OpKind::kLinear:
    case OpKind::kHead:
      return make_matrix(make, kind, dtype);
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
    case OpKind::kGatedNorm:
    case OpKind::kSplitPairs:
      return make_grouped(make, kind);
    case OpKind::kRope:
      return make_rope(make);
    case OpKind::kAttend:
      return make_attend(make);
    case OpKind::kCausalConv:
      return make_conv(make);
    case OpKind::kDeltaRule:
      return make_delta(make);
    case OpKind::kSigmoidGate:
    case OpKind::kSwiGlu:
    case OpKind::kGeGlu:
    case OpKind::kAdd:
      return make_binary(make, kind);
    case OpKind::kBias:
      return make_bias(make);
    case OpKind::kPosition:
      return make_position(make);
    case OpKind::kAttendAll:
      return make_attend_all(make);
    case OpKind::kGelu:
      return make_gelu(make);
    case OpKind::kOutput:
      return make_output(make);
    case OpKind::kScale:
      return make_scale(make);
    case OpKind::kExperts:
      return make_experts(make, dtype);
    case OpKind::kShortConv:
      return make_short_conv(make);
    case OpKind::kPositionScale:
      return make_position_scale(make);
  }
  BATON_CHECK(false);
}

OpModel make_experts_model(int32_t used_least, DType dtype, bool gated_input, Random& random) {
  Maker make(random);
  return make_experts(make, dtype, gated_input, used_least);
}

OpModel make_trait_model(OpTrait trait, Random& random, DType dtype) {
  Maker make(random);
  if (trait == OpTrait::kOneGate) return make_one_gate(make);
  if (trait == OpTrait::kAhead) return make_position_scale(make, true);
  if (trait == OpTrait::kGatedInput) return make_experts(make, dtype, true);
  if (kind_of(trait) == OpKind::kAttend)
    return make_attend(make, trait == OpTrait::kWindow, trait == OpTrait::kScoreCap, trait == OpTrait::kChunk);
  if (kind_of(trait) == OpKind::kAttendAll)
    return make_attend_all(make, trait == OpTrait::kReach, trait == OpTrait::kAlibi);
  const int32_t width = make.between(1, 150);
  const float cap = make.between(0, 1) == 0 ? 30.0f : 0.9f;
  make.head(make.input(width), DType::kF32, false, cap);
  return make.finish(fmt::format("head width={} cap={}", width, cap));
}

OpKind kind_of(OpTrait trait) {
  if (trait == OpTrait::kOneGate) return OpKind::kSigmoidGate;
  if (trait == OpTrait::kGatedInput) return OpKind::kExperts;
  if (trait == OpTrait::kAhead) return OpKind::kPositionScale;
  if (trait == OpTrait::kReach || trait == OpTrait::kAlibi) return OpKind::kAttendAll;
  return trait == OpTrait::kLogitCap ? OpKind::kHead : OpKind::kAttend;
}

}  // namespace baton::test

// Decoders of gated DeltaNet and gated attention. Source of the structure: the published checkpoints' configuration and
// Hugging Face's model code.
#include "baton/model/arch/gated_delta_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "baton/model/arch/expert_parts.h"
#include "baton/model/config_reader.h"
#include "baton/model/container_text.h"
#include "baton/model/harmless.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

constexpr float kL2NormEps = 1e-6f;  // Hugging Face: x * rsqrt(sum(x^2) + 1e-6)

// The gate of the DeltaNet's norm is silu. (That of attention is a sigmoid and has no field.)
Status check_gates(const ConfigReader& config, const std::string& file) {
  BATON_TRY(const bool gated, config.boolean("attn_output_gate", true));
  if (!gated)
    return fail(Code::kUnsupported, fmt::format("{}: attn_output_gate is false; attention here is gated", file));
  BATON_TRY(const std::string type, config.text("output_gate_type", "swish"));
  if (type == "swish" || type == "silu") return {};
  return fail(Code::kUnsupported,
              fmt::format("{}: output_gate_type '{}' is not supported; there is: swish (silu)", file, shown(type)));
}

// One kind for each layer; `recurrent`, of GGUF, may have the prediction layers too.
Status check_recurrent(const std::vector<int64_t>& recurrent, int32_t layers, int32_t blocks, const std::string& what) {
  if (recurrent.empty()) return {};
  if (recurrent.size() != static_cast<size_t>(layers) && recurrent.size() != static_cast<size_t>(blocks)) {
    return fail(Code::kInvalidInput,
                fmt::format("{} has {} entries for {} layers; give one for each", what, recurrent.size(), layers));
  }
  for (size_t i = 0; i < recurrent.size(); ++i) {
    if (recurrent[i] == 0 || recurrent[i] == 1) continue;
    return fail(Code::kInvalidInput, fmt::format("{}: entry {} is {}; it must be 0 or 1, for attention or recurrent",
                                                 what, i, recurrent[i]));
  }
  return {};
}

}  // namespace

Result<ModelSpec> read_gated_delta_config(const Container& container, bool experts, const GatedDeltaDefaults& usual) {
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  ModelSpec spec;
  BATON_TRY(spec.hidden, config.integer("hidden_size", 1, kHiddenMax));
  BATON_TRY(spec.layers, config.integer("num_hidden_layers", 1, kLayersMax));
  if (experts) {
    BATON_OK(read_experts(config, file, true, true, spec));
  } else {
    BATON_TRY(spec.intermediate, config.integer("intermediate_size", 1, 8 * kHiddenMax));
  }
  BATON_TRY(spec.heads, config.integer("num_attention_heads", 1, kHeadsMax));
  BATON_TRY(spec.kv_heads, config.integer("num_key_value_heads", 1, kHeadsMax));
  BATON_TRY(spec.head_dim, config.integer("head_dim", 1, kHeadDimMax, 256));
  BATON_TRY(spec.vocab, config.integer("vocab_size", 1, kVocabMax));
  BATON_TRY(spec.context_max, config.integer("max_position_embeddings", 1, 1 << 30, usual.context));
  BATON_TRY(spec.rms_eps, config.real("rms_norm_eps", 1e-12, 1e-2, 1e-6f));
  BATON_TRY(spec.linear_key_heads, config.integer("linear_num_key_heads", 1, kHeadsMax));
  BATON_TRY(spec.linear_value_heads, config.integer("linear_num_value_heads", 1, kHeadsMax));
  BATON_TRY(spec.linear_key_dim, config.integer("linear_key_head_dim", 1, kHeadDimMax));
  BATON_TRY(spec.linear_value_dim, config.integer("linear_value_head_dim", 1, kHeadDimMax));
  BATON_TRY(spec.conv_taps, config.integer("linear_conv_kernel_dim", 2, 16));
  BATON_TRY(const bool tied_inside, config.boolean("tie_word_embeddings", false));
  BATON_TRY(const bool tied_outside, ConfigReader(container.config, file).boolean("tie_word_embeddings", false));
  spec.tied_head = tied_inside || tied_outside;

  BATON_TRY(spec.attention_bias, config.boolean("attention_bias", false));
  BATON_OK(check_gates(config, file));
  BATON_OK(check_activation(config, file));
  BATON_OK(check_switches(config, file, true));
  BATON_OK(check_window(config, file, spec));
  BATON_TRY(const float rotated, read_rotated_share(config, file, 0.25f));
  spec.rotary = static_cast<int32_t>(static_cast<float>(spec.head_dim) * rotated);
  BATON_OK(read_rope(config, file, usual.theta, spec));
  spec.head_map = HeadMap::kGrouped;

  BATON_TRY(const int32_t interval, config.integer("full_attention_interval", 1, 1024, 4));
  const Json* types = config.value("layer_types");
  if (types != nullptr && !types->is_array())
    return fail(Code::kInvalidInput, fmt::format("{}: layer_types must be a list, one entry for each layer", file));
  if (types != nullptr) {
    for (const Json& type : *types) {
      const bool linear = type.is_string() && type.get<std::string>() == "linear_attention";
      if (!linear && !(type.is_string() && type.get<std::string>() == "full_attention")) {
        return fail(Code::kUnsupported,
                    fmt::format("{}: layer_types[{}] is {}; it must be linear_attention or full_attention", file,
                                spec.layer_kinds.size(), type.dump()));
      }
      spec.layer_kinds.push_back(linear ? LayerKind::kLinearAttention : LayerKind::kFullAttention);
    }
  } else {
    for (int32_t i = 0; i < spec.layers; ++i) {
      spec.layer_kinds.push_back((i + 1) % interval == 0 ? LayerKind::kFullAttention : LayerKind::kLinearAttention);
    }
  }
  BATON_TRY(spec.stop_ids, read_stop_ids(container, text));
  BATON_OK(config.refuse_unread(harmless_fields()));
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (&text == &container.config || ConfigReader(container.config, file).value(field) == nullptr) continue;
    return fail(Code::kUnsupported, fmt::format("{}: '{}' is outside text_config; move it inside", file, field));
  }
  return spec;
}

Result<ModelSpec> read_gated_delta_keys(const Container& container, const std::string& architecture, bool experts) {
  const GgufReader keys(container, architecture);
  ModelSpec spec;
  BATON_TRY(const auto name, container.gguf.text("general.name"));
  spec.name = name.value_or("");
  BATON_TRY(spec.hidden, keys.integer("embedding_length", 1, kHiddenMax));
  BATON_TRY(const int32_t blocks, keys.integer("block_count", 1, kLayersMax));
  BATON_TRY(const int32_t predict_layers, keys.integer("nextn_predict_layers", 0, blocks - 1, 0));
  spec.layers = blocks - predict_layers;
  if (experts) {
    BATON_OK(read_experts(keys, container.path.string(), true, spec));
  } else {
    BATON_TRY(spec.intermediate, keys.integer("feed_forward_length", 1, 8 * kHiddenMax));
  }
  BATON_TRY(spec.heads, keys.integer("attention.head_count", 1, kHeadsMax));
  BATON_TRY(spec.kv_heads, keys.integer("attention.head_count_kv", 1, kHeadsMax));
  BATON_TRY(spec.head_dim, keys.integer("attention.key_length", 1, kHeadDimMax, 256));
  BATON_TRY(spec.context_max, keys.integer("context_length", 1, 1 << 30));
  BATON_TRY(spec.rms_eps, keys.real("attention.layer_norm_rms_epsilon", 1e-12, 1e-2, 1e-6f));
  BATON_TRY(spec.rope_theta, keys.real("rope.freq_base", 1, 1e12, 1e7f));
  BATON_TRY(spec.rotary, keys.integer("rope.dimension_count", 0, kHeadDimMax, spec.head_dim / 4));
  BATON_OK(read_rope(keys, container, spec));
  BATON_OK(check_value_length(keys, container, spec));
  BATON_OK(check_causal(keys, container.path.string()));
  BATON_TRY(spec.conv_taps, keys.integer("ssm.conv_kernel", 2, 16));
  BATON_TRY(spec.linear_key_dim, keys.integer("ssm.state_size", 1, kHeadDimMax));
  BATON_TRY(spec.linear_key_heads, keys.integer("ssm.group_count", 1, kHeadsMax));
  BATON_TRY(spec.linear_value_heads, keys.integer("ssm.time_step_rank", 1, kHeadsMax));
  BATON_TRY(const int32_t inner, keys.integer("ssm.inner_size", 1, 1 << 24));
  if (inner % spec.linear_value_heads != 0) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: {} {} is not a multiple of {} value heads", container.path.string(),
                            keys.name("ssm.inner_size"), inner, spec.linear_value_heads));
  }
  spec.linear_value_dim = inner / spec.linear_value_heads;
  spec.head_map = HeadMap::kTiled;

  const TensorView* embedding = container.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: tensor 'token_embd.weight' is missing or not a matrix", container.path.string()));
  }
  spec.vocab = static_cast<int32_t>(std::min<uint64_t>(embedding->shape[0], uint64_t{1} << 30));
  spec.tied_head = container.find("output.weight") == nullptr;

  BATON_TRY(const std::vector<int64_t> recurrent, keys.integers("attention.recurrent_layers"));
  BATON_OK(
      check_recurrent(recurrent, spec.layers, blocks,
                      fmt::format("{}: key '{}'", container.path.string(), keys.name("attention.recurrent_layers"))));
  BATON_TRY(const int32_t interval, keys.integer("full_attention_interval", 1, 1024, 4));
  for (int32_t i = 0; i < spec.layers; ++i) {
    const bool linear = recurrent.empty() ? (i + 1) % interval != 0 : recurrent[i] != 0;
    spec.layer_kinds.push_back(linear ? LayerKind::kLinearAttention : LayerKind::kFullAttention);
  }
  BATON_TRY(spec.stop_ids, read_stop_ids(container, Json()));
  BATON_OK(keys.refuse_unread(harmless_keys()));
  return spec;
}

namespace {

struct AttentionRegisters {
  RegisterId query_gate, query, gate, keys, values, mixed;
};

Status add_attention(ModelBuilder& builder, const BlockRegisters& block, const AttentionRegisters& r, WeightId factors,
                     int32_t layer) {
  const ModelSpec& spec = builder.spec();
  BATON_OK(add_linear(builder, "layers.{}.attn.q", layer, block.normed, r.query_gate));
  BATON_OK(add_linear(builder, "layers.{}.attn.k", layer, block.normed, r.keys));
  BATON_OK(add_linear(builder, "layers.{}.attn.v", layer, block.normed, r.values));
  Op split{.kind = OpKind::kSplitPairs, .layer = layer};
  split.out = r.query;
  split.out2 = r.gate;
  split.x = r.query_gate;
  split.heads = spec.heads;
  split.width = spec.head_dim;
  builder.add_op(split);
  for (const bool is_query : {true, false}) {
    const RegisterId target = is_query ? r.query : r.keys;
    BATON_TRY(const WeightId norm_weight,
              builder.weight(is_query ? "layers.{}.attn.q_norm" : "layers.{}.attn.k_norm", layer, 1, spec.head_dim));
    Op norm{.kind = OpKind::kRmsNorm, .layer = layer};
    norm.out = norm.x = target;
    norm.weights[Op::kScale] = norm_weight;
    norm.width = spec.head_dim;
    norm.eps = spec.rms_eps;
    builder.add_op(norm);
    add_rope(builder, target, is_query ? spec.heads : spec.kv_heads, factors, layer);
  }
  Op attend{.kind = OpKind::kAttend, .layer = layer};
  attend.out = r.mixed;
  attend.x = r.query;
  attend.y = r.keys;
  attend.z = r.values;
  std::tie(attend.slot, attend.slot2) = add_kv_slots(builder, layer);
  attend.heads = spec.heads;
  attend.kv_heads = spec.kv_heads;
  attend.width = spec.head_dim;
  attend.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  builder.add_op(attend);
  Op gate{.kind = OpKind::kSigmoidGate, .layer = layer};
  gate.out = gate.x = r.mixed;
  gate.y = r.gate;
  builder.add_op(gate);
  return add_linear(builder, "layers.{}.attn.o", layer, r.mixed, block.out);
}

struct DeltaRegisters {
  RegisterId qkv, convolved, z, b, a, mixed, ba;
};

// out = rows of the file's matrix of queries, keys, values and z. Per key head there are so many of each, in this
// order; here all heads' queries come first, then all keys, all values.
Status add_gathered(ModelBuilder& builder, const BlockRegisters& block, RegisterId out, bool z, int32_t layer) {
  const ModelSpec& spec = builder.spec();
  const int64_t keys = spec.linear_key_dim;
  const int64_t values = int64_t{spec.linear_value_heads} / spec.linear_key_heads * spec.linear_value_dim;
  const int64_t of_head = 2 * (keys + values), total = spec.linear_key_heads * of_head;
  std::vector<int64_t> rows;
  const auto take = [&](int64_t first, int64_t count) {
    for (int64_t head = 0; head < spec.linear_key_heads; ++head) {
      for (int64_t i = 0; i < count; ++i) rows.push_back(head * of_head + first + i);
    }
  };
  if (z) {
    take(2 * keys + values, values);
  } else {
    take(0, keys);
    take(keys, keys);
    take(2 * keys, values);
  }
  Op op{.kind = OpKind::kLinear, .layer = layer};
  op.out = out;
  op.x = block.normed;
  BATON_TRY(op.weights[Op::kMatrix], builder.gathered(z ? "layers.{}.delta.z" : "layers.{}.delta.qkv",
                                                      "layers.{}.delta.qkvz", layer, rows, total, spec.hidden));
  builder.add_op(op);
  return {};
}

Status add_delta_inputs(ModelBuilder& builder, const BlockRegisters& block, const DeltaRegisters& r, int32_t layer) {
  const ModelSpec& spec = builder.spec();
  if (builder.has("layers.{}.delta.qkvz", layer)) {
    BATON_OK(add_gathered(builder, block, r.qkv, false, layer));
    BATON_OK(add_gathered(builder, block, r.z, true, layer));
  } else {
    BATON_OK(add_linear(builder, "layers.{}.delta.qkv", layer, block.normed, r.qkv));
    BATON_OK(add_linear(builder, "layers.{}.delta.z", layer, block.normed, r.z));
  }
  if (!builder.has("layers.{}.delta.ba", layer)) {
    BATON_OK(add_linear(builder, "layers.{}.delta.b", layer, block.normed, r.b));
    return add_linear(builder, "layers.{}.delta.a", layer, block.normed, r.a);
  }
  BATON_OK(add_linear(builder, "layers.{}.delta.ba", layer, block.normed, r.ba));
  Op split{.kind = OpKind::kSplitPairs, .layer = layer};
  split.out = r.b;
  split.out2 = r.a;
  split.x = r.ba;
  split.heads = spec.linear_key_heads;
  split.width = spec.linear_value_heads / spec.linear_key_heads;
  builder.add_op(split);
  return {};
}

Status add_delta(ModelBuilder& builder, const BlockRegisters& block, const DeltaRegisters& r, int32_t layer) {
  const ModelSpec& spec = builder.spec();
  const int32_t channels = builder.width(r.qkv);
  BATON_OK(add_delta_inputs(builder, block, r, layer));

  Op conv{.kind = OpKind::kCausalConv, .layer = layer};
  BATON_TRY(conv.weights[Op::kTaps], builder.weight("layers.{}.delta.conv", layer, channels, spec.conv_taps));
  conv.out = r.convolved;
  conv.x = r.qkv;
  conv.taps = spec.conv_taps;
  Slot window{.kind = SlotKind::kConv, .layer = layer};
  window.heads = 1;
  window.rows = spec.conv_taps - 1;
  window.columns = channels;
  conv.slot = builder.add_slot(window);
  builder.add_op(conv);

  Op rule{.kind = OpKind::kDeltaRule, .layer = layer};
  BATON_TRY(rule.weights[Op::kDecayRate], builder.weight("layers.{}.delta.decay", layer, 1, spec.linear_value_heads));
  BATON_TRY(rule.weights[Op::kTimeBias], builder.weight("layers.{}.delta.dt", layer, 1, spec.linear_value_heads));
  rule.out = r.mixed;
  rule.x = r.convolved;
  rule.y = r.b;
  rule.z = r.a;
  rule.heads = spec.linear_value_heads;
  rule.kv_heads = spec.linear_key_heads;
  rule.key_dim = spec.linear_key_dim;
  rule.value_dim = spec.linear_value_dim;
  rule.eps = kL2NormEps;
  rule.head_map = spec.head_map;
  Slot memory{.kind = SlotKind::kRecurrent, .layer = layer};
  memory.heads = spec.linear_value_heads;
  memory.rows = spec.linear_key_dim;
  memory.columns = spec.linear_value_dim;
  rule.slot = builder.add_slot(memory);
  builder.add_op(rule);

  Op norm{.kind = OpKind::kGatedNorm, .layer = layer};
  BATON_TRY(norm.weights[Op::kScale], builder.weight("layers.{}.delta.norm", layer, 1, spec.linear_value_dim));
  norm.out = norm.x = r.mixed;
  norm.y = r.z;
  norm.width = spec.linear_value_dim;
  norm.eps = spec.rms_eps;
  builder.add_op(norm);
  return add_linear(builder, "layers.{}.delta.o", layer, r.mixed, block.out);
}

}  // namespace

Status build_gated_delta(ModelBuilder& builder) {
  const ModelSpec& spec = builder.spec();
  BlockRegisters block{};
  std::optional<ExpertNetwork> experts;
  if (spec.experts == 0) {
    block = add_block_registers(builder);
  } else {
    block.x = builder.add_register("x", spec.hidden);
    block.normed = builder.add_register("n", spec.hidden);
    block.out = builder.add_register("o", spec.hidden);
    experts.emplace(builder);
  }
  const int32_t query_width = spec.heads * spec.head_dim;
  const int32_t kv_width = spec.kv_heads * spec.head_dim;
  const AttentionRegisters attention = {
      builder.add_register("qg", 2 * query_width), builder.add_register("q", query_width),
      builder.add_register("g", query_width),      builder.add_register("k", kv_width),
      builder.add_register("v", kv_width),         builder.add_register("att", query_width)};
  DeltaRegisters delta{};
  if (spec.linear_value_heads > 0) {
    const int32_t value_width = spec.linear_value_heads * spec.linear_value_dim;
    const int32_t channels = 2 * spec.linear_key_heads * spec.linear_key_dim + value_width;
    delta = {builder.add_register("qkv", channels),
             builder.add_register("cqkv", channels),
             builder.add_register("z", value_width),
             builder.add_register("b", spec.linear_value_heads),
             builder.add_register("a", spec.linear_value_heads),
             builder.add_register("dn", value_width),
             -1};
    const auto& kinds = spec.layer_kinds;
    const auto first = std::find(kinds.begin(), kinds.end(), LayerKind::kLinearAttention) - kinds.begin();
    if (first < spec.layers && builder.has("layers.{}.delta.ba", static_cast<int32_t>(first)))
      delta.ba = builder.add_register("ba", 2 * spec.linear_value_heads);
  }
  const WeightId factors = add_rope_factors(builder);
  BATON_OK(add_embedding(builder, block));
  for (int32_t layer = 0; layer < spec.layers; ++layer) {
    BATON_OK(add_norm(builder, block, "layers.{}.norm1", layer));
    if (spec.layer_kinds[layer] == LayerKind::kFullAttention) {
      BATON_OK(add_attention(builder, block, attention, factors, layer));
    } else {
      BATON_OK(add_delta(builder, block, delta, layer));
    }
    add_residual(builder, block, layer);
    if (!experts) {
      BATON_OK(add_swiglu_network(builder, block, "layers.{}.norm2", layer));
      continue;
    }
    BATON_OK(add_norm(builder, block, "layers.{}.norm2", layer));
    BATON_OK(experts->add(block.normed, block.out, layer));
    add_residual(builder, block, layer);
  }
  return add_head(builder, block);
}

}  // namespace baton

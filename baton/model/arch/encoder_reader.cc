// What configurations and GGUF keys of encoders have in common.
#include <fmt/format.h>

#include <algorithm>

#include "baton/model/arch/encoder.h"
#include "baton/model/container_text.h"
#include "baton/model/harmless.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

Status read_activation(const ConfigReader& config, const std::string& file, const EncoderFields& fields,
                       ModelSpec& spec) {
  BATON_TRY(const std::string name, config.text(fields.activation, fields.usual_activation));
  if (name == "gelu") return {};
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    spec.gelu = Gelu::kTanh;
    return {};
  }
  if (name == "silu" || name == "swish") {
    spec.encoder.activation = Activation::kSilu;
    return {};
  }
  return fail(Code::kUnsupported, fmt::format("{}: {} '{}' is not supported; there are: gelu, gelu_new, "
                                              "gelu_pytorch_tanh, silu",
                                              file, fields.activation, shown(name)));
}

// What BERT's configuration may switch on beside what is computed here.
Status check_switches_of_encoder(const ConfigReader& config, const std::string& file, const EncoderFields& fields) {
  BATON_TRY(const std::string positions, config.text("position_embedding_type", fields.positions));
  if (positions != fields.positions) {
    return fail(Code::kUnsupported, fmt::format("{}: position_embedding_type '{}' is not supported; there is: {}", file,
                                                shown(positions), fields.positions));
  }
  for (const char* field : {"is_decoder", "add_cross_attention"}) {
    BATON_TRY(const bool on, config.boolean(field, false));
    if (on)
      return fail(Code::kUnsupported, fmt::format("{}: field '{}' is true; there are encoders here", file, field));
  }
  return {};
}

constexpr std::string_view kUnused[] = {
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout",   "directionality",
    "pooler_fc_size",      "pooler_num_fc_layers",         "pooler_size_per_head", "pooler_type",
    "output_past",         "pooler_num_attention_heads",   "tie_word_embeddings"};

// Rows of a table that may be missing.
Result<int32_t> rows_of(const Container& container, const char* name, int32_t columns) {
  const TensorView* table = container.find(name);
  if (table == nullptr) return 0;
  const bool vector = table->shape.size() == 1;
  if (table->shape.empty() || table->shape.size() > 2 || table->shape.back() != static_cast<uint64_t>(columns) ||
      table->shape[0] > (uint64_t{1} << 30)) {
    return fail(Code::kInvalidInput, fmt::format("{}: tensor '{}' must be a matrix with rows of {}",
                                                 container.path.string(), name, columns));
  }
  return vector ? 1 : static_cast<int32_t>(table->shape[0]);
}

Status check_gated(const ModelSpec& spec, const std::string& file) {
  if (spec.encoder.gated || spec.encoder.activation == Activation::kGelu) return {};
  return fail(Code::kUnsupported,
              fmt::format("{}: a network of silu without a gate is not supported; there is: gelu", file));
}

}  // namespace

Result<ModelSpec> start_encoder(const ConfigReader& config, const std::string& file, const EncoderFields& fields) {
  ModelSpec spec;
  BATON_TRY(spec.hidden, config.integer(fields.hidden, 1, kHiddenMax));
  BATON_TRY(spec.layers, config.integer(fields.layers, 1, kLayersMax));
  BATON_TRY(spec.intermediate, config.integer(fields.intermediate, 1, 8 * kHiddenMax));
  BATON_TRY(spec.heads, config.integer(fields.heads, 1, kHeadsMax));
  BATON_TRY(spec.vocab, config.integer("vocab_size", 1, kVocabMax));
  BATON_TRY(spec.context_max, config.integer(fields.context, 1, 1 << 20));
  BATON_TRY(spec.rms_eps, config.real(fields.eps, 0, 1e-2, fields.usual_eps));
  BATON_OK(read_activation(config, file, fields, spec));
  BATON_OK(check_switches_of_encoder(config, file, fields));
  if (spec.hidden % spec.heads != 0) {
    return fail(Code::kInvalidInput, fmt::format("{}: {} {} is no multiple of {} {}", file, fields.hidden, spec.hidden,
                                                 fields.heads, spec.heads));
  }
  spec.kv_heads = spec.heads;
  spec.head_dim = spec.hidden / spec.heads;
  spec.attention_bias = spec.mlp_bias = true;
  spec.encoder.position_rows = spec.context_max;
  spec.layer_kinds.assign(static_cast<size_t>(spec.layers), LayerKind::kFullAttention);
  return spec;
}

Result<ModelSpec> finish_encoder(const ConfigReader& config, const std::string& file,
                                 std::initializer_list<const char*> unused, ModelSpec spec) {
  BATON_OK(check_gated(spec, file));
  for (const std::string_view field : kUnused) static_cast<void>(config.value(field));
  for (const std::string_view field : unused) static_cast<void>(config.value(field));
  BATON_OK(config.refuse_unread(harmless_fields()));
  return spec;
}

Result<ModelSpec> start_encoder_keys(const Container& container, const GgufReader& keys, bool rope, float usual_theta) {
  ModelSpec spec;
  const std::string file = container.path.string();
  BATON_TRY(const auto name, container.gguf.text("general.name"));
  spec.name = name.value_or("");
  BATON_TRY(spec.hidden, keys.integer("embedding_length", 1, kHiddenMax));
  BATON_TRY(spec.layers, keys.integer("block_count", 1, kLayersMax));
  BATON_TRY(spec.intermediate, keys.integer("feed_forward_length", 1, 8 * kHiddenMax));
  BATON_TRY(spec.heads, keys.integer("attention.head_count", 1, kHeadsMax));
  BATON_TRY(const int32_t kv_heads, keys.integer("attention.head_count_kv", 1, kHeadsMax, spec.heads));
  BATON_TRY(spec.context_max, keys.integer("context_length", 1, 1 << 20));
  BATON_TRY(spec.rms_eps, keys.real("attention.layer_norm_epsilon", 0, 1e-2));
  BATON_TRY(const bool causal, keys.boolean("attention.causal", false));
  if (causal || kv_heads != spec.heads || spec.hidden % spec.heads != 0) {
    return fail(
        Code::kUnsupported,
        fmt::format("{}: {}, {} query and {} key heads over {} values: an encoder's attention is not causal and "
                    "has as many key heads as query heads, which divide {}",
                    file, causal ? "causal attention" : "attention", spec.heads, kv_heads, spec.hidden,
                    keys.name("embedding_length")));
  }
  spec.kv_heads = spec.heads;
  spec.head_dim = spec.hidden / spec.heads;
  for (const char* key : {"attention.key_length", "attention.value_length"}) {
    BATON_TRY(const int32_t length, keys.integer(key, 1, kHeadDimMax, spec.head_dim));
    if (length == spec.head_dim) continue;
    return fail(Code::kUnsupported,
                fmt::format("{}: key '{}' is {}; it must be {} / {}, {}", file, keys.name(key), length,
                            keys.name("embedding_length"), keys.name("attention.head_count"), spec.head_dim));
  }
  BATON_TRY(spec.vocab, rows_of(container, "token_embd.weight", spec.hidden));
  if (spec.vocab == 0) return fail(Code::kInvalidInput, fmt::format("{}: tensor 'token_embd.weight' is missing", file));
  BATON_TRY(spec.token_types, rows_of(container, "token_types.weight", spec.hidden));
  spec.layer_kinds.assign(static_cast<size_t>(spec.layers), LayerKind::kFullAttention);
  if (!rope) return spec;
  spec.rotary = spec.head_dim;
  BATON_TRY(spec.rope_theta, keys.real("rope.freq_base", 1, 1e12, usual_theta));
  BATON_TRY(const int32_t rotary, keys.integer("rope.dimension_count", 0, kHeadDimMax, spec.head_dim));
  if (rotary != spec.head_dim) {
    return fail(Code::kUnsupported, fmt::format("{}: key '{}' is {}; whole heads of {} are turned here", file,
                                                keys.name("rope.dimension_count"), rotary, spec.head_dim));
  }
  BATON_OK(read_rope(keys, container, spec));
  return spec;
}

Result<ModelSpec> finish_encoder_keys(const GgufReader& keys, ModelSpec spec) {
  BATON_OK(keys.refuse_unread(harmless_keys()));
  return spec;
}

Status read_encoder_rope(const ConfigReader& config, const std::string& file, float usual_theta, ModelSpec& spec) {
  BATON_TRY(const int32_t head_dim, config.integer("head_dim", 1, kHeadDimMax, spec.head_dim));
  if (head_dim != spec.head_dim) {
    return fail(Code::kUnsupported, fmt::format("{}: head_dim {} is not hidden_size / num_attention_heads, {}", file,
                                                head_dim, spec.head_dim));
  }
  spec.rotary = spec.head_dim;
  spec.encoder.position_rows = 0;
  return read_rope(config, file, usual_theta, spec);
}

}  // namespace baton

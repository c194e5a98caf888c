// Models to GGUF.
#include "baton/tools/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "baton/api/gguf_tokenizer.h"
#include "baton/api/text_model.h"
#include "baton/base/file.h"
#include "baton/base/output_file.h"
#include "baton/model/arch.h"
#include "baton/model/config_reader.h"
#include "baton/model/gguf_writer.h"
#include "baton/tools/convert_check.h"
#include "baton/tools/convert_chunks.h"
#include "baton/tools/convert_weights.h"

namespace baton {
namespace {

// general.file_type of GGUF: informational.
uint32_t file_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 7;
    case DType::kQ5_0:
      return 8;
    case DType::kQ5_1:
      return 9;
    case DType::kQ4_K:
      return 15;
    case DType::kQ5_K:
      return 17;
    case DType::kQ6_K:
      return 18;
    case DType::kBF16:
      return 32;
    default:
      return 0;
  }
}

// How a model's scaled positions are written. Both readers take GGUF's keys where they say all there is; else the
// divisors themselves, tensors that this project reads for every architecture and llama.cpp for llama, and for phi3
// those of longrope.
enum class RopeForm : uint8_t { kKeys, kDivisors, kTwoSets };
RopeForm rope_form(const RopeScaling& rope) {
  if (rope.kind == RopeKind::kLongRope) return RopeForm::kTwoSets;
  const bool usual_ramp = rope.truncate && rope.beta_fast == 32 && rope.beta_slow == 1 && rope.extrapolation == 1;
  const bool keys =
      rope.kind == RopeKind::kPlain || rope.kind == RopeKind::kLinear || (rope.kind == RopeKind::kYarn && usual_ramp);
  return keys ? RopeForm::kKeys : RopeForm::kDivisors;
}

void put_rope(GgufWriter& writer, const ModelSpec& spec, const std::string& prefix) {
  const RopeScaling& rope = spec.rope_scaling;
  const auto put = [&](const char* key, float value) { writer.put_f32(prefix + "rope.scaling." + key, value); };
  float magnitude = rope.magnitude;
  // Ministral 3 counts the tokens of a factor of its queries by it.
  const bool scales_queries = spec.architecture == "ministral3" && spec.blocks.position_scale != 0;
  if (rope.kind != RopeKind::kPlain || scales_queries)
    writer.put_u32(prefix + "rope.scaling.original_context_length", static_cast<uint32_t>(rope.original));
  if (rope.kind == RopeKind::kPlain) return;
  const RopeForm form = rope_form(rope);
  writer.put_string(prefix + "rope.scaling.type",
                    to_string(form == RopeForm::kDivisors ? RopeKind::kPlain : rope.kind));
  if (form == RopeForm::kKeys) put("factor", rope.factor);
  if (form == RopeForm::kKeys && rope.kind == RopeKind::kYarn) magnitude /= yarn_magnitude(rope.factor);
  if (magnitude != 1) put("attn_factor", magnitude);
}

void add_rope_tensors(GgufWriter& writer, const ModelSpec& spec, std::vector<std::string>& lost) {
  const RopeScaling& rope = spec.rope_scaling;
  const auto add = [&](std::string_view name, std::vector<float> values) {
    const std::vector<uint64_t> shape = {values.size()};
    writer.add_tensor(std::string(name), DType::kF32, shape, [values]() -> Result<std::vector<std::byte>> {
      const auto bytes = std::as_bytes(std::span(values));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    });
  };
  const RopeForm form = rope_form(rope);
  if (form == RopeForm::kKeys) return;
  if (form == RopeForm::kTwoSets) {
    add(kRopeTensors[1], rope.short_factors);
    add(kRopeTensors[2], rope.long_factors);
  } else if (std::vector<float> divisors = rope_divisors(rope, spec.rope_theta, spec.rotary); !divisors.empty()) {
    add(kRopeTensors[0], std::move(divisors));
  }
  const bool read_there = spec.architecture == "llama" || spec.architecture == "mistral" ||
                          spec.architecture == "llama4" || (spec.architecture == "phi3" && form == RopeForm::kTwoSets);
  if (!read_there) {
    lost.push_back(
        fmt::format("rope scaling '{}' is written as tensors that llama.cpp does not read for {}: there, "
                    "positions of this file are not scaled",
                    to_string(rope.kind), spec.architecture));
  }
}

// What is a dense decoder's own; readers that do not know a key compute another model, which llama.cpp's do only where
// it has no such architecture.
void put_blocks(GgufWriter& writer, const ModelSpec& spec, const std::string& prefix) {
  const BlockSpec& blocks = spec.blocks;
  const auto put = [&](const char* key, float value, float nothing) {
    if (value != nothing) writer.put_f32(prefix + key, value);
  };
  int32_t window = 0;
  std::vector<bool> slides;
  for (const int32_t of_layer : blocks.windows) {
    window = std::max(window, of_layer);
    slides.push_back(of_layer != 0);
  }
  // A window as long as the context says which layers rotate with the near base.
  if (window == 0 &&
      std::find(blocks.positions.begin(), blocks.positions.end(), Positions::kNearRope) != blocks.positions.end()) {
    window = spec.context_max;
    slides.clear();
    for (const Positions of_layer : blocks.positions) slides.push_back(of_layer == Positions::kNearRope);
  }
  if (window != 0) {
    writer.put_u32(prefix + "attention.sliding_window", static_cast<uint32_t>(window));
    writer.put_bools(prefix + "attention.sliding_window_pattern", slides);
    put("rope.freq_base_swa", blocks.near_theta, 0);  // OLMo 3's files without windows are OLMo 2's, which have none
  }
  put("attn_logit_softcapping", blocks.score_cap, 0);
  put("final_logit_softcapping", blocks.logit_cap, 0);
  put("attention.scale", blocks.attention_scale, 0);
  put("attention.temperature_scale", blocks.position_scale, 0);
  put("residual_scale", blocks.residual_scale, 1);
  if (blocks.logit_scale != 1) writer.put_f32(prefix + "logit_scale", 1 / blocks.logit_scale);
  // Gemma's readers know it without a key.
  if (!spec.architecture.starts_with("gemma")) put("embedding_scale", blocks.embedding_scale, 1);
}

// One number, or one for each layer: 0 for those without attention, as files of short convolutions say it.
void put_kv_heads(GgufWriter& writer, const ModelSpec& spec, const std::string& prefix) {
  const std::string key = prefix + "attention.head_count_kv";
  const auto& kinds = spec.layer_kinds;
  if (std::find(kinds.begin(), kinds.end(), LayerKind::kShortConvolution) == kinds.end())
    return writer.put_u32(key, static_cast<uint32_t>(spec.kv_heads));
  std::vector<int32_t> of_layers;
  for (const LayerKind kind : kinds) of_layers.push_back(kind == LayerKind::kFullAttention ? spec.kv_heads : 0);
  writer.put_i32s(key, of_layers);
  writer.put_u32(prefix + "shortconv.l_cache", static_cast<uint32_t>(spec.conv_taps));
}

// What GGUF has no key for, or its readers fill in for themselves: such a file would be of another model.
Status check_sayable(const ModelSpec& spec, const Architecture& architecture, const std::string& source) {
  const BlockSpec& blocks = spec.blocks;
  const auto refuse = [&](std::string_view field, std::string_view why) {
    return fail(Code::kUnsupported,
                fmt::format("{}: field '{}' cannot be kept: {}; the file would be another model", source, field, why));
  };
  const std::string& name = spec.architecture;
  constexpr std::string_view kWithoutWindows[] = {"qwen2", "qwen3", "qwen3_moe", "smollm3", "ministral3"};
  if (!blocks.windows.empty() && std::ranges::find(kWithoutWindows, name) != std::end(kWithoutWindows)) {
    return refuse(name == "ministral3" ? "sliding_window" : "use_sliding_window",
                  fmt::format("GGUF files of {} have no windows", name));
  }
  const bool reorders = std::ranges::any_of(architecture.roles, [](const TensorRole& role) {
    return role.order == GgufOrder::kRotaryRowsQ || role.order == GgufOrder::kRotaryRowsK;
  });
  if (reorders && spec.rotary != spec.head_dim)
    return refuse("partial_rotary_factor", fmt::format("in GGUF files of {} whole heads are turned", name));
  for (int32_t layer = 0; layer < spec.layers && name == "smollm3"; ++layer) {
    if ((blocks.position(layer) == Positions::kNone) != ((layer + 1) % 4 == 0))
      return refuse("no_rope_layers", "in GGUF files of smollm3 each fourth layer, and no other, has no positions");
  }
  if (name == "gemma2" && blocks.score_cap == 0)
    return refuse("attn_logit_softcapping", "GGUF files of gemma2 have a cap, and llama.cpp divides by it");
  if (name == "gemma2" && blocks.logit_cap == 0)
    return refuse("final_logit_softcapping", "GGUF files of gemma2 have a cap, and llama.cpp divides by it");
  if (blocks.chunked) {
    if (const Unsayable found = unsayable_chunks(spec); !found.field.empty()) return refuse(found.field, found.why);
  }
  if (blocks.near_scaling.kind != RopeKind::kPlain)
    return refuse("rope_parameters.sliding_attention", "GGUF has no key for scaled positions of layers with a window");
  if (name == "gpt2" && spec.gelu == Gelu::kErf)
    return refuse("activation_function", "in GGUF files of gpt2 gelu is computed by tanh");
  return {};
}

void put_spec(GgufWriter& writer, const Model& model, const std::string& prefix) {
  const ModelSpec& spec = model.spec;
  const auto put = [&](const char* key, int64_t value) { writer.put_u32(prefix + key, static_cast<uint32_t>(value)); };
  put("block_count", spec.layers);
  put("context_length", spec.context_max);
  put("embedding_length", spec.hidden);
  put("feed_forward_length", spec.intermediate);
  put("attention.head_count", spec.heads);
  put_kv_heads(writer, spec, prefix);
  put("attention.key_length", spec.head_dim);
  put("attention.value_length", spec.head_dim);
  writer.put_f32(
      prefix + (spec.blocks.layer_norms ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
      spec.rms_eps);
  if (!spec.blocks.learned_positions) {
    writer.put_f32(prefix + "rope.freq_base", spec.rope_theta);
    put("rope.dimension_count", spec.rotary);
    put_rope(writer, spec, prefix);
  }
  put_blocks(writer, spec, prefix);
  if (spec.blocks.chunked) put_chunks(writer, spec, prefix);
  if (spec.experts != 0) {
    put("expert_count", spec.experts);
    put("expert_used_count", spec.experts_used);
    put("expert_feed_forward_length", spec.expert_width);
    if (spec.shared_width != 0) put("expert_shared_feed_forward_length", spec.shared_width);
    if (spec.routing != Routing::kSigmoidOfInput)
      writer.put_bool(prefix + "expert_weights_norm", spec.routing == Routing::kSoftmaxOfChosen);
  }
  put("vocab_size", spec.vocab);
  if (spec.linear_value_heads == 0) return;

  put("ssm.conv_kernel", spec.conv_taps);
  put("ssm.state_size", spec.linear_key_dim);
  put("ssm.group_count", spec.linear_key_heads);
  put("ssm.time_step_rank", spec.linear_value_heads);
  put("ssm.inner_size", int64_t{spec.linear_value_heads} * spec.linear_value_dim);
  // Text uses one position for all three streams, so the sections only have to add up.
  std::vector<int32_t> sections = {spec.rotary / 2 - 2 * (spec.rotary / 6), spec.rotary / 6, spec.rotary / 6, 0};
  const Json& config = model.container->config;
  const Json& text = config.contains("text_config") ? config["text_config"] : config;
  if (text.contains("rope_parameters") && text["rope_parameters"].contains("mrope_section")) {
    const Json& given = text["rope_parameters"]["mrope_section"];
    for (size_t i = 0; i < 3 && given.is_array() && given.size() == 3; ++i) {
      if (given[i].is_number_integer()) sections[i] = given[i].get<int32_t>();
    }
  }
  if (spec.architecture != "qwen3_next") writer.put_i32s(prefix + "rope.dimension_sections", sections);
  for (int32_t interval = 1; interval <= spec.layers + 1; ++interval) {
    bool fits = true;
    for (int32_t i = 0; i < spec.layers; ++i) {
      fits &= (spec.layer_kinds[i] == LayerKind::kFullAttention) == ((i + 1) % interval == 0);
    }
    if (!fits) continue;
    put("full_attention_interval", interval);
    return;
  }
  std::vector<bool> recurrent;
  for (const LayerKind kind : spec.layer_kinds) recurrent.push_back(kind == LayerKind::kLinearAttention);
  writer.put_bools(prefix + "attention.recurrent_layers", recurrent);
}

// The ends of an answer, the tokenizer's own first: templates name it `eos_token`.
std::vector<int32_t> stops_of(const Model& model, int32_t eos_id) {
  std::vector<int32_t> stops;
  if (eos_id >= 0) stops.push_back(eos_id);
  for (const int32_t id : model.spec.stop_ids) {
    if (std::find(stops.begin(), stops.end(), id) == stops.end()) stops.push_back(id);
  }
  return stops;
}

constexpr size_t kStopKeys = 3;  // eos, eot, eom

// Three ends have keys. All of them are a list that this project and some others read, llama.cpp not; it ends at texts
// it knows as well.
void put_stops(GgufWriter& writer, const std::vector<int32_t>& stops, std::vector<std::string>& lost) {
  if (stops.size() <= kStopKeys) return;
  writer.put_i32s(kStopIdsKey, stops);
  lost.push_back(
      fmt::format("{} stop tokens: llama.cpp knows the first three ({}, {}, {}) and those whose texts it "
                  "recognises",
                  stops.size(), stops[0], stops[1], stops[2]));
}

// The folder's tokenizer and template, or the ends alone where it has none.
Status put_text(GgufWriter& writer, const Model& model, const std::string& source, std::vector<std::string>& lost) {
  BATON_TRY(const TextFiles text, read_text_files(*model.container));
  if (text.tokenizer_json.empty() && text.sentencepiece.empty()) {
    lost.push_back("no tokenizer.json: the file has no tokenizer and takes token ids only");
    const std::vector<int32_t> stops = stops_of(model, -1);
    constexpr const char* kKeys[kStopKeys] = {"eos", "eot", "eom"};
    for (size_t i = 0; i < std::min(stops.size(), kStopKeys); ++i)
      writer.put_u32(fmt::format("tokenizer.ggml.{}_token_id", kKeys[i]), static_cast<uint32_t>(stops[i]));
    put_stops(writer, stops, lost);
    return {};
  }
  auto spec = tokenizer_spec_of(text);
  if (!spec) return fail(std::move(spec).error().in(source));
  const std::vector<int32_t> stops = stops_of(model, spec->eos_id);
  const auto known = std::span(stops).first(std::min(stops.size(), kStopKeys));
  // What no run would take is not written either.
  auto made = gguf_tokenizer_of(*spec, static_cast<size_t>(model.spec.vocab), known);
  if (!made) return fail(std::move(made).error().in(source));
  put_tokenizer(*made, writer);
  lost.insert(lost.end(), made->lost.begin(), made->lost.end());
  put_stops(writer, stops, lost);
  if (!text.chat_template.empty()) writer.put_string("tokenizer.chat_template", text.chat_template);
  return {};
}

// The file again, by its header and its vectors. Where it is another model, it goes.
Status check_written(const Model& model, const std::filesystem::path& out) {
  if (written_in_place(out)) return {};  // a pipe, which cannot be read again
  const auto written = load_model(out);
  Status same = written ? check_converted(model, **written) : Status(tl::unexpected(written.error()));
  if (same) return {};
  std::error_code ignored;
  std::filesystem::remove(out, ignored);
  return fail(std::move(same).error().in(out.string()));
}

}  // namespace

Result<ConvertReport> convert_to_gguf(const std::filesystem::path& source, const std::filesystem::path& out,
                                      const ConvertOptions& options) {
  if (format_of(options.matrix_type).encode == nullptr) {
    return fail(Code::kUnsupported, fmt::format("type {} cannot be written", to_string(options.matrix_type)));
  }
  BATON_TRY(const auto model, load_model(source, 0, ModelUse::kAny));
  if (model->program.whole_sequence) {
    return fail(Code::kUnsupported,
                fmt::format("{}: architecture {} is an encoder, and convert writes none yet; `baton "
                            "embed` and `baton serve --embed` take the folder as it is",
                            source.string(), model->spec.architecture));
  }
  if (model->container->kind != ContainerKind::kSafetensors) {
    return fail(Code::kUnsupported,
                fmt::format("{}: is already GGUF; convert takes a Hugging Face folder", source.string()));
  }
  const Architecture& architecture = *architecture_of(*model->container);
  BATON_OK(check_sayable(model->spec, architecture, (source / "config.json").string()));
  GgufWriter writer;
  writer.put_string("general.architecture", architecture.gguf_name);
  writer.put_string("general.name", model->spec.name);
  writer.put_u32("general.file_type", file_type(options.matrix_type));
  writer.put_u32("general.quantization_version", 2);
  put_spec(writer, *model, std::string(architecture.gguf_name) + ".");

  ConvertReport report;
  report.notes = model->notes;
  BATON_OK(put_text(writer, *model, source.string(), report.lost));

  add_rope_tensors(writer, model->spec, report.lost);
  if (std::string lost = lost_chunks(model->spec); !lost.empty()) report.lost.push_back(std::move(lost));
  BATON_OK(add_weights(writer, *model, options.matrix_type, report));
  BATON_TRY(report.bytes, writer.write(out, options.on_tensor));
  BATON_OK(check_written(*model, out));
  return report;
}

}  // namespace baton

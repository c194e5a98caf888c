// Reads adapters of PEFT and of llama.cpp.
#include "baton/model/adapter.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cmath>
#include <locale>
#include <sstream>

#include "baton/model/config_reader.h"
#include "baton/model/container_text.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr size_t kAdapterConfigBytesMax = 4 << 20;
constexpr int32_t kRankMax = 1 << 16;

std::string layer_name(std::string_view pattern, int32_t layer) {
  std::string name(pattern);
  if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, std::to_string(layer));
  return name;
}

// A module's name as roles have it: without PEFT's prefix, and without that of the model's own trunk, which differs
// between a model, the model that wraps it and the versions of the library. What stands in another part of the model
// (a vision tower) keeps its name, and no role has it.
std::string_view tail_of(std::string_view module) {
  constexpr std::string_view kPeft = "base_model.model.";
  if (module.starts_with(kPeft)) module.remove_prefix(kPeft.size());
  for (const std::string_view prefix : {"model.language_model.", "language_model.model.", "model.", "language_model.",
                                        "bert.", "roberta.", "distilbert.", "nomic_bert.", "gte.", "new."}) {
    if (module.starts_with(prefix)) return module.substr(prefix.size());
  }
  // Roles of DistilBERT have it themselves.
  constexpr std::string_view kTrunk = "transformer.";
  if (module.starts_with(kTrunk) && !module.starts_with("transformer.layer.")) module.remove_prefix(kTrunk.size());
  return module;
}

// Fields of adapter_config.json that say how it was trained, what for, or what the tensors' names say anyway.
constexpr std::string_view kHarmlessFields[] = {
    "task_type",           "auto_mapping",   "peft_version",        "base_model_name_or_path", "base_model_class",
    "parent_library",      "revision",       "inference_mode",      "target_modules",          "exclude_modules",
    "layers_to_transform", "layers_pattern", "lora_dropout",        "megatron_config",         "megatron_core",
    "qalora_group_size",   "eva_config",     "ensure_weight_tying", "merge_weights",           "unsloth_fixed",
    "fan_in_fan_out",      "unsloth_version"};
// Keys below "adapter." likewise.
constexpr std::string_view kHarmlessKeys[] = {"lora.task_name", "lora.prompt_prefix"};

// Far above any that was trained with; products with weights stay finite.
constexpr double kAlphaMax = 1e6;
constexpr float kScaleMax = 1e6f;

// Ways to begin that change the model's own weights too: then the adapter is right beside those only.
Status check_begin(const ConfigReader& config, const std::string& file) {
  const Json* value = config.value("init_lora_weights");
  if (value == nullptr || value->is_boolean()) return {};
  for (const char* plain : {"gaussian", "orthogonal", "eva"}) {
    if (*value == plain) return {};
  }
  return fail(Code::kUnsupported,
              fmt::format("{}: init_lora_weights is {}, which changes the weights that the adapter stands beside: save "
                          "it again with path_initial_model_for_weight_conversion, or merge it with peft",
                          file, shown(value->dump(-1, ' ', true, Json::error_handler_t::replace))));
}

// Fields of adapter_config.json that change what is computed, and the values with which they do not. `fan_in_fan_out`
// tells how the base's matrix lies, as GPT-2's: A and B are the same with it.
Status check_peft(const ConfigReader& config, const std::string& file) {
  BATON_TRY(const std::string type, config.text("peft_type", "LORA"));
  if (type != "LORA") return fail(Code::kUnsupported, fmt::format("{}: peft_type is '{}'; LORA is read", file, type));
  for (const char* field : {"use_dora", "lora_bias", "use_qalora"}) {
    BATON_TRY(const bool on, config.boolean(field, false));
    if (on)
      return fail(Code::kUnsupported, fmt::format("{}: {} is true, which is not supported: merge the adapter "
                                                  "into its model with peft",
                                                  file, field));
  }
  BATON_TRY(const std::string bias, config.text("bias", "none"));
  if (bias != "none") {
    return fail(Code::kUnsupported, fmt::format("{}: bias is '{}'; adapters without biases are read", file, bias));
  }
  for (const char* field : {"rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication",
                            "alora_invocation_tokens", "target_parameters", "trainable_token_indices"}) {
    const Json* value = config.value(field);
    if (value == nullptr || value->empty()) continue;
    return fail(Code::kUnsupported,
                fmt::format("{}: {} is not empty, which is not supported: merge the adapter into its "
                            "model with peft",
                            file, field));
  }
  return check_begin(config, file);
}

// Whatever the locale. Not from_chars: macOS's library has none for floats.
bool read_scale(std::string_view text, float* scale) {
  if (text.empty() || text.front() == '+' || text.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
    return false;
  std::istringstream stream{std::string(text)};
  stream.imbue(std::locale::classic());
  return stream >> *scale && stream.peek() == std::istringstream::traits_type::eof();
}

}  // namespace

Result<AdapterChoice> parse_adapter(std::string_view text) {
  AdapterChoice choice{std::string(text)};
  if (const size_t at = text.rfind('='); at != std::string_view::npos) {
    const std::string_view number = text.substr(at + 1);
    if (!read_scale(number, &choice.scale) || !(std::abs(choice.scale) <= kScaleMax)) {
      return fail(Code::kInvalidInput,
                  fmt::format("'{}': behind '=' stands the adapter's scale, a number from {} to {}", shown(text),
                              -kScaleMax, kScaleMax));
    }
    choice.path = std::string(text.substr(0, at));
  }
  if (choice.path.empty()) return fail(Code::kInvalidInput, fmt::format("'{}': no path of an adapter", shown(text)));
  return choice;
}

Result<Adapter> Adapter::open(const AdapterChoice& choice) {
  Adapter adapter;
  adapter.file_ = choice.path.string();
  adapter.is_gguf_ = choice.path.extension() == ".gguf";
  BATON_OK(adapter.is_gguf_ ? adapter.read_gguf(choice) : adapter.read_peft(choice));
  if (adapter.pairs_.empty()) {
    return fail(Code::kInvalidInput, fmt::format("{}: no LoRA matrices in it", adapter.file_));
  }
  for (const Pair& pair : adapter.pairs_) {
    for (const std::vector<float>* values : {&pair.a, &pair.b}) {
      adapter.digest_ = XXH3_64bits_withSeed(values->data(), values->size() * sizeof(float), adapter.digest_);
    }
  }
  return adapter;
}

Status Adapter::read_peft(const AdapterChoice& choice) {
  const fs::path folder = choice.path, config_file = folder / "adapter_config.json";
  std::error_code error;
  if (!fs::exists(folder, error) && !error)
    return fail(Code::kNotFound, fmt::format("{}: No such file or directory (of --lora)", folder.string()));
  BATON_TRY(const bool is_adapter, is_there(config_file));
  if (!is_adapter) {
    return fail(
        Code::kNotFound,
        fmt::format("{}: no adapter_config.json in it: a PEFT folder or a GGUF adapter is needed", folder.string()));
  }
  BATON_TRY(const Json json, read_json_object(config_file, kAdapterConfigBytesMax));
  const ConfigReader config(json, config_file.string());
  BATON_OK(check_peft(config, config_file.string()));
  BATON_TRY(const int32_t rank, config.integer("r", 1, kRankMax, 8));
  BATON_TRY(const float alpha, config.real("lora_alpha", -kAlphaMax, kAlphaMax, 8.0f));
  BATON_TRY(const bool by_root, config.boolean("use_rslora", false));
  BATON_OK(config.refuse_unread(kHarmlessFields));
  const auto divisor = by_root ? std::sqrt(static_cast<float>(rank)) : static_cast<float>(rank);
  const fs::path weights = folder / "adapter_model.safetensors";
  BATON_TRY(const auto file, MappedFile::open(weights));
  Container container;
  container.path = weights;
  BATON_OK(parse_safetensors(file.bytes(), weights.string(), container));
  return add_pairs(container, choice.scale * alpha / divisor, ".lora_A.weight", ".lora_B.weight", rank);
}

Status Adapter::read_gguf(const AdapterChoice& choice) {
  BATON_TRY(const Container container, open_container(choice.path));
  BATON_TRY(const auto type, container.gguf.text("general.type"));
  const GgufReader keys(container, "adapter");
  BATON_TRY(const std::string kind, keys.text("type", ""));
  if (type.value_or("") != "adapter" || kind != "lora") {
    return fail(Code::kInvalidInput,
                fmt::format("{}: key 'general.type' is '{}' and 'adapter.type' '{}': not a LoRA adapter", file_,
                            shown(type.value_or("")), shown(kind)));
  }
  BATON_TRY(const auto architecture, container.gguf.text("general.architecture"));
  architecture_ = architecture.value_or("");
  BATON_TRY(const float own, keys.real("lora.alpha", -kAlphaMax, kAlphaMax, 0.0f));
  BATON_OK(keys.refuse_unread(kHarmlessKeys));
  // The rank divides where alpha is not 0: in add_pairs, by the tensors.
  return add_pairs(container, own != 0 ? choice.scale * own : choice.scale, ".lora_a", ".lora_b", own != 0 ? 0 : -1);
}

// `rank`: what the pairs must have; 0: any, and it divides the scale; -1: any.
Status Adapter::add_pairs(const Container& container, float scale, std::string_view a_end, std::string_view b_end,
                          int64_t rank) {
  const auto refuse = [&](std::string_view tensor, std::string_view why) {
    return fail(Code::kInvalidInput, fmt::format("{}: tensor '{}' {}", file_, shown(tensor), why));
  };
  if (!container.unreadable.empty()) return refuse(container.unreadable.front(), "cannot be read");
  for (const TensorView& a : container.tensors) {
    if (a.name.ends_with(b_end)) {
      const std::string other = std::string(a.name.substr(0, a.name.size() - b_end.size())).append(a_end);
      if (container.find(other) == nullptr) return refuse(other, fmt::format("is missing beside '{}'", shown(a.name)));
      continue;
    }
    if (!a.name.ends_with(a_end)) {
      return fail(
          Code::kUnsupported,
          fmt::format("{}: tensor '{}' is no part of a LoRA matrix, and nothing else is read", file_, shown(a.name)));
    }
    const std::string module(a.name.substr(0, a.name.size() - a_end.size()));
    const TensorView* b = container.find(module + std::string(b_end));
    if (b == nullptr) return refuse(module + std::string(b_end), "is missing");
    const bool whole = a.shape.size() == 2 && b->shape.size() == 2 && a.shape[0] == b->shape[1];
    if (!whole || a.shape[0] > kRankMax || (rank > 0 && a.shape[0] != static_cast<uint64_t>(rank))) {
      return refuse(a.name, fmt::format("and '{}' are no pair of rank {}", shown(b->name), std::max<int64_t>(rank, 0)));
    }
    Pair pair{static_cast<int64_t>(a.shape[0]),
              static_cast<int64_t>(a.shape[1]),
              static_cast<int64_t>(b->shape[0]),
              {},
              {},
              std::string(a.name)};
    const float factor = pair.scale = rank == 0 ? scale / static_cast<float>(pair.rank) : scale;
    for (const auto& [from, to] : {std::pair(&a, &pair.a), std::pair(b, &pair.b)}) {
      const Format& format = format_of(from->dtype);
      if (from->elements() % format.block_elements != 0) return refuse(from->name, "is no whole number of blocks");
      to->resize(from->elements());
      format.decode(from->data.data(), to->data(), to->size());
      for (const float value : *to) {
        if (!std::isfinite(value)) return refuse(from->name, "holds values that are no finite numbers");
      }
    }
    for (float& value : pair.b) {
      value *= factor;
      if (!std::isfinite(value))
        return refuse(b->name, fmt::format("times the adapter's scale {} is not finite", factor));
    }
    const std::string key(is_gguf_ ? std::string_view(module) : tail_of(module));
    if (!index_.emplace(key, pairs_.size()).second) return refuse(a.name, "occurs twice");
    pairs_.push_back(std::move(pair));
  }
  return {};
}

Status Adapter::check_architecture(std::string_view gguf_name) const {
  if (!is_gguf_ || architecture_ == gguf_name) return {};
  return fail(Code::kInvalidInput,
              fmt::format("{}: key 'general.architecture' is '{}', the model's is '{}': an adapter of another model",
                          file_, shown(architecture_), shown(gguf_name)));
}

Result<const Adapter::Pair*> Adapter::find(const TensorRole& role, int32_t layer, bool model_is_gguf) const {
  std::string name = layer_name(is_gguf_ ? role.gguf : role.hugging_face, layer);
  constexpr std::string_view kWeightEnd = ".weight";
  if (!is_gguf_ && name.ends_with(kWeightEnd))
    name = tail_of(std::string_view(name).substr(0, name.size() - kWeightEnd.size()));
  const auto found = index_.find(name);
  if (found == index_.end()) return nullptr;
  if (is_gguf_ != model_is_gguf && role.order != GgufOrder::kSame) {
    return fail(
        Code::kUnsupported,
        fmt::format("{}: tensor '{}' is for {}, whose rows lie in another order than this model's: take the "
                    "adapter or the model in the other's form",
                    file_, shown(pairs_[found->second].name), is_gguf_ ? "GGUF files" : "Hugging Face folders"));
  }
  return &pairs_[found->second];
}

}  // namespace baton

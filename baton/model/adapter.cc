// Reads adapters of PEFT and of llama.cpp.
#include "baton/model/adapter.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>
#include <cmath>

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

// A module's name without what stands in front of its layer: prefixes differ between models and what wraps them.
std::string_view tail_of(std::string_view module) {
  for (const std::string_view begin : {"layers.", "lm_head", "embed_tokens"}) {
    if (const size_t at = module.rfind(begin); at != std::string_view::npos) return module.substr(at);
  }
  return module;
}

// Fields of adapter_config.json that change what is computed, and the values with which they do not.
Status check_peft(const ConfigReader& config, const std::string& file) {
  BATON_TRY(const std::string type, config.text("peft_type", "LORA"));
  if (type != "LORA") return fail(Code::kUnsupported, fmt::format("{}: peft_type is '{}'; LORA is read", file, type));
  for (const char* field : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"}) {
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
  for (const char* field :
       {"rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication", "alora_invocation_tokens"}) {
    const Json* value = config.value(field);
    if (value == nullptr || value->empty()) continue;
    return fail(Code::kUnsupported,
                fmt::format("{}: {} is not empty, which is not supported: merge the adapter into its "
                            "model with peft",
                            file, field));
  }
  return {};
}

}  // namespace

Result<AdapterChoice> parse_adapter(std::string_view text) {
  AdapterChoice choice{std::string(text)};
  if (const size_t at = text.rfind('='); at != std::string_view::npos) {
    const std::string_view number = text.substr(at + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), choice.scale);
    if (error != std::errc{} || end != number.data() + number.size() || !std::isfinite(choice.scale)) {
      return fail(Code::kInvalidInput,
                  fmt::format("'{}': behind '=' stands the adapter's scale, a number", shown(text)));
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
  BATON_TRY(const float alpha, config.real("lora_alpha", -1e9, 1e9, 8.0f));
  BATON_TRY(const bool by_root, config.boolean("use_rslora", false));
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
  BATON_TRY(const auto kind, container.gguf.text("adapter.type"));
  if (type.value_or("") != "adapter" || kind.value_or("") != "lora") {
    return fail(Code::kInvalidInput,
                fmt::format("{}: key 'general.type' is '{}' and 'adapter.type' '{}': not a LoRA adapter", file_,
                            shown(type.value_or("")), shown(kind.value_or(""))));
  }
  BATON_TRY(const auto alpha, container.gguf.real("adapter.lora.alpha"));
  // The rank divides where alpha is not 0: in add_pairs, by the tensors.
  const auto own = static_cast<float>(alpha.value_or(0));
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
    if (a.name.ends_with(b_end)) continue;
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
    const float factor = rank == 0 ? scale / static_cast<float>(pair.rank) : scale;
    for (const auto& [from, to] : {std::pair(&a, &pair.a), std::pair(b, &pair.b)}) {
      const Format& format = format_of(from->dtype);
      if (from->elements() % format.block_elements != 0) return refuse(from->name, "is no whole number of blocks");
      to->resize(from->elements());
      format.decode(from->data.data(), to->data(), to->size());
      for (const float value : *to) {
        if (!std::isfinite(value)) return refuse(from->name, "holds values that are no finite numbers");
      }
    }
    for (float& value : pair.b) value *= factor;
    const std::string key(is_gguf_ ? std::string_view(module) : tail_of(module));
    if (!index_.emplace(key, pairs_.size()).second) return refuse(a.name, "occurs twice");
    pairs_.push_back(std::move(pair));
  }
  return {};
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

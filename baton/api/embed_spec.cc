// Files of sentence-transformers, and the choice of a unit.
#include "baton/api/embed_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "baton/model/config_reader.h"
#include "baton/model/container.h"
#include "baton/model/container_text.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSpecBytesMax = size_t{1} << 20;
constexpr size_t kTokenizerConfigBytesMax = size_t{16} << 20;
constexpr int kSpecDepthMax = 16;
constexpr size_t kPromptsMax = 256;

fs::path model_folder(const Container& container) {
  return fs::is_directory(container.path) ? container.path : container.path.parent_path();
}

// null when the file is not there.
Result<Json> read_if_there(const fs::path& path) {
  BATON_TRY(const bool there, is_there(path));
  if (!there) return Json();
  return read_json_object(path, kSpecBytesMax);
}

struct Module {
  std::string type;  // behind the last dot: "Transformer", "Pooling", "Normalize"
  fs::path path;
};

// modules.json is an array, so that read_json_object does not read it. Nothing when there is no such file.
Result<std::optional<std::vector<Module>>> read_modules(const fs::path& folder) {
  const fs::path path = folder / "modules.json";
  std::vector<Module> modules;
  BATON_TRY(const bool there, is_there(path));
  if (!there) return std::optional<std::vector<Module>>();
  BATON_TRY(const std::string text, read_file(path, kSpecBytesMax));
  BATON_TRY(const Json list, parse_json(text, path.string(), kSpecDepthMax));
  if (!list.is_array()) return fail(Code::kInvalidInput, fmt::format("{}: must be a list of modules", path.string()));
  for (const Json& item : list) {
    const ConfigReader reader(item, path.string());
    BATON_TRY(const std::string type, reader.text("type", ""));
    BATON_TRY(const std::string sub, reader.text("path", ""));
    if (fs::path(sub).is_absolute() || sub.find("..") != std::string::npos) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: path '{}' leads out of the model's folder", path.string(), shown(sub)));
    }
    modules.push_back({type.substr(type.rfind('.') + 1), sub});
  }
  return std::optional(std::move(modules));
}

// Steps run in the order of the file, and only this one is computed here.
Status check_order(const std::vector<Module>& modules, const fs::path& path) {
  constexpr std::string_view kInOrder[] = {"Transformer", "Pooling", "Normalize"};
  std::string types;
  for (const Module& module : modules) {
    if (std::find(std::begin(kInOrder), std::end(kInOrder), module.type) == std::end(kInOrder)) {
      return fail(Code::kUnsupported, fmt::format("{}: module '{}' is not supported; there are: Transformer, Pooling, "
                                                  "Normalize",
                                                  path.string(), shown(module.type)));
    }
    types += (types.empty() ? "" : ", ") + module.type;
  }
  bool in_order = modules.size() >= 2;
  for (size_t i = 0; i < modules.size(); ++i)
    in_order = in_order && modules[i].type == kInOrder[std::min<size_t>(i, 2)];
  if (in_order) return {};
  return fail(
      Code::kUnsupported,
      fmt::format("{}: the modules are '{}'; they must be Transformer, Pooling and, where vectors have length 1, "
                  "Normalize, in this order",
                  path.string(), shown(types)));
}

// max_seq_length, else what the tokenizer says: newer files have only that.
Status read_limits(const fs::path& folder, EmbedSpec* spec) {
  const fs::path path = folder / "sentence_bert_config.json";
  BATON_TRY(const Json json, read_if_there(path));
  if (!json.is_null()) {
    const ConfigReader reader(json, path.string());
    BATON_TRY(spec->lower_case, reader.boolean("do_lower_case", false));
    BATON_TRY(const int32_t most, reader.integer("max_seq_length", 1, 1 << 30, 0));
    if (most > 0) {
      spec->tokens_max = std::min<uint64_t>(spec->tokens_max, static_cast<uint64_t>(most));
      return {};
    }
  }
  const fs::path tokenizer_path = folder / "tokenizer_config.json";
  BATON_TRY(const bool there, is_there(tokenizer_path));
  if (!there) return {};
  BATON_TRY(const Json tokenizer, read_json_object(tokenizer_path, kTokenizerConfigBytesMax));
  // No limit is written as 1e30.
  BATON_TRY(const float most,
            ConfigReader(tokenizer, tokenizer_path.string()).real("model_max_length", 1, 1e31, 1e30F));
  if (most < static_cast<float>(spec->tokens_max)) spec->tokens_max = static_cast<uint64_t>(most);
  return {};
}

tl::unexpected<Error> no_such_pooling(const fs::path& path) {
  return fail(Code::kUnsupported, fmt::format("{}: one of pooling_mode_mean_tokens, pooling_mode_cls_token and "
                                              "pooling_mode_lasttoken must be true, and no other; or pooling_mode one "
                                              "of mean, cls and lasttoken",
                                              path.string()));
}

Status read_pooling(const fs::path& path, EmbedSpec* spec) {
  BATON_TRY(const Json json, read_if_there(path));
  if (json.is_null())
    return fail(Code::kNotFound, fmt::format("{}: modules.json names it, but it is not there", path.string()));
  const ConfigReader reader(json, path.string());
  BATON_TRY(const bool with_prompt, reader.boolean("include_prompt", true));
  if (!with_prompt) {
    return fail(Code::kUnsupported,
                fmt::format("{}: include_prompt is false; vectors here are made of all tokens", path.string()));
  }
  // Since version 6 of the library one word; a list where there are several.
  if (const Json* mode = reader.value("pooling_mode")) {
    constexpr std::pair<std::string_view, Pooling> kWords[] = {
        {"mean", Pooling::kMean}, {"cls", Pooling::kFirst}, {"lasttoken", Pooling::kLast}};
    for (const auto& [word, pooling] : kWords) {
      if (*mode != word) continue;
      spec->pooling = pooling;
      return {};
    }
    return no_such_pooling(path);
  }
  constexpr std::pair<const char*, Pooling> kModes[] = {{"pooling_mode_mean_tokens", Pooling::kMean},
                                                        {"pooling_mode_cls_token", Pooling::kFirst},
                                                        {"pooling_mode_lasttoken", Pooling::kLast}};
  int found = 0;
  for (const auto& [field, pooling] : kModes) {
    BATON_TRY(const bool on, reader.boolean(field, false));
    if (!on) continue;
    spec->pooling = pooling;
    ++found;
  }
  for (const auto& [field, value] : json.items()) {
    const bool other =
        field.starts_with("pooling_mode_") && value == true &&
        std::none_of(std::begin(kModes), std::end(kModes),
                     [&, name = std::string_view(field)](const auto& mode) { return name == mode.first; });
    if (other) found = -1;
    if (other) break;
  }
  if (found == 1) return {};
  return no_such_pooling(path);
}

// GGUF's pooling_type.
Status read_gguf_pooling(const Container& container, EmbedSpec* spec) {
  BATON_TRY(const auto architecture, container.gguf.text("general.architecture"));
  const std::string key = fmt::format("{}.pooling_type", architecture.value_or(""));
  BATON_TRY(const auto type, container.gguf.unsigned_integer(key));
  if (!type || *type == 0) return {};  // 0: none is said
  constexpr Pooling kTypes[] = {Pooling::kMean, Pooling::kFirst, Pooling::kLast};
  if (*type > std::size(kTypes)) {
    return fail(Code::kUnsupported, fmt::format("{}: key '{}' is {}; there are: 1 (mean), 2 (first), 3 (last); 4 is of "
                                                "models that rank and give no vectors",
                                                container.path.string(), key, *type));
  }
  spec->pooling = kTypes[*type - 1];
  return {};
}

// Of prompts and dimensions.
Status read_defaults(const fs::path& path, EmbedSpec* spec) {
  BATON_TRY(const Json json, read_if_there(path));
  if (json.is_null()) return {};
  const ConfigReader reader(json, path.string());
  BATON_TRY(const int32_t dimensions, reader.integer("truncate_dim", 1, 1 << 30, 0));
  spec->dimensions = static_cast<uint32_t>(dimensions);
  if (const Json* prompts = reader.value("prompts")) {
    if (!prompts->is_object() || prompts->size() > kPromptsMax) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: prompts must be an object of at most {} texts", path.string(), kPromptsMax));
    }
    for (const auto& [name, text] : prompts->items()) {
      if (!text.is_string()) {
        return fail(Code::kInvalidInput, fmt::format("{}: prompt '{}' must be a string", path.string(), shown(name)));
      }
      spec->prompts.emplace(name, text.get<std::string>());
    }
  }
  BATON_TRY(spec->default_prompt, reader.text("default_prompt_name", ""));
  if (spec->default_prompt.empty() || spec->prompts.contains(spec->default_prompt)) return {};
  return fail(Code::kInvalidInput, fmt::format("{}: default_prompt_name '{}' is none of the prompts", path.string(),
                                               shown(spec->default_prompt)));
}

}  // namespace

std::string_view to_string(Pooling pooling) {
  switch (pooling) {
    case Pooling::kMean:
      return "mean";
    case Pooling::kFirst:
      return "first";
    case Pooling::kLast:
      return "last";
  }
  return "unknown";
}

Result<EmbedSpec> read_embed_spec(const Model& model) {
  EmbedSpec spec;
  spec.pooling = model.program.whole_sequence ? Pooling::kMean : Pooling::kLast;
  spec.tokens_max = static_cast<uint64_t>(std::max(model.spec.context_max, 1));
  if (model.container == nullptr) return spec;
  if (model.container->kind == ContainerKind::kGguf) {
    BATON_OK(read_gguf_pooling(*model.container, &spec));
    return spec;
  }
  const fs::path folder = model_folder(*model.container);
  BATON_TRY(const auto modules, read_modules(folder));
  if (modules) {
    BATON_OK(check_order(*modules, folder / "modules.json"));
    BATON_OK(read_pooling(folder / (*modules)[1].path / "config.json", &spec));
    spec.normalized = modules->size() > 2;
  }
  BATON_OK(read_limits(folder, &spec));
  BATON_OK(read_defaults(folder / "config_sentence_transformers.json", &spec));
  return spec;
}

Result<EmbedPlace> choose_embed_unit(bool encoder, uint64_t weight_bytes, std::span<const EmbedUnit> units) {
  const auto find = [&](std::string_view name) {
    return static_cast<size_t>(
        std::find_if(units.begin(), units.end(), [&](const EmbedUnit& unit) { return unit.name == name; }) -
        units.begin());
  };
  const auto size = fmt::format("{:.1f} MB of weights", static_cast<double>(weight_bytes) / 1e6);
  const size_t ane = find("ane"), cpu = find("cpu");
  std::string why;  // not on ane
  if (!encoder) {
    why = "a decoder";
  } else if (weight_bytes >= kSmallEncoderBytes) {
    why = fmt::format("{}: ane takes encoders below {} MB", size, kSmallEncoderBytes / 1'000'000);
  } else if (ane == units.size()) {
    why = "no unit ane";
  } else if (units[ane].refusal.empty() && units[ane].emulated) {
    why = "ane is emulated here, slower and less exact; --unit ane takes it";
  } else if (units[ane].refusal.empty()) {
    return EmbedPlace{ane, fmt::format("ane: a small encoder, {}", size)};
  } else {
    why = fmt::format("not on ane: {}", units[ane].refusal);
  }
  if (cpu < units.size() && units[cpu].refusal.empty()) return EmbedPlace{cpu, fmt::format("cpu: {}", why)};
  std::string refusals;
  for (size_t i = 0; i < units.size(); ++i) {
    if (units[i].refusal.empty()) return EmbedPlace{i, fmt::format("{}: the first that can: {}", units[i].name, why)};
    refusals += fmt::format("{}{}: {}", refusals.empty() ? "" : "; ", units[i].name, units[i].refusal);
  }
  return fail(Code::kUnsupported,
              fmt::format("no unit can run the model: {}", refusals.empty() ? "none is given" : refusals));
}

}  // namespace baton

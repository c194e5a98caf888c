// Files of sentence-transformers, and the choice of a unit.
#include "baton/api/embed_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/model/config_reader.h"
#include "baton/model/container.h"
#include "baton/model/container_text.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSpecBytesMax = size_t{1} << 20;
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

// modules.json is an array, so that read_json_object does not read it.
Result<std::vector<Module>> read_modules(const fs::path& folder) {
  const fs::path path = folder / "modules.json";
  std::vector<Module> modules;
  BATON_TRY(const bool there, is_there(path));
  if (!there) return modules;
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
  return modules;
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

Status read_prompts(const fs::path& path, EmbedSpec* spec) {
  BATON_TRY(const Json json, read_if_there(path));
  if (json.is_null()) return {};
  const ConfigReader reader(json, path.string());
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
  BATON_TRY(const std::vector<Module> modules, read_modules(folder));
  if (!modules.empty()) spec.normalized = false;
  for (const Module& module : modules) {
    if (module.type == "Pooling") {
      BATON_OK(read_pooling(folder / module.path / "config.json", &spec));
    } else if (module.type == "Normalize") {
      spec.normalized = true;
    } else if (module.type != "Transformer") {
      return fail(Code::kUnsupported, fmt::format("{}: module '{}' is not supported; there are: Transformer, Pooling, "
                                                  "Normalize",
                                                  (folder / "modules.json").string(), shown(module.type)));
    }
  }
  const fs::path limits = folder / "sentence_bert_config.json";
  BATON_TRY(const Json json, read_if_there(limits));
  if (!json.is_null()) {
    BATON_TRY(const int32_t most, ConfigReader(json, limits.string()).integer("max_seq_length", 1, 1 << 30, 1 << 30));
    spec.tokens_max = std::min<uint64_t>(spec.tokens_max, static_cast<uint64_t>(most));
  }
  BATON_OK(read_prompts(folder / "config_sentence_transformers.json", &spec));
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

// By names alone: what is in a file is known when it is opened.
#include "baton/hub/choose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

namespace baton::hub {
namespace {

// Without a type: what most people take, then what loses least for its size.
constexpr std::string_view kPreferred[] = {"Q4_K_M", "Q8_0",   "Q6_K",   "Q5_K_M", "UD-Q4_K_XL", "Q4_K_XL", "Q4_K_S",
                                           "MXFP4",  "Q4_0",   "IQ4_NL", "IQ4_XS", "Q5_K_S",     "Q4_1",    "Q5_0",
                                           "Q5_1",   "Q3_K_L", "Q3_K_M", "Q3_K_S", "BF16",       "F16",     "F32"};

// What a folder's model is read from beside its weights; small files.
constexpr std::string_view kFolderFiles[] = {"config.json",
                                             "generation_config.json",
                                             "tokenizer.json",
                                             "tokenizer_config.json",
                                             "tokenizer.model",
                                             "special_tokens_map.json",
                                             "added_tokens.json",
                                             "vocab.json",
                                             "vocab.txt",
                                             "merges.txt",
                                             "sentencepiece.bpe.model",
                                             "spiece.model",
                                             "chat_template.jinja",
                                             "chat_template.json",
                                             "model.safetensors.index.json",
                                             "quantize_config.json",
                                             "quantization_config.json",
                                             "adapter_config.json",
                                             "modules.json",
                                             "sentence_bert_config.json",
                                             "config_sentence_transformers.json",
                                             "1_Pooling/config.json"};

std::string_view base_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && lower_case(text.substr(text.size() - end.size())) == end;
}

bool is_pickle(std::string_view path) {
  constexpr std::string_view kEnds[] = {".bin", ".pt", ".pth", ".pkl", ".ckpt"};
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](std::string_view end) { return ends_with(path, end); });
}

bool is_model_gguf(std::string_view path) {
  const std::string name = lower_case(base_name(path));
  return name.ends_with(".gguf") && !name.starts_with("mmproj") && name.find("-mmproj") == std::string::npos &&
         name.find("imatrix") == std::string::npos;
}

struct Split {
  std::string stem;  // with its folder
  int part = 1, parts = 1;
};

// "a/m-00002-of-00003.gguf"
Split split_of(std::string_view path) {
  std::string_view stem = path.substr(0, path.size() - 5);
  constexpr std::string_view kPattern = "-#####-of-#####";
  Split made{std::string(stem), 1, 1};
  if (stem.size() <= kPattern.size()) return made;
  const std::string_view tail = stem.substr(stem.size() - kPattern.size());
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    if (kPattern[i] == '#' ? !digit : tail[i] != kPattern[i]) return made;
  }
  made.stem = stem.substr(0, stem.size() - kPattern.size());
  made.part = made.parts = 0;
  for (size_t i = 1; i < 6; ++i) made.part = made.part * 10 + (tail[i] - '0');
  for (size_t i = 10; i < 15; ++i) made.parts = made.parts * 10 + (tail[i] - '0');
  return made;
}

// "q4_k_m" of "qwen2.5-0.5b-q4_k_m", as it is written in general; the stem where it names none.
std::string type_of(std::string_view path_stem) {
  const std::string_view stem = base_name(path_stem);
  const size_t at = stem.find_last_of("-.");
  std::string type(at == std::string_view::npos ? stem : stem.substr(at + 1));
  for (char& c : type) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  constexpr std::string_view kBegins[] = {"Q", "IQ", "TQ", "F", "BF", "FP", "MXFP", "NVFP"};
  const auto begins = [&](std::string_view letters) {
    return type.size() > letters.size() && type.starts_with(letters) && type[letters.size()] >= '0' &&
           type[letters.size()] <= '9';
  };
  if (std::none_of(std::begin(kBegins), std::end(kBegins), begins)) return std::string(stem);
  if (type == "FP16" || type == "FP32") type.erase(1, 1);
  if (at != std::string_view::npos && at >= 3 && lower_case(stem.substr(at - 3, 3)) == "-ud") type = "UD-" + type;
  return type;
}

void add_gguf(std::span<const std::string> files, std::vector<Variant>& to) {
  std::map<std::string, std::map<int, std::string>> parts;
  std::map<std::string, int> counts;
  for (const std::string& file : files) {
    if (!is_model_gguf(file)) continue;
    const Split split = split_of(file);
    const std::string key = split.parts > 1 ? fmt::format("{}/of/{}", split.stem, split.parts) : split.stem;
    parts[key][split.part] = file;
    counts[key] = split.parts;
  }
  for (const auto& [key, of_part] : parts) {
    Variant made;
    made.type = type_of(split_of(of_part.begin()->second).stem);
    for (const auto& [part, file] : of_part) made.files.push_back(file);
    made.entry = made.files.front();
    const int count = counts[key];
    made.whole =
        static_cast<int>(of_part.size()) == count && of_part.begin()->first == 1 && of_part.rbegin()->first == count;
    to.push_back(std::move(made));
  }
}

void add_folder(std::span<const std::string> files, std::vector<Variant>& to) {
  std::vector<std::string> weights;
  for (const std::string& file : files) {
    if (file.find('/') == std::string::npos && file.ends_with(".safetensors")) weights.push_back(file);
  }
  // Mistral's folders hold the same weights twice.
  const auto is_main = [](const std::string& file) { return file.starts_with("model"); };
  if (std::any_of(weights.begin(), weights.end(), is_main)) {
    weights.erase(std::remove_if(weights.begin(), weights.end(), std::not_fn(is_main)), weights.end());
  }
  if (weights.empty()) return;
  std::sort(weights.begin(), weights.end());
  Variant made;
  made.type = kFolderType;
  for (const std::string_view name : kFolderFiles) {
    if (std::find(files.begin(), files.end(), name) != files.end()) made.files.emplace_back(name);
  }
  made.whole = !made.files.empty() && made.files.front() == "config.json";
  // "model-00001-of-00002.safetensors": all of them.
  for (const std::string& file : weights) {
    const Split split = split_of(file.substr(0, file.size() - std::string_view(".safetensors").size()) + ".gguf");
    const auto same = [&](const std::string& other) { return other.starts_with(split.stem); };
    if (split.parts > 1 && std::count_if(weights.begin(), weights.end(), same) < split.parts) made.whole = false;
  }
  made.files.insert(made.files.end(), weights.begin(), weights.end());
  to.push_back(std::move(made));
}

std::vector<std::string> types_of(const std::vector<Variant>& variants) {
  std::vector<std::string> types;
  for (const Variant& each : variants) types.push_back(each.type);
  return types;
}

// "UD-Q4_K_XL" is also asked for as "Q4_K_XL", and a file by its stem.
bool is_called(const Variant& variant, std::string_view type) {
  const std::string asked = lower_case(type), own = lower_case(variant.type);
  if (own == asked) return true;
  const std::string stem = variant.entry.empty() ? "" : lower_case(base_name(split_of(variant.entry).stem));
  if (stem == asked || stem + ".gguf" == asked) return true;
  return stem.size() > asked.size() && stem.ends_with(asked) &&
         std::string_view("-._").find(stem[stem.size() - asked.size() - 1]) != std::string_view::npos;
}

}  // namespace

std::vector<Variant> variants_of(std::span<const std::string> files) {
  std::vector<Variant> made;
  add_gguf(files, made);
  add_folder(files, made);
  return made;
}

Result<Variant> choose(const RepoName& name, std::span<const std::string> files) {
  std::vector<Variant> variants = variants_of(files);
  const auto holds = [&](std::string_view file) { return std::find(files.begin(), files.end(), file) != files.end(); };
  const auto no_model = [](const Variant& each) { return each.type == kFolderType && !each.whole; };
  if (holds("adapter_config.json") && !holds("config.json") &&
      std::all_of(variants.begin(), variants.end(), no_model)) {
    return fail(Code::kUnsupported,
                fmt::format("{} is a LoRA adapter, not a model: fetch the model that it is of, and give the adapter's "
                            "folder with --lora",
                            name.id()));
  }
  if (variants.empty()) {
    if (std::any_of(files.begin(), files.end(), is_pickle)) {
      return fail(
          Code::kUnsupported,
          fmt::format("{} holds its weights as pickle files (.bin, .pt), which can run code when opened, and are "
                      "not read: take a repository with safetensors or GGUF files",
                      name.id()));
    }
    return fail(Code::kNotFound, fmt::format("{} holds no model: neither GGUF files nor safetensors", name.id()));
  }
  const Variant* found = nullptr;
  if (!name.type.empty()) {
    for (const Variant& each : variants) {
      const bool exact = lower_case(each.type) == lower_case(name.type);
      if (is_called(each, name.type) && (found == nullptr || exact)) found = &each;
    }
    if (found == nullptr)
      return fail(Code::kNotFound, fmt::format("{} has no '{}'; there are: {}", name.id(), name.type,
                                               fmt::join(types_of(variants), ", ")));
  }
  for (const std::string_view type : kPreferred) {
    for (const Variant& each : variants) {
      if (found == nullptr && each.type == type) found = &each;
    }
  }
  if (found == nullptr) found = &variants.front();
  return *found;
}

}  // namespace baton::hub

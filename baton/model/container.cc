// Finds the files of a model: a GGUF file and its splits, a Hugging Face folder and its shards.
#include "baton/model/container.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/bytes.h"
#include "baton/base/terminal.h"
#include "baton/model/container_text.h"
#include "baton/model/shard_index.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr size_t kConfigBytesMax = 4 << 20;
constexpr int kSplitPartsMax = 1024;

bool is_pickle(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".pkl" ||
         extension == ".ckpt";
}

tl::unexpected<Error> pickle_refused(const fs::path& path) {
  return fail(
      Code::kUnsupported,
      fmt::format("{}: a pickle file, which can run code when opened, is not read: take the model's safetensors "
                  "or GGUF files",
                  path.string()));
}

// --- GGUF ---

// "<stem>-00002-of-00003.gguf"
struct SplitName {
  std::string stem;
  int part = 0, parts = 0;  // part counts from 1

  static std::optional<SplitName> of(const fs::path& path) {
    const std::string name = path.filename().string();
    constexpr std::string_view kPattern = "-#####-of-#####.gguf";
    if (name.size() <= kPattern.size()) return std::nullopt;
    const std::string_view tail = std::string_view(name).substr(name.size() - kPattern.size());
    for (size_t i = 0; i < kPattern.size(); ++i) {
      const bool digit = tail[i] >= '0' && tail[i] <= '9';
      if (kPattern[i] == '#' ? !digit : tail[i] != kPattern[i]) return std::nullopt;
    }
    SplitName split;
    split.stem = name.substr(0, name.size() - kPattern.size());
    split.part = number_at(tail, 1);
    split.parts = number_at(tail, 10);
    return split;
  }
  // Five digits.
  static int number_at(std::string_view text, size_t at) {
    int number = 0;
    for (const char digit : text.substr(at, 5)) number = 10 * number + (digit - '0');
    return number;
  }
  fs::path path_of(const fs::path& folder, int number) const {
    return folder / fmt::format("{}-{:05}-of-{:05}.gguf", stem, number, parts);
  }
};

// The split keys of one part agree with its place; `parts` is 1 for an ordinary file.
Status check_split_keys(const GgufMetadata& gguf, const fs::path& path, int part, int parts) {
  auto number = gguf.unsigned_integer("split.no");
  auto count = gguf.unsigned_integer("split.count");
  if (!number) return fail(std::move(number).error().in(path.string()));
  if (!count) return fail(std::move(count).error().in(path.string()));
  if (parts == 1) {
    if (count->value_or(1) > 1) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: is part {} of {}, but is not named NAME-00001-of-{:05}.gguf: give the "
                              "parts their names back",
                              path.string(), number->value_or(0) + 1, **count, **count));
    }
    return {};
  }
  if (!*number || !*count || **number != static_cast<uint64_t>(part - 1) || **count != static_cast<uint64_t>(parts)) {
    return fail(Code::kCorrupt, fmt::format("{}: by its keys it is part {} of {}, by its name part {} of {}",
                                            path.string(), number->has_value() ? fmt::format("{}", **number + 1) : "?",
                                            count->has_value() ? fmt::format("{}", **count) : "?", part, parts));
  }
  return {};
}

Status add_gguf_part(const fs::path& path, int part, int parts, Container& into) {
  BATON_TRY(auto file, MappedFile::open(path));
  Container piece;
  BATON_OK(parse_gguf(file.bytes(), path.string(), piece));
  BATON_OK(check_split_keys(piece.gguf, path, part, parts));
  if (part == 1) {
    into.gguf = std::move(piece.gguf);
  } else {
    for (const std::string_view key : {"general.architecture", "general.name", "split.tensors.count"}) {
      const GgufValue* here = piece.gguf.find(key);
      const GgufValue* first = into.gguf.find(key);
      if (here != nullptr && (first == nullptr || *here != *first)) {
        return fail(Code::kCorrupt,
                    fmt::format("{}: its key '{}' differs from part 1: a part of another model", path.string(), key));
      }
    }
  }
  for (TensorView& tensor : piece.tensors) {
    if (!into.index.emplace(tensor.name, into.tensors.size()).second) {
      return fail(Code::kCorrupt, fmt::format("{}: tensor '{}' is in an earlier part too: a part of another model",
                                              path.string(), tensor.name));
    }
    into.tensors.push_back(std::move(tensor));
  }
  std::move(piece.unreadable.begin(), piece.unreadable.end(), std::back_inserter(into.unreadable));
  into.files.push_back(std::move(file));
  return {};
}

Result<Container> open_gguf(const fs::path& path) {
  Container container;
  container.kind = ContainerKind::kGguf;
  const auto split = SplitName::of(path);
  if (!split || split->parts == 1) {
    container.path = path;
    BATON_OK(add_gguf_part(path, 1, 1, container));
    return container;
  }
  if (split->part < 1 || split->part > split->parts || split->parts > kSplitPartsMax) {
    return fail(Code::kInvalidInput, fmt::format("{}: part {} of {} (at most {} parts)", path.string(), split->part,
                                                 split->parts, kSplitPartsMax));
  }
  container.path = split->path_of(path.parent_path(), 1);
  for (int part = 1; part <= split->parts; ++part) {
    const fs::path name = split->path_of(path.parent_path(), part);
    if (auto status = add_gguf_part(name, part, split->parts, container); !status) {
      Error error = std::move(status).error();
      if (error.code == Code::kNotFound)
        error.message += fmt::format(" (part {} of {}; all parts must be in one folder)", part, split->parts);
      return fail(std::move(error));
    }
  }
  BATON_TRY(const auto total, container.gguf.unsigned_integer("split.tensors.count"));
  const size_t found = container.tensors.size() + container.unreadable.size();
  if (total && *total != found) {
    return fail(Code::kCorrupt, fmt::format("{}: the parts hold {} tensors, but key 'split.tensors.count' is {}",
                                            container.path.string(), found, *total));
  }
  return container;
}

// --- Hugging Face folder ---

Status add_shard(const fs::path& path, Container& into) {
  BATON_TRY(auto file, MappedFile::open(path));
  BATON_OK(parse_safetensors(file.bytes(), path.string(), into));
  into.files.push_back(std::move(file));
  return {};
}

Status add_indexed_shards(const fs::path& folder, const fs::path& index_path, Container& into) {
  BATON_TRY(const ShardIndex index, read_shard_index(index_path));
  std::vector<std::string_view> shards;
  for (const auto& [tensor, file] : index) shards.push_back(file);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  std::unordered_map<std::string_view, std::string_view> file_of_tensor;
  for (const std::string_view shard : shards) {
    const size_t before = into.owned_names.size();
    if (auto status = add_shard(folder / shard, into); !status) {
      Error error = std::move(status).error();
      if (error.code == Code::kNotFound)
        error.message += fmt::format(" (a shard that {} names: download it)", index_path.filename().string());
      return fail(std::move(error));
    }
    for (size_t i = before; i < into.owned_names.size(); ++i) file_of_tensor.emplace(into.owned_names[i], shard);
  }
  for (const auto& [tensor, file] : index) {
    const auto found = file_of_tensor.find(tensor);
    if (found == file_of_tensor.end() || found->second != file) {
      return fail(Code::kCorrupt, fmt::format("{}: tensor '{}' is not in '{}', where the index says it is",
                                              index_path.string(), shown(tensor), file));
    }
  }
  return {};
}

// The only safetensors file of a folder without an index.
Result<fs::path> single_shard(const fs::path& folder) {
  std::vector<fs::path> shards;
  fs::path pickle;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
    if (is_pickle(entry.path())) pickle = entry.path();
  }
  if (error) return fail(Code::kInvalidInput, fmt::format("{}: {}", folder.string(), error.message()));
  if (shards.size() == 1) return shards[0];
  for (const fs::path& shard : shards) {
    if (shard.filename() == "model.safetensors") return shard;
  }
  if (!shards.empty()) {
    return fail(
        Code::kNotFound,
        fmt::format("{}: {} safetensors files, but no model.safetensors.index.json to say how they belong together",
                    folder.string(), shards.size()));
  }
  if (!pickle.empty()) return pickle_refused(pickle);
  return fail(Code::kNotFound, fmt::format("{}: no safetensors file in this folder", folder.string()));
}

// The first few of a folder by name, of those that `good` takes.
std::string first_entries(const fs::path& folder, bool (*good)(const fs::path& entry)) {
  constexpr size_t kShown = 5, kEntries = 2000;
  std::vector<std::string> names;
  std::error_code error;
  size_t seen = 0;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator() && seen < kEntries;
       entry.increment(error), ++seen) {
    if (good(entry->path())) names.push_back(terminal_safe(entry->path().filename().string(), kNameShownMax));
  }
  std::sort(names.begin(), names.end());
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kShown ? text + ", ..." : text;
}

bool is_gguf(const fs::path& path) { return path.extension() == ".gguf"; }
bool is_model_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path / "config.json", error);
}

// What is said of a folder that is no model.
Status check_no_models_in(const fs::path& folder) {
  if (const std::string files = first_entries(folder, is_gguf); !files.empty()) {
    return fail(Code::kNotFound, fmt::format("{}: no config.json in this folder, but GGUF files: give one of them: {}",
                                             folder.string(), files));
  }
  if (const std::string folders = first_entries(folder, is_model_folder); !folders.empty()) {
    return fail(Code::kNotFound, fmt::format("{}: no model, but a folder of models: give one of those in it: {}",
                                             folder.string(), folders));
  }
  return {};
}

Result<Container> open_folder(const fs::path& folder, const fs::path& file) {
  Container container;
  container.kind = ContainerKind::kSafetensors;
  container.path = file.empty() ? folder : file;
  const fs::path config = folder / "config.json";
  BATON_TRY(const bool has_config, is_there(config));
  if (!has_config) {
    BATON_TRY(const bool adapter, is_there(folder / "adapter_config.json"));
    if (adapter) {
      return fail(
          Code::kInvalidInput,
          fmt::format("{}: a LoRA adapter, not a model: give it with --lora {} beside -m and the model it is of",
                      folder.string(), folder.string()));
    }
    BATON_OK(check_no_models_in(folder));
    return fail(Code::kNotFound,
                fmt::format("{}: no config.json beside the weights: a Hugging Face folder or a GGUF file is needed",
                            folder.string()));
  }
  BATON_TRY(container.config, read_json_object(config, kConfigBytesMax));
  const fs::path generation = folder / "generation_config.json";
  BATON_TRY(const bool has_generation, is_there(generation));
  if (has_generation) {
    BATON_TRY(container.generation_config, read_json_object(generation, kConfigBytesMax));
  }
  const fs::path index_path = folder / "model.safetensors.index.json";
  BATON_TRY(const bool has_index, is_there(index_path));
  if (!file.empty()) {
    BATON_OK(add_shard(file, container));
  } else if (has_index) {
    BATON_OK(add_indexed_shards(folder, index_path, container));
  } else {
    BATON_TRY(const fs::path shard, single_shard(folder));
    BATON_OK(add_shard(shard, container));
  }
  return container;
}

Result<Container> open_any(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) {
    return fail(Code::kNotFound,
                fmt::format("{}: {}", path.string(), error ? error.message() : "no such file or folder"));
  }
  if (fs::is_directory(status)) return open_folder(path, {});
  if (is_pickle(path)) return pickle_refused(path);
  if (path.extension() == ".safetensors") {
    return open_folder(path.has_parent_path() ? path.parent_path() : fs::path("."), path);
  }
  return open_gguf(path);
}

}  // namespace

uint64_t TensorView::elements() const {
  uint64_t count = 1;
  for (const uint64_t length : shape) count *= length;
  return count;
}

const TensorView* Container::find(std::string_view name) const {
  const auto found = index.find(name);
  return found == index.end() ? nullptr : &tensors[found->second];
}

Result<Container> open_container(const fs::path& path) {
  try {
    return open_any(path);
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, fmt::format("{}: not enough memory to read its header", path.string()));
  }
}

}  // namespace baton

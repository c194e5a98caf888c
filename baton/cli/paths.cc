// The kind of an option's path is its type name in the parser.
#include "baton/cli/paths.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/base/output_file.h"
#include "baton/cli/command.h"
#include "baton/cli/model_flags.h"
#include "baton/hub/resolve.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<PathKind, const char*> kPathTypes[] = {{PathKind::kFile, "FILE"},
                                                           {PathKind::kModel, "MODEL-FILE"},
                                                           {PathKind::kBundledModel, "MODEL"},
                                                           {PathKind::kState, "STATE"},
                                                           {PathKind::kOutput, "OUT-FILE"},
                                                           {PathKind::kFolder, "OUT-FOLDER"},
                                                           {PathKind::kSavedState, "OUT-STATE"},
                                                           {PathKind::kConversation, "OUT-CONVERSATION"},
                                                           {PathKind::kHistory, "HISTORY"},
                                                           {PathKind::kLog, "LOG"}};

std::optional<PathKind> kind_of(const CLI::Option& option) {
  for (const auto& [kind, type] : kPathTypes) {
    if (option.get_type_name() == type) return kind;
  }
  return std::nullopt;
}

bool is_model(PathKind kind) { return kind == PathKind::kModel || kind == PathKind::kBundledModel; }
bool is_written(PathKind kind) { return kind >= PathKind::kOutput; }
bool keeps_state(PathKind kind) { return kind == PathKind::kSavedState || kind == PathKind::kConversation; }

// A file of the name beside it too, as a conversation has.
std::vector<UsedPath> with_companions(std::span<const UsedPath> used) {
  std::vector<UsedPath> all;
  for (const UsedPath& item : used) {
    if (item.path.empty() || item.kind == PathKind::kFolder) continue;
    all.push_back(item);
    if (item.kind == PathKind::kState || item.kind == PathKind::kConversation)
      all.push_back({item.name, item.path + ".json", item.kind});
  }
  return all;
}

// Whether the name leads to where `print` writes, so that a file's bytes would lie between lines of text. A device that
// is no terminal keeps nothing.
bool is_stdout(const std::string& path) {
  struct stat out {};
  struct stat file {};
  if (::fstat(STDOUT_FILENO, &out) != 0 || ::stat(path.c_str(), &file) != 0) return false;
  if (S_ISCHR(out.st_mode) && ::isatty(STDOUT_FILENO) == 0) return false;
  return out.st_dev == file.st_dev && out.st_ino == file.st_ino;
}

// "m-00001-of-00003.gguf" as "m-of-00003.gguf"; any other name: empty.
std::string name_of_splits(const std::string& name) {
  constexpr std::string_view kPattern = "-#####-of-#####.gguf";
  if (name.size() <= kPattern.size()) return "";
  const size_t from = name.size() - kPattern.size();
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(name[from + i])) != 0;
    if (kPattern[i] == '#' ? !digit : name[from + i] != kPattern[i]) return "";
  }
  return name.substr(0, from) + name.substr(from + 6);
}

// Whether `out` is one of the files that are read where `in` is named: itself, a split of it, a file of the folder.
bool is_read(const UsedPath& in, const fs::path& out) {
  const fs::path path = in.path == "-" ? fs::path("/dev/stdin") : fs::path(in.path);
  if (same_file(path, out)) return true;
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  const std::string splits = name_of_splits(path.filename().string());
  if (!folder && splits.empty()) return false;
  fs::directory_iterator entry(folder ? path : path.has_parent_path() ? path.parent_path() : fs::path("."), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!folder && name_of_splits(entry->path().filename().string()) != splits) continue;
    if (fs::exists(entry->path(), error) && same_file(entry->path(), out)) return true;
  }
  return false;
}

Status check_output(const UsedPath& out, std::span<const UsedPath> all) {
  const auto goes_on = [&](const UsedPath& in) {
    return keeps_state(out.kind) && in.kind == PathKind::kState && same_file(in.path, out.path);
  };
  if (std::any_of(all.begin(), all.end(), goes_on)) return {};
  for (const UsedPath& other : all) {
    if (is_written(other.kind)) continue;
    if (is_read(other, out.path)) {
      return fail(Code::kInvalidInput,
                  fmt::format("{} {}: would replace a file that {} reads ({}); give it another name", out.name,
                              out.path, other.name, other.path));
    }
  }
  return {};
}

std::string shown_name(const CLI::Option& option) {
  std::string name = option.get_name();
  if (!name.starts_with('-'))
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

}  // namespace

CLI::Option* takes_path(CLI::Option* option, PathKind kind) {
  for (const auto& [each, type] : kPathTypes) {
    if (each == kind) option->type_name(type);
  }
  if (is_model(kind)) option->transform([](const std::string& given) { return hub::model_path(given); });
  return option;
}

Status check_paths(std::span<const UsedPath> used) {
  for (const UsedPath& item : used) {
    if (item.path.empty() && item.kind != PathKind::kHistory) {
      return fail(Code::kInvalidInput,
                  fmt::format("{} is empty: it takes the name of a file or folder; leave it out for none", item.name));
    }
    if (is_written(item.kind) && item.kind != PathKind::kFolder && item.kind != PathKind::kHistory) {
      const fs::path folder = fs::path(item.path).parent_path();
      std::error_code error;
      if (!folder.empty() && !fs::is_directory(folder, error))
        return fail(Code::kNotFound,
                    fmt::format("{} {}: there is no folder {}", item.name, item.path, folder.string()));
    }
    if (item.kind == PathKind::kConversation) {  // FILE.json beside a device or in the place of a folder's name
      std::error_code error;
      if (fs::exists(item.path, error) && !fs::is_regular_file(item.path, error))
        return fail(Code::kInvalidInput,
                    fmt::format("{} {}: a conversation is saved in two files, and this is none", item.name, item.path));
    }
    if (is_written(item.kind) && item.kind != PathKind::kLog && item.path == "-") {
      return fail(Code::kInvalidInput, fmt::format("{} -: standard output is not written to with -; give a file, or "
                                                   "./- for one of that name",
                                                   item.name));
    }
  }
  const std::vector<UsedPath> all = with_companions(used);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!is_written(all[i].kind)) continue;
    if (is_stdout(all[i].path)) {
      return fail(Code::kInvalidInput,
                  fmt::format("{} {}: is standard output, where text goes too; give a file, or /dev/fd/3 with 3>&1 "
                              ">/dev/null for a pipe",
                              all[i].name, all[i].path));
    }
    BATON_OK(check_output(all[i], all));
    for (size_t j = 0; j < i; ++j) {
      if (!is_written(all[j].kind) || !same_file(all[j].path, all[i].path)) continue;
      return fail(Code::kInvalidInput,
                  fmt::format("{} and {} are one file, {}: one of the two would be lost; give them "
                              "different names",
                              all[j].name, all[i].name, all[i].path));
    }
  }
  return {};
}

Status check_paths(CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  std::vector<UsedPath> used;
  bool bundled = false, model = false;
  for (const CLI::Option* option : app->get_options()) {
    const auto kind = kind_of(*option);
    if (!kind) continue;
    bundled |= *kind == PathKind::kBundledModel;
    model |= *kind == PathKind::kBundledModel && option->count() > 0;
    for (const std::string& path : option->results()) used.push_back({shown_name(*option), path, *kind});
  }
  const bool writes = std::any_of(used.begin(), used.end(), [](const UsedPath& item) { return is_written(item.kind); });
  if (bundled && !model && writes) {
    if (const auto path = bundled_model()) used.push_back({"the bundled model", path->string(), PathKind::kModel});
  }
  return check_paths(used);
}

}  // namespace baton::cli

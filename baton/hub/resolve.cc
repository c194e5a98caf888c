// Paths go first: a name never hides a file.
#include "baton/hub/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "baton/base/near_name.h"
#include "baton/hub/cache.h"
#include "baton/hub/settings.h"

namespace baton::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShownMax = 5, kEntriesMax = 2'000;

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error) || error;  // what cannot be looked at has a message of its own
}

std::vector<std::string> names_of(const std::vector<CachedModel>& models) {
  std::vector<std::string> names;
  for (const CachedModel& model : models) {
    if (names.size() < kEntriesMax) names.push_back(model.name.text());
  }
  return names;
}

// The nearest name of a folder's, which may be the same.
std::string near_entry(const fs::path& folder, const std::string& name) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder.empty() ? fs::path(".") : folder, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (names.size() < kEntriesMax) names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return near_name(name, names);
}

// A path that exists and differs by little in each of its parts; empty: none.
std::string near_file(const std::string& given) {
  fs::path made;
  for (const fs::path& part : fs::path(given)) {
    if (part.empty() || exists((made / part).string())) {
      made /= part;
      continue;
    }
    const std::string near = near_entry(made, part.string());
    if (near.empty()) return near;
    made /= near;
  }
  return made.string();
}

// By a part alone: the repository without its owner, or one of its files.
std::string by_part(const std::string& given, const std::vector<CachedModel>& models) {
  const auto same = [](std::string_view a, std::string_view b) { return lower_case(a) == lower_case(b); };
  for (const CachedModel& model : models) {
    const std::string short_name = RepoName{"", model.name.name, model.name.type}.text();
    if (same(given, model.name.name) || same(given, short_name)) return model.name.text();
    for (const std::string& file : model.files) {
      const std::string base = fs::path(file).filename().string();
      if (base.ends_with(".gguf") && (same(given, base) || same(given + ".gguf", base))) return model.name.text();
    }
  }
  std::vector<std::string> parts;
  for (const CachedModel& model : models) parts.push_back(model.name.name);
  const std::string near = given.find('/') == std::string::npos ? near_name(given, parts) : "";
  const auto at = std::find(parts.begin(), parts.end(), near);
  return near.empty() || at == parts.end() ? "" : models[static_cast<size_t>(at - parts.begin())].name.text();
}

std::string near_model(const std::string& given, const std::vector<std::string>& names) {
  std::string near = near_name(given, names);
  if (near.empty()) {  // without its type
    std::vector<std::string> ids;
    for (const std::string& name : names) ids.push_back(name.substr(0, name.find(':')));
    const std::string id = near_name(given.substr(0, given.find(':')), ids);
    const auto same = std::find(ids.begin(), ids.end(), id);
    if (!id.empty() && same != ids.end()) near = names[static_cast<size_t>(same - ids.begin())];
  }
  return near;
}

}  // namespace

std::string model_path(const std::string& given) {
  if (given.empty() || exists(given)) return given;
  const auto name = parse_repo(given);
  const fs::path place = cache_place();
  if (!name || place.empty()) return given;
  const auto found = Cache(place).find(*name);
  return found ? found->path.string() : given;
}

Status check_model(const std::string& given) {
  if (exists(given)) return {};
  const auto name = parse_repo(given);
  const Cache cache(cache_place());
  const std::vector<CachedModel> models = cache.root().empty() ? std::vector<CachedModel>() : cache.list();
  const std::vector<std::string> cached = names_of(models);
  const bool like = name && !name->owner.empty() && !lower_case(given).ends_with(".gguf");
  std::string text = fmt::format("{}: No such file or directory", given);
  // A file that is here goes before what a hub may have.
  if (const std::string file = near_file(given); !file.empty()) {
    text += fmt::format("; did you mean {}?", file);
    if (like) text += fmt::format(" As the name of a hub's model: `baton pull {}`", name->text());
    return fail(Code::kNotFound, std::move(text));
  }
  if (like) {
    const auto found = cache.find(*name);
    // What a repository of the cache lacks may be a slip of the pen.
    const std::string why = found ? "it cannot be read" : found.error().message;
    const bool other_type = why.find("; there are: ") != std::string::npos;
    text += fmt::format(", and {}{} `baton pull {}` {}", why, other_type ? ";" : ":", name->text(),
                        other_type ? "asks the hub for it" : "would fetch it");
  }
  std::string near = by_part(given, models);
  if (near.empty()) near = near_model(given, cached);
  if (!near.empty()) {
    text += fmt::format("; did you mean {}?", near);
  } else if (!like) {
    text +=
        ": it takes a GGUF file, a Hugging Face folder, or the name of a model that `baton pull OWNER/NAME` fetched";
    if (!cached.empty()) {
      const size_t shown = std::min(cached.size(), kShownMax);
      text += fmt::format("; in the cache: {}{}",
                          fmt::join(cached.begin(), cached.begin() + static_cast<long>(shown), ", "),
                          cached.size() > shown ? ", ... (baton ls)" : "");
    }
  }
  return fail(Code::kNotFound, std::move(text));
}

std::string near_cached(const std::string& given) {
  const Cache cache(cache_place());
  if (cache.root().empty()) return {};
  const std::vector<CachedModel> models = cache.list();
  const std::string near = by_part(given, models);
  return near.empty() ? near_model(given, names_of(models)) : near;
}

}  // namespace baton::hub

// What is there is read anew each time: other programs write it too.
#include "baton/hub/cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "baton/base/file.h"
#include "baton/hub/lock.h"

namespace baton::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFilesMax = 10'000, kLocksHeldMax = 256;

// The files of a snapshot that can be opened, by their paths in it.
std::vector<std::string> files_of(const fs::path& snapshot) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(snapshot, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry.depth() > 8) entry.disable_recursion_pending();
    std::error_code broken;
    if (!entry->is_regular_file(broken) || files.size() >= kFilesMax) continue;
    const std::string name = entry->path().lexically_relative(snapshot).generic_string();
    if (good_file(name)) files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  return files;
}

int64_t changed_at(const fs::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_mtime) : 0;
}

CachedModel describe(const RepoName& name, const fs::path& snapshot, Variant variant) {
  CachedModel made;
  made.name = name;
  made.name.type = variant.type;
  made.commit = snapshot.filename().string();
  made.path = variant.entry.empty() ? snapshot : snapshot / variant.entry;
  made.whole = variant.whole;
  std::set<fs::path> seen;
  for (const std::string& file : variant.files) {
    std::error_code error;
    const fs::path place = fs::canonical(snapshot / file, error);
    if (!seen.insert(place).second) continue;
    const uintmax_t bytes = fs::file_size(place, error);
    if (!error) made.bytes += bytes;
    made.changed = std::max(made.changed, changed_at(place));
  }
  made.files = std::move(variant.files);
  return made;
}

// The commit of `main`; empty: none is told.
std::string main_commit(const fs::path& folder) {
  const auto text = read_file(folder / "refs" / "main", 4096);
  if (!text) return "";
  const std::string commit = text->substr(0, text->find_first_of(" \r\n"));
  return good_commit(commit) ? commit : "";
}

// What a link of a snapshot leads to, where that is a blob of the same repository.
fs::path blob_of(const fs::path& blobs, const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (error) return {};
  const fs::path blob = blobs / target.filename();
  return fs::equivalent(blob, link, error) && !error ? blob : fs::path();
}

// Of what a path itself is; a link's are those of what it leads to.
uint64_t bytes_of(const fs::path& path) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

void remove_file(const fs::path& path, uint64_t bytes, Removed& removed) {
  std::error_code error;
  if (!fs::remove(path, error) || error) return;
  ++removed.files;
  removed.bytes += bytes;
}

void remove_empty_above(fs::path folder, const fs::path& top) {
  std::error_code error;
  for (; folder != top && folder.has_relative_path(); folder = folder.parent_path()) {
    if (!fs::is_empty(folder, error) || error || !fs::remove(folder, error)) return;
  }
}

// All below a folder, and itself. Links are removed, not what they lead to.
Removed remove_tree(const fs::path& folder) {
  Removed removed;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_symlink(ignored) || !entry->is_regular_file(ignored)) continue;
    ++removed.files;
    removed.bytes += bytes_of(entry->path());
  }
  fs::remove_all(folder, error);
  return removed;
}

// That of the repository, which keeps our pulls away, and those of files that another program may fetch.
Result<std::vector<std::unique_ptr<CacheLock>>> take_locks(const fs::path& root, const RepoName& name) {
  const fs::path own = CacheLock::of_repo(root, name);
  std::vector<fs::path> paths{own};
  std::error_code error;
  for (fs::directory_iterator entry(own.parent_path(), error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().extension() == ".lock" && entry->path() != own) paths.push_back(entry->path());
  }
  std::vector<std::unique_ptr<CacheLock>> held;
  for (const fs::path& path : paths) {
    BATON_TRY(auto lock, CacheLock::try_take(path, CacheLock::Kind::kAlone));
    if (!lock)
      return fail(Code::kMismatch,
                  fmt::format("{} is being pulled ({} is held): nothing of it is removed; wait for the pull, or end it",
                              name.id(), path.string()));
    if (held.size() < kLocksHeldMax) held.push_back(std::move(lock));
  }
  return held;
}

}  // namespace

std::vector<fs::path> Cache::snapshots(const RepoName& name) const {
  const fs::path place = folder(name);
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(place / "snapshots", error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) found.emplace_back(changed_at(entry->path()), entry->path());
  }
  const std::string first = main_commit(place);
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    const bool a_main = a.second.filename() == first, b_main = b.second.filename() == first;
    return a_main != b_main ? a_main : a > b;
  });
  std::vector<fs::path> made;
  for (auto& [changed, path] : found) made.push_back(std::move(path));
  return made;
}

std::vector<CachedModel> Cache::list(const RepoName& name) const {
  std::vector<CachedModel> made;
  for (const fs::path& snapshot : snapshots(name)) {
    for (Variant& variant : variants_of(files_of(snapshot))) {
      const auto same = [&](const CachedModel& other) { return other.name.type == variant.type; };
      const auto there = std::find_if(made.begin(), made.end(), same);
      if (there == made.end()) {
        made.push_back(describe(name, snapshot, std::move(variant)));
      } else if (!there->whole && variant.whole) {
        *there = describe(name, snapshot, std::move(variant));
      }
    }
  }
  return made;
}

std::vector<CachedModel> Cache::list() const {
  std::vector<RepoName> names;
  std::error_code error;
  for (fs::directory_iterator entry(root_, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (const auto name = repo_of_folder(entry->path().filename().string())) names.push_back(*name);
  }
  std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.id() < b.id(); });
  std::vector<CachedModel> made;
  for (const RepoName& name : names) {
    for (CachedModel& model : list(name)) made.push_back(std::move(model));
  }
  return made;
}

Result<CachedModel> Cache::find(const RepoName& name) const {
  Error why{Code::kNotFound, fmt::format("{} is not in the cache ({})", name.id(), root_.string())};
  for (const fs::path& snapshot : snapshots(name)) {
    auto chosen = choose(name, files_of(snapshot));
    if (!chosen) {
      why.message = std::move(chosen).error().message + " in the cache";
      continue;
    }
    CachedModel made = describe(name, snapshot, *std::move(chosen));
    if (made.whole) return made;
    why.message = fmt::format("{} is in the cache, but not all of it", made.name.text());
  }
  return fail(std::move(why));
}

Result<Removed> Cache::remove(const RepoName& name) const {
  const fs::path place = folder(name);
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(place, error)))
    return fail(Code::kNotFound, fmt::format("{} is not in the cache ({})", name.id(), root_.string()));
  BATON_TRY(const auto locks, take_locks(root_, name));
  if (name.type.empty()) {
    Removed removed = remove_tree(place);
    if (fs::exists(place, error))
      return fail(Code::kInvalidInput, fmt::format("{}: not all of it could be removed", place.string()));
    return removed;
  }
  Removed removed;
  Error why{Code::kNotFound, fmt::format("{} is not in the cache ({})", name.text(), root_.string())};
  std::set<fs::path> blobs;
  for (const fs::path& snapshot : snapshots(name)) {
    const auto files = files_of(snapshot);
    const auto chosen = choose(name, files);
    if (!chosen) {
      why = chosen.error();
      continue;
    }
    for (const std::string& file : chosen->files) {
      const fs::path link = snapshot / file, blob = blob_of(place / "blobs", link);
      const uint64_t bytes = blob.empty() ? bytes_of(link) : 0;
      if (!blob.empty()) blobs.insert(blob);
      remove_file(link, bytes, removed);
      remove_empty_above(link.parent_path(), place / "snapshots");
    }
  }
  if (removed.files == 0) return fail(std::move(why));
  for (const fs::path& snapshot : snapshots(name)) {
    for (const std::string& file : files_of(snapshot)) blobs.erase(blob_of(place / "blobs", snapshot / file));
  }
  removed.files = 0;
  for (const fs::path& blob : blobs) remove_file(blob, bytes_of(blob), removed);
  if (snapshots(name).empty()) fs::remove_all(place, error);
  return removed;
}

}  // namespace baton::hub

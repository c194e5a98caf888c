// The cache that programs of Hugging Face share: models--OWNER--NAME/{blobs,refs,snapshots/COMMIT}. Files of a snapshot
// are links to blobs, which are called by their sums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/hub/choose.h"
#include "baton/hub/name.h"

namespace baton::hub {

// A model of a snapshot.
struct CachedModel {
  RepoName name;  // with the type
  std::string commit;
  std::filesystem::path path;  // what a model is opened by: a GGUF file, or the snapshot's folder
  std::vector<std::string> files;
  uint64_t bytes = 0;
  int64_t changed = 0;  // of the newest file, seconds since 1970
  bool whole = true;
};

struct Removed {
  uint64_t files = 0, bytes = 0;  // that are no longer there
};

class Cache {
 public:
  explicit Cache(std::filesystem::path root) : root_(std::move(root)) {}

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path folder(const RepoName& name) const { return root_ / name.folder(); }

  // All models of the newest snapshots (of `main`, where it is there), by name. Folders that are none are left out; no
  // cache: none.
  std::vector<CachedModel> list() const;
  // Of one repository.
  std::vector<CachedModel> list(const RepoName& name) const;
  // The model of the name and type; kNotFound: what `baton pull` would mend, in words.
  Result<CachedModel> find(const RepoName& name) const;
  // The models of the type in all snapshots, or the repository with what was left of downloads. Blobs that another
  // snapshot's file links to stay. kNotFound: there is none; kMismatch: it is being pulled, and nothing is removed.
  Result<Removed> remove(const RepoName& name) const;

 private:
  std::vector<std::filesystem::path> snapshots(const RepoName& name) const;

  std::filesystem::path root_;
};

}  // namespace baton::hub

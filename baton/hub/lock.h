// Locks of the cache: files of .locks, held with flock as huggingface_hub holds them; they end with their process. No
// lock file is ever removed: who waits for it has it open, and would hold what nobody else finds.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "baton/base/status.h"
#include "baton/hub/name.h"
#include "baton/hub/remote.h"

namespace baton::hub {

// "PATH: WHY", and what names the folder.
tl::unexpected<Error> cache_error(const std::filesystem::path& path, int why);
Status make_folders(const std::filesystem::path& folder);

class CacheLock {
 public:
  enum class Kind { kShared, kAlone };

  // Of a whole repository: pulls share it, `rm` has it alone. Its name is no etag's.
  static std::filesystem::path of_repo(const std::filesystem::path& root, const RepoName& name);
  // Of one blob: who fetches it has it alone.
  static std::filesystem::path of_blob(const std::filesystem::path& root, const RepoName& name,
                                       const std::string& etag);

  // Null: another holds it. Where the file system has no locks it is as if nobody held it.
  static Result<std::unique_ptr<CacheLock>> try_take(const std::filesystem::path& path, Kind kind);
  // Waits for it, and says so: `why` of "WHY: waiting".
  static Result<std::unique_ptr<CacheLock>> take(const std::filesystem::path& path, Kind kind, const Watch& watch,
                                                 const std::string& why);
  ~CacheLock();

 private:
  explicit CacheLock(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace baton::hub

// Fetches a model into the shared cache: whole files under their sums, one fetcher of a file at a time, and `main` told
// of a commit only when all that was asked for of it is there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "baton/base/status.h"
#include "baton/hub/cache.h"
#include "baton/hub/download.h"
#include "baton/hub/name.h"
#include "baton/hub/remote.h"
#include "baton/hub/settings.h"

namespace baton::hub {

struct PullProgress {
  std::string file, etag;  // that is fetched now
  uint64_t file_done = 0, file_bytes = 0;
  uint64_t done = 0, bytes = 0;  // of all files that were not there
};

struct PullOptions {
  Settings settings;
  std::string revision = "main";
  DownloadLimits limits;
  Watch watch;
  std::function<void(const PullProgress& progress)> progress;
};

struct PulledFile {
  std::string path, etag;
  uint64_t bytes = 0;
  bool fetched = false;  // else it was there
  bool summed = true;    // false: the hub tells no sum of it
};

struct Pulled {
  CachedModel model;
  std::vector<PulledFile> files;
  uint64_t bytes_fetched = 0;
};

// Offline: what the cache has, or kUnavailable. Errors say what mends them; what came before one stays.
Result<Pulled> pull(const RepoName& name, const PullOptions& options);

}  // namespace baton::hub

// A lock counts when its path still leads to the file that is locked: other programs remove such files.
#include "baton/hub/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace baton::hub {
namespace {

namespace fs = std::filesystem;

constexpr int kOpensMax = 16;
constexpr std::chrono::milliseconds kBetween{200};

// -1: errno says why. Another user's lock file may be one to read only.
int open_lock(const fs::path& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0644);
  return fd < 0 && errno == EACCES ? ::open(path.c_str(), O_RDONLY | kFlags) : fd;
}

bool is_at(int fd, const fs::path& path) {
  struct stat held {
  }, there{};
  return ::fstat(fd, &held) == 0 && ::lstat(path.c_str(), &there) == 0 && held.st_dev == there.st_dev &&
         held.st_ino == there.st_ino;
}

}  // namespace

tl::unexpected<Error> cache_error(const fs::path& path, int why) {
  return fail(Code::kInvalidInput,
              fmt::format("{}: {} (HF_HUB_CACHE names the folder of the cache)", path.string(), std::strerror(why)));
}

Status make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && fs::is_directory(folder, error)) return {};
  const int why = error ? error.value() : ENOTDIR;
  return fail(Code::kInvalidInput, fmt::format("{}: the folder cannot be created: {} (HF_HUB_CACHE names the folder of "
                                               "the cache)",
                                               folder.string(), std::strerror(why)));
}

fs::path CacheLock::of_repo(const fs::path& root, const RepoName& name) {
  return root / ".locks" / name.folder() / ".repository.lock";
}

fs::path CacheLock::of_blob(const fs::path& root, const RepoName& name, const std::string& etag) {
  return root / ".locks" / name.folder() / (etag + ".lock");
}

Result<std::unique_ptr<CacheLock>> CacheLock::try_take(const fs::path& path, Kind kind) {
  const int operation = (kind == Kind::kAlone ? LOCK_EX : LOCK_SH) | LOCK_NB;
  for (int opens = 0; opens < kOpensMax; ++opens) {
    BATON_OK(make_folders(path.parent_path()));
    const int fd = open_lock(path);
    if (fd < 0 && errno == ENOENT) continue;  // the folder went away
    if (fd < 0) return cache_error(path, errno);
    std::unique_ptr<CacheLock> made(new CacheLock(fd));
    int done = ::flock(fd, operation);
    while (done != 0 && errno == EINTR) done = ::flock(fd, operation);
    if (done != 0 && errno == EWOULDBLOCK) return nullptr;
    if (is_at(fd, path)) return made;
  }
  return nullptr;
}

Result<std::unique_ptr<CacheLock>> CacheLock::take(const fs::path& path, Kind kind, const Watch& watch,
                                                   const std::string& why) {
  for (bool said = false;; said = true) {
    BATON_TRY(auto made, try_take(path, kind));
    if (made) return made;
    if (!said) watch.say(fmt::format("{}: waiting for it", why));
    BATON_OK(pause(kBetween, watch));
  }
}

CacheLock::~CacheLock() { ::close(fd_); }

}  // namespace baton::hub

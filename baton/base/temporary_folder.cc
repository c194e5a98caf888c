// Temporary folders: their names tell whose they are.
#include "baton/base/temporary_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

namespace baton {
namespace {

// Whether `path` is a folder of this user's, named as `create` does, of a process that is no more.
bool is_abandoned(const std::filesystem::path& path, std::string_view name) {
  const std::string file = path.filename().string();
  if (!file.starts_with(fmt::format("{}-", name))) return false;
  pid_t process = 0;
  const char* const end = file.data() + file.size();
  const auto [stop, error] = std::from_chars(file.data() + name.size() + 1, end, process);
  if (error != std::errc() || stop == end || *stop != '-' || process <= 0) return false;
  struct stat status {};
  return ::kill(process, 0) != 0 && errno == ESRCH && ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid();
}

}  // namespace

Result<TemporaryFolder> TemporaryFolder::create(std::string_view name) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  std::vector<std::filesystem::path> abandoned;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(parent, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    if (is_abandoned(entry->path(), name)) abandoned.push_back(entry->path());
  }
  for (const auto& path : abandoned) std::filesystem::remove_all(path, ignored);
  std::string made = (parent / fmt::format("{}-{}-XXXXXX", name, ::getpid())).string();
  if (error || ::mkdtemp(made.data()) == nullptr) {
    return fail(Code::kNotFound,
                fmt::format("no temporary folder can be made in {}; set TMPDIR to another place", parent.string()));
  }
  TemporaryFolder folder;
  folder.path_ = made;
  return folder;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace baton

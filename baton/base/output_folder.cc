// Beside its place, so that a rename puts it there.
#include "baton/base/output_folder.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "baton/base/temporary_names.h"

namespace baton {
namespace {

constexpr std::string_view kPartMark = ".part-";

std::filesystem::path without_slash(const std::filesystem::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

// Whether `name` is `of`'s, in the making by a process that is no more.
bool is_left_over(std::string_view name, const std::string& of) {
  if (!name.starts_with(of + std::string(kPartMark))) return false;
  name.remove_prefix(of.size() + kPartMark.size());
  pid_t process = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  if (error != std::errc() || end != name.data() + name.size() || process <= 0) return false;
  return process == ::getpid() || (::kill(process, 0) != 0 && errno == ESRCH);
}

}  // namespace

OutputFolder::OutputFolder(std::filesystem::path place)
    : place_(without_slash(place)), work_(fmt::format("{}{}{}", place_.string(), kPartMark, ::getpid())) {}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (made_) std::filesystem::remove_all(work_, ignored);
  forget();
}

void OutputFolder::forget() {
  for (const int slot : slots_) forget_temporary_name(slot);
  slots_.clear();
}

void OutputFolder::remove_left_over() const {
  const auto parent = place_.has_parent_path() ? place_.parent_path() : std::filesystem::path(".");
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    if (is_left_over(entry->path().filename().string(), place_.filename().string())) found.push_back(entry->path());
  }
  for (const auto& path : found) std::filesystem::remove_all(path, error);
}

Status OutputFolder::make(std::span<const std::string> files) {
  remove_left_over();
  std::vector<std::filesystem::path> names = {work_};
  for (const std::string& file : files) {
    std::filesystem::path name = work_;
    for (const auto& part : std::filesystem::path(file)) {
      name /= part;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  made_ = true;
  for (const auto& name : names) slots_.push_back(keep_temporary_name(name));
  std::error_code error;
  std::filesystem::create_directories(work_, error);
  for (const std::string& file : files) {
    if (!error) std::filesystem::create_directories((work_ / file).parent_path(), error);
  }
  if (!error) return {};
  return fail(Code::kInvalidInput, fmt::format("{}: cannot make the folder: {}", work_.string(), error.message()));
}

Status OutputFolder::commit() {
  std::error_code error;
  std::filesystem::remove_all(place_, error);
  if (!error) std::filesystem::rename(work_, place_, error);
  if (error)
    return fail(Code::kInvalidInput,
                fmt::format("{}: cannot put the folder there: {}", place_.string(), error.message()));
  made_ = false;
  forget();
  return {};
}

}  // namespace baton

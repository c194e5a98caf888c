// History of entries on disk.
#include "baton/cli/line_history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>

#include "baton/base/file.h"

namespace baton::cli {
namespace {

constexpr size_t kFileBytesMax = size_t{64} << 20;

std::string line_of(const std::string& entry) {
  return nlohmann::json(entry).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

LineHistory::LineHistory(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code error;
  const auto kind = std::filesystem::status(path_, error).type();
  if (kind == std::filesystem::file_type::not_found) return;
  const auto text = kind == std::filesystem::file_type::regular
                        ? read_file(path_, kFileBytesMax)
                        : Result<std::string>(fail(Code::kInvalidInput, error ? error.message() : "is not a file"));
  if (!text) problem_ = text.error().message;
  // A file of somebody's that is no history is left as it is.
  if (text && !text->empty() && !nlohmann::json::parse(text->substr(0, text->find('\n')), nullptr, false).is_string())
    problem_ = "is not a history of chats";
  if (!problem_.empty()) {
    problem_ = fmt::format("{}: {}: no history is kept; name another file (--history)", path_.string(), problem_);
    path_.clear();
    return;
  }
  size_t lines = 0;
  for (size_t at = 0; at < text->size(); ++lines) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const auto entry = nlohmann::json::parse(text->substr(at, end - at), nullptr, false);
    if (entry.is_string()) entries_.push_back(entry.get<std::string>());
    at = end + 1;
  }
  if (entries_.size() > kEntriesMax)
    entries_.erase(entries_.begin(), entries_.end() - static_cast<ptrdiff_t>(kEntriesMax));
  if (lines < 2 * kEntriesMax) return;
  std::string kept;
  for (const std::string& entry : entries_) kept += line_of(entry);
  const auto written = write_file(path_, std::as_bytes(std::span(kept)));
  static_cast<void>(written);
}

bool LineHistory::add(std::string_view entry) {
  if (entry.empty() || (!entries_.empty() && entries_.back() == entry)) return false;
  entries_.emplace_back(entry);
  if (path_.empty() || entry.size() > kEntryBytesMax) return true;
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  // Without O_NONBLOCK a FIFO that has come in its place would wait for a reader.
  const int file = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
  if (file < 0) return true;
  // One write: entries of two chats do not mix.
  const std::string line = line_of(entries_.back());
  struct stat status {};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && ::fchmod(file, 0600) == 0) {
    const ssize_t written = ::write(file, line.data(), line.size());
    static_cast<void>(written);
  }
  ::close(file);
  return true;
}

std::filesystem::path default_history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::filesystem::path(state) / "baton" / "chat_history";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return {};
  return std::filesystem::path(home) / ".local" / "state" / "baton" / "chat_history";
}

}  // namespace baton::cli

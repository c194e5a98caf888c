// Reads pieces, and gives lines.
#include "baton/base/line_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace baton {
namespace {

constexpr size_t kReadBytes = size_t{1} << 16;

tl::unexpected<Error> line_failure(const std::filesystem::path& name, const char* doing) {
  const int number = errno;
  return fail(number == ENOENT ? Code::kNotFound : Code::kInvalidInput,
              fmt::format("{}: cannot {}: {}", name.string(), doing, std::strerror(number)));
}

}  // namespace

LineReader::LineReader(std::filesystem::path name, int fd, bool owned, size_t bytes_max)
    : name_(std::move(name)), fd_(fd), owned_(owned), bytes_max_(bytes_max) {}

LineReader::LineReader(LineReader&& other) noexcept
    : name_(std::move(other.name_)),
      fd_(other.fd_),
      owned_(std::exchange(other.owned_, false)),
      ended_(other.ended_),
      bytes_max_(other.bytes_max_),
      read_(std::move(other.read_)),
      begun_(std::move(other.begun_)),
      at_(other.at_),
      number_(other.number_),
      offset_(other.offset_),
      taken_(other.taken_),
      too_long_(other.too_long_),
      long_lines_(other.long_lines_) {}

LineReader::~LineReader() {
  if (owned_) ::close(fd_);
}

Result<LineReader> LineReader::open(const std::filesystem::path& path, size_t bytes_max, LongLines long_lines) {
  if (path == "-") {
    LineReader reader("standard input", STDIN_FILENO, false, bytes_max);
    reader.long_lines_ = long_lines;
    return reader;
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return line_failure(path, "open");
  LineReader reader(path, fd, true, bytes_max);
  reader.long_lines_ = long_lines;
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    return line_failure(path, "read");
  }
  return reader;
}

bool LineReader::take(Line& line) {
  const size_t end = std::min(read_.find('\n', at_), read_.size());
  const bool whole = end < read_.size();
  if (begun_.size() + (end - at_) > bytes_max_) {
    too_long_ = true;
    begun_.clear();
  } else if (!too_long_) {
    begun_.append(read_, at_, end - at_);
  }
  taken_ += end - at_ + (whole ? 1 : 0);
  at_ = end + (whole ? 1 : 0);
  const bool reported = too_long_ && long_lines_ == LongLines::kReported;
  if (!whole && !reported && !(ended_ && taken_ > offset_)) return false;
  if (reported) {
    ended_ = true;
    read_.clear();
    at_ = 0;
  }
  line = {std::move(begun_), ++number_, offset_, whole, too_long_};
  begun_.clear();
  too_long_ = false;
  offset_ = taken_;
  return true;
}

Result<LineReader::Outcome> LineReader::next(Line& line, int wait_ms) {
  while (!take(line)) {
    if (ended_) return Outcome::kEnd;
    struct pollfd entry {
      fd_, POLLIN, 0
    };
    const int ready = ::poll(&entry, 1, wait_ms);
    if (ready == 0 || (ready < 0 && errno == EINTR)) return Outcome::kNone;
    read_.resize(kReadBytes);
    at_ = 0;
    const ssize_t count = ::read(fd_, read_.data(), kReadBytes);
    const int number = errno;
    read_.resize(count > 0 ? static_cast<size_t>(count) : 0);
    if (count < 0 && (number == EINTR || number == EAGAIN)) return Outcome::kNone;
    errno = number;
    if (count < 0) return line_failure(name_, "read");
    ended_ = count == 0;
  }
  return Outcome::kLine;
}

}  // namespace baton

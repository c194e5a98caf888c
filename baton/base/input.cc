// Reading to the end.
#include "baton/base/input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "baton/base/descriptor.h"

namespace baton {
namespace {

tl::unexpected<Error> input_failure(const std::filesystem::path& path, const char* doing) {
  const int number = errno;
  return fail(number == ENOENT ? Code::kNotFound : Code::kInvalidInput,
              fmt::format("{}: cannot {}: {}", path.string(), doing, std::strerror(number)));
}

void wait_for_input(int fd) {
  struct pollfd entry {
    fd, POLLIN, 0
  };
  ::poll(&entry, 1, 1000);
}

}  // namespace

Result<std::string> read_input(const std::filesystem::path& path, size_t bytes_max) {
  const bool standard = path == "-";
  const std::filesystem::path name = standard ? "standard input" : path;
  const int fd = standard ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return input_failure(name, "open");
  const Descriptor owner(standard ? -1 : fd);
  std::string text;
  constexpr size_t kPieceBytes = size_t{1} << 16;
  while (true) {
    const size_t done = text.size();
    text.resize(done + kPieceBytes);
    ssize_t count = ::read(fd, text.data() + done, kPieceBytes);
    while (count < 0 && (errno == EINTR || errno == EAGAIN)) {
      wait_for_input(fd);
      count = ::read(fd, text.data() + done, kPieceBytes);
    }
    if (count < 0) return input_failure(name, "read");
    text.resize(done + static_cast<size_t>(count));
    if (count == 0) return text;
    if (text.size() > bytes_max) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: more than the {} bytes such an input may have", name.string(), bytes_max));
    }
  }
}

}  // namespace baton

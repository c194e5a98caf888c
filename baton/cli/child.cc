// posix_spawn and two pipes.
#include "baton/cli/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "baton/base/clock.h"

extern char** environ;

namespace baton::cli {
namespace {

constexpr size_t kErrorBytesMax = 2000;        // of stderr that a message shows
constexpr size_t kOutputBytesMax = 64u << 20;  // more is no table of speeds

class Pipe {
 public:
  Pipe() {
    if (::pipe(ends_) != 0) ends_[0] = ends_[1] = -1;
    for (const int end : ends_) {
      if (end >= 0) ::fcntl(end, F_SETFD, FD_CLOEXEC);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_read();
    close_write();
  }
  bool good() const { return ends_[0] >= 0; }
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_read() { close_end(0); }
  void close_write() { close_end(1); }

 private:
  void close_end(int i) {
    if (ends_[i] >= 0) ::close(std::exchange(ends_[i], -1));
  }
  int ends_[2];
};

// False at the end of the stream.
bool append(int end, std::string& to) {
  char bytes[4096];
  const ssize_t count = ::read(end, bytes, sizeof(bytes));
  if (count < 0) return errno == EINTR;
  if (count > 0) to.append(bytes, static_cast<size_t>(count));
  return count > 0;
}

std::string last_part(const std::string& text) {
  const size_t start = text.size() > kErrorBytesMax ? text.size() - kErrorBytesMax : 0;
  const size_t end = text.find_last_not_of(" \n");
  return end == std::string::npos || end < start ? "" : text.substr(start, end + 1 - start);
}

}  // namespace

Result<ChildRun> run_child(std::span<const std::string> words) {
  BATON_CHECK(!words.empty());
  Pipe out, err;
  if (!out.good() || !err.good()) return fail(Code::kDevice, fmt::format("no pipe: {}", std::strerror(errno)));
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_end(), STDERR_FILENO);
  const SteadyClock clock;
  const int64_t start = clock.now_ns();
  pid_t child = 0;
  // We ignore these; others count on them.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int error = ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail(Code::kNotFound, fmt::format("cannot run {}: {}", words[0], std::strerror(error)));
  out.close_write();
  err.close_write();

  ChildRun run;
  std::string errors;
  bool too_much = false;
  while (out.read_end() >= 0 || err.read_end() >= 0) {
    pollfd ends[2] = {{out.read_end(), POLLIN, 0}, {err.read_end(), POLLIN, 0}};
    if (::poll(ends, 2, -1) < 0 && errno != EINTR) break;
    if (ends[0].revents != 0 && !append(out.read_end(), run.output)) out.close_read();
    if (ends[1].revents != 0 && !append(err.read_end(), errors)) err.close_read();
    if (run.first_line_ms == 0 && run.output.find('\n') != std::string::npos)
      run.first_line_ms = ms_between(start, clock.now_ns());
    if (errors.size() > kOutputBytesMax) errors.erase(0, errors.size() / 2);
    too_much = run.output.size() > kOutputBytesMax;
    if (too_much) break;
  }
  out.close_read();
  err.close_read();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  run.wall_ms = ms_between(start, clock.now_ns());
  if (too_much) return fail(Code::kDevice, fmt::format("{} prints too much", words[0]));
  if (WIFSIGNALED(status)) {
    return fail(Code::kDevice,
                fmt::format("{} was ended by signal {}: {}", words[0], WTERMSIG(status), last_part(errors)));
  }
  if (WEXITSTATUS(status) != 0) {
    return fail(Code::kDevice,
                fmt::format("{} failed with exit code {}: {}", words[0], WEXITSTATUS(status), last_part(errors)));
  }
  return run;
}

}  // namespace baton::cli

// Starting ourselves and watching.
#include "baton/cli/child_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <thread>

#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

extern char** environ;

namespace baton::cli {
namespace {

// "VmHWM:     12345 kB"
std::optional<uint64_t> peak_of(pid_t id) {
  std::ifstream status(fmt::format("/proc/{}/status", id));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("VmHWM:")) continue;
    const size_t digits = line.find_first_of("0123456789");
    uint64_t kilobytes = 0;
    if (digits == std::string::npos) return std::nullopt;
    std::from_chars(line.data() + digits, line.data() + line.size(), kilobytes);
    return kilobytes * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::filesystem::path program_file() {
#if defined(__APPLE__)
  char path[4096];
  uint32_t size = sizeof(path);
  if (_NSGetExecutablePath(path, &size) != 0) return {};
  std::error_code ignored;
  return std::filesystem::weakly_canonical(path, ignored);
#else
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
#endif
}

std::optional<uint64_t> peak_memory_of(const std::filesystem::path& program,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  if (::posix_spawn_file_actions_init(&actions) != 0) return std::nullopt;
  for (const int descriptor : {0, 1, 2})
    ::posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0);
  pid_t id = 0;
  const int failed = ::posix_spawn(&id, words.front().c_str(), &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return std::nullopt;
  uint64_t peak = 0;
  int status = 0;
  for (;;) {
    peak = std::max(peak, peak_of(id).value_or(0));
    const pid_t ended = ::waitpid(id, &status, WNOHANG);
    if (ended == id) break;
    if (ended < 0 && errno != EINTR) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return good && peak > 0 ? std::optional<uint64_t>(peak) : std::nullopt;
}

}  // namespace baton::cli

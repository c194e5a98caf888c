// From /proc on Linux, sysctl on macOS.
#include "baton/base/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace baton {
namespace {

#if !defined(__APPLE__)
// A file of one number; none where it says "max", or is not there.
std::optional<uint64_t> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  uint64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

// Files in memory that a group is charged for: the system gives them up for others, as MemAvailable has it.
uint64_t cached_files(const std::filesystem::path& group) {
  uint64_t sum = 0, bytes = 0;
  std::ifstream in(group / "memory.stat");
  for (std::string key; in >> key >> bytes;) sum += key == "inactive_file" || key == "active_file" ? bytes : 0;
  return sum;
}

// What a group of processes may still take, it or one above it: as a container bounds it.
uint64_t left_in(std::filesystem::path group, const std::filesystem::path& root, const char* limit, const char* used) {
  uint64_t left = UINT64_MAX;
  for (;; group = group.parent_path()) {
    const auto most = number_in(group / limit), now = number_in(group / used);
    if (most && now) {
      const uint64_t taken = *now - std::min(*now, cached_files(group));
      left = std::min(left, *most - std::min(*most, taken));
    }
    if (group == root || !group.has_relative_path()) return left;
  }
}

// The least of what groups and the process's own limit leave it.
uint64_t memory_left_to_process() {
  uint64_t left = UINT64_MAX;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path", or "4:memory:/path" of version 1
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || second + 1 >= line.size()) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1), path = line.substr(second + 2);
    const bool old = kinds == "memory";
    if (!old && !kinds.empty()) continue;
    const std::filesystem::path root = old ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    left = std::min(left, old ? left_in(root / path, root, "memory.limit_in_bytes", "memory.usage_in_bytes")
                              : left_in(root / path, root, "memory.max", "memory.current"));
  }
  struct rlimit own {};
  if (::getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY) {
    const uint64_t pages = number_in("/proc/self/statm").value_or(0);
    const uint64_t used = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    left = std::min<uint64_t>(left, own.rlim_cur - std::min<uint64_t>(own.rlim_cur, used));
  }
  return left;
}
#endif

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cores = std::thread::hardware_concurrency();
  machine.memory_bytes =
      static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
#if defined(__APPLE__)
  char name[256];
  size_t size = sizeof(name);
  if (::sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0) machine.processor = name;
#else
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name") || line.starts_with("CPU implementer")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) machine.processor = line.substr(colon + 2);
      break;
    }
  }
  std::ifstream memory("/proc/meminfo");
  for (std::string line; std::getline(memory, line);) {
    std::istringstream fields(line);
    std::string key;
    uint64_t kib = 0;
    if (fields >> key >> kib && key == "MemAvailable:")
      machine.memory_available_bytes = std::max<uint64_t>(std::min(kib * 1024, memory_left_to_process()), 1);
  }
#endif
  return machine;
}

}  // namespace baton

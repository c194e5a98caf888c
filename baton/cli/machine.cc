// From /proc on Linux, sysctl on macOS.
#include "baton/cli/machine.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace baton::cli {

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
    if (fields >> key >> kib && key == "MemAvailable:") machine.memory_available_bytes = kib * 1024;
  }
#endif
  return machine;
}

}  // namespace baton::cli

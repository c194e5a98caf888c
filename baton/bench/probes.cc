// Reading /proc, and the system's load.
#include "baton/bench/probes.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <thread>

namespace baton {
namespace {

// Load for each core from which speeds are doubted. Work of this process before the measurement counts too: about 1.
constexpr double kBusy = 1.5;

}  // namespace

void reset_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::optional<uint64_t> peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (!line.starts_with("VmHWM:")) continue;
    uint64_t kilobytes = 0;
    for (const char c : line) {
      if (c >= '0' && c <= '9') kilobytes = kilobytes * 10 + static_cast<uint64_t>(c - '0');
    }
    return kilobytes * 1024;
  }
  return std::nullopt;
}

std::optional<std::string> busy_machine() {
  double load = 0;
  const unsigned cores = std::thread::hardware_concurrency();
  if (::getloadavg(&load, 1) != 1 || load <= kBusy * cores) return std::nullopt;
  return fmt::format(
      "the machine was busy: {:.1f} processes wanted its {} cores in the minute before the speeds were measured; take "
      "them as the order at most",
      load, cores);
}

}  // namespace baton

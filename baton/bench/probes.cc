// Reading /proc and /sys.
#include "baton/bench/probes.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace baton {
namespace {

std::optional<double> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  double value = 0;
  return in >> value ? std::optional<double>(value) : std::nullopt;
}

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

EnergyMeter::EnergyMeter(std::filesystem::path folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    // Packages only: "intel-rapl:0", not its parts "intel-rapl:0:1".
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("intel-rapl:") || std::count(name.begin(), name.end(), ':') != 1) continue;
    const auto now = number_in(entry.path() / "energy_uj");
    const auto range = number_in(entry.path() / "max_energy_range_uj");
    if (now) counters_.push_back({entry.path(), *now, range.value_or(0)});
  }
}

void EnergyMeter::start() {
  for (Counter& counter : counters_) counter.start = number_in(counter.folder / "energy_uj").value_or(counter.start);
}

std::optional<double> EnergyMeter::joules() const {
  if (counters_.empty()) return std::nullopt;
  double sum = 0;
  for (const Counter& counter : counters_) {
    const auto now = number_in(counter.folder / "energy_uj");
    if (!now) return std::nullopt;
    sum += *now >= counter.start ? *now - counter.start : *now + counter.range - counter.start;
  }
  return sum * 1e-6;
}

}  // namespace baton

// What the system tells of this process and processor: peak memory, energy. Linux only; elsewhere nothing is known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace baton {

// Largest resident memory since the last call of reset_peak_memory (or the start, where it cannot be reset).
void reset_peak_memory();
std::optional<uint64_t> peak_memory_bytes();

// Energy of the processor packages, from the counters of RAPL below `folder` (intel-rapl:<n>/energy_uj, wrapping at
// max_energy_range_uj): everything the packages did meanwhile, other programs included. Empty where they cannot be
// read.
class EnergyMeter {
 public:
  explicit EnergyMeter(std::filesystem::path folder = "/sys/class/powercap");
  void start();
  // Since start, joules.
  std::optional<double> joules() const;

 private:
  struct Counter {
    std::filesystem::path folder;
    double start = 0, range = 0;  // microjoules
  };
  std::vector<Counter> counters_;
};

}  // namespace baton

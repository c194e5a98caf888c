// Energy used by this machine's processors and GPUs, read from their own counters: RAPL below /sys/class/powercap and
// NVML. Only readings: where there is no counter there is no figure, and the reason why. The counters see the whole
// package or board, other programs included.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/base/status.h"

namespace baton {

// One counter. Used from one thread.
class EnergyCounter {
 public:
  virtual ~EnergyCounter() = default;
  virtual const std::string& source() const = 0;  // "RAPL package-0", "NVML NVIDIA H100 #0"
  // Joules since it was opened, never falling. A RAPL counter wraps (after some 20 minutes under full load): one wrap
  // between two calls is made up for, two are not seen.
  virtual Result<double> joules() = 0;
  // How far apart its steps are at most: what is shorter by far has no figure. 0: not known.
  virtual double step_ms() const { return 0; }
};

struct EnergyReading {
  std::string source;
  double joules = 0;
};

// The NVML functions in use, by their names in nvml.h. Return 0 for success. Those of clocks may be null.
struct NvmlCalls {
  int (*init)() = nullptr;                                          // nvmlInit_v2
  int (*shutdown)() = nullptr;                                      // nvmlShutdown
  const char* (*error_string)(int) = nullptr;                       // nvmlErrorString
  int (*count)(unsigned*) = nullptr;                                // nvmlDeviceGetCount_v2
  int (*handle)(unsigned, void**) = nullptr;                        // nvmlDeviceGetHandleByIndex_v2
  int (*name)(void*, char*, unsigned) = nullptr;                    // nvmlDeviceGetName
  int (*energy_millijoules)(void*, unsigned long long*) = nullptr;  // nvmlDeviceGetTotalEnergyConsumption
  int (*clock_mhz)(void*, int, unsigned*) = nullptr;                // nvmlDeviceGetClockInfo
  int (*clock_mhz_max)(void*, int, unsigned*) = nullptr;            // nvmlDeviceGetMaxClockInfo
  int (*clock_reasons)(void*, unsigned long long*) = nullptr;       // nvmlDeviceGetCurrentClocksThrottleReasons
};
// From the library of that name, which stays loaded. kNotFound, kUnsupported: what it lacks.
Result<NvmlCalls> load_nvml(const std::string& library);

struct EnergyPlaces {
  std::filesystem::path powercap = "/sys/class/powercap";
  std::string nvml_library = "libnvidia-ml.so.1";
};

// All counters there are. Used from one thread.
class EnergyMeter {
 public:
  explicit EnergyMeter(const EnergyPlaces& places = {});
  explicit EnergyMeter(std::vector<std::unique_ptr<EnergyCounter>> counters) : counters_(std::move(counters)) {}

  bool available() const { return !counters_.empty(); }
  // The longest of its counters.
  double step_ms() const;
  std::vector<std::string> sources() const;
  // Why a kind of counter is not there, one entry for each: "no RAPL: /sys/class/powercap is not there".
  const std::vector<std::string>& missing() const { return missing_; }
  // `missing` as one line, or the error of the last reading that failed; empty: nothing to say.
  std::string reason() const;

  // Readings count from here.
  void start();
  // Since `start` (or the opening), by counter; empty when there is none or one of them failed.
  std::vector<EnergyReading> readings();
  std::optional<double> joules();  // their sum

 private:
  std::vector<std::unique_ptr<EnergyCounter>> counters_;
  std::vector<double> start_;  // by counter; shorter than counters_: 0
  std::vector<std::string> missing_;
  std::string failure_;
};

// Package domains below `powercap`: "intel-rapl:<n>" whose name is package-*, not their parts ("intel-rapl:0:1": cores,
// memory) and not "psys", which holds the packages. Processors of AMD are there under the same names. kNotFound says
// what could not be read.
Result<std::vector<std::unique_ptr<EnergyCounter>>> open_rapl(const std::filesystem::path& powercap);
// The boards NVML knows.
Result<std::vector<std::unique_ptr<EnergyCounter>>> open_nvml(const NvmlCalls& calls);

}  // namespace baton

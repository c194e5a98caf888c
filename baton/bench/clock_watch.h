// Clocks of GPUs while something is measured: whether they fell below their highest, how far and why, by NVML.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "baton/bench/energy_meter.h"

namespace baton {

// Of one board, in a time in which it was not idle.
struct ClockFall {
  std::string source;                // "NVML NVIDIA H100 #0"
  uint32_t mhz_max = 0;              // of its processors, what NVML says they can have
  uint32_t mhz_lowest = 0;           // that was seen beside a reason
  uint64_t reasons = 0;              // NVML's bits, all that were seen
  std::string reasons_text() const;  // "power cap, heat"
  std::string text() const;          // "NVML NVIDIA H100 #0: clocks fell: 1,980 -> 1,410 MHz, power cap"
};

// Looks every few milliseconds, on a thread of its own, and once at the end. Where there is no NVML, or one that tells
// no clocks, it sees nothing. Used from one thread.
class ClockWatch {
 public:
  explicit ClockWatch(const std::string& nvml_library = "libnvidia-ml.so.1");
  explicit ClockWatch(const NvmlCalls& calls, uint32_t every_ms = 20);
  ClockWatch(const ClockWatch&) = delete;
  ClockWatch& operator=(const ClockWatch&) = delete;
  ~ClockWatch();

  bool available() const { return !boards_.empty(); }
  void start();
  // Since `start`.
  std::vector<ClockFall> stop();

 private:
  struct Board {
    void* device = nullptr;
    ClockFall fall;  // mhz_lowest 0: none
  };
  void open();
  void look();

  NvmlCalls calls_;
  uint32_t every_ms_ = 20;
  bool started_ = false;  // NVML
  std::vector<Board> boards_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace baton

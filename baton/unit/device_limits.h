// What a unit's device can do at most, measured on it: percentages of a bench are of these (Unit::limit).
#pragma once

#include <cstdint>
#include <string>

namespace baton {

// Work per second, and how that was measured.
struct Rate {
  std::string what;                      // "read of 256 MiB, 2 threads", "int8 vpdpbusd zmm, 2 threads"
  double median = 0, low = 0, high = 0;  // bytes or operations per second; the lowest and highest run
};

// A multiply and an add are two operations.
enum class DeviceLimit : uint8_t {
  kRead,          // bytes/s of the device's memory that kernels read, of more than its caches hold
  kCopy,          // bytes/s that a copy within it moves, what is read and what is written both counted
  kFromHost,      // bytes/s that come from pinned memory of the host
  kBF16Products,  // operations/s of matrix products: bf16, sums in f32
  kF32Products,   // operations/s: f32
};

}  // namespace baton

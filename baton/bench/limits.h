// What this machine's processor can do at most, measured here and now at a thread count: bytes read per second, and
// operations per second of the dot product that a kernel uses. Percentages of a bench are of these.
//
// Reading: all threads at once read even shares of anonymous memory on huge pages (where the system gives them), 64
// bytes at a time. Arithmetic: registers only, enough independent sums to hide the latency; a multiply and an add count
// as two operations. A rate is the median of kLimitRuns runs of some 10 ms after a warm-up. Measured once per object;
// all of it takes less than 2 s.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "baton/base/simd/arithmetic.h"
#include "baton/base/status.h"
#include "baton/base/thread_pool.h"
#include "baton/unit/device_limits.h"
#include "baton/unit/host/kernels.h"

namespace baton {

inline constexpr int kLimitRuns = 7;

// The arithmetic that products of a packing use in a kernel set.
Arithmetic arithmetic_of(const host::Kernels& kernels, host::Packing packing);

// Used from one thread.
class Limits {
 public:
  // 0: physical cores. Starts threads - 1 threads.
  explicit Limits(uint32_t threads) : pool_(threads) {}

  uint32_t threads() const { return pool_.size(); }
  // Reading the same `bytes` (to the nearest eighth of an octave) over and over, but at most memory_bytes(): what a
  // decode step does with its weights. Where they fit a cache this is the cache's rate. kOutOfMemory.
  Result<Rate> read(uint64_t bytes);
  // kUnsupported when this processor has not got it.
  Result<Rate> arithmetic(Arithmetic which);
  // Bytes that no cache of this machine holds: three times the last-level cache, within 256 and 1024 MiB and a quarter
  // of the memory.
  static uint64_t memory_bytes();
  // Of the last-level cache; 0: unknown.
  static uint64_t cache_bytes();

 private:
  ThreadPool pool_;
  std::map<uint64_t, Rate> reads_;
  std::map<Arithmetic, Rate> arithmetics_;
};

}  // namespace baton

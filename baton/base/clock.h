// Time as an input: the engine reads the clock it is given, so that a test can replay it.
#pragma once

#include <chrono>
#include <cstdint>

namespace baton {

// Monotonic, nanoseconds since an arbitrary start. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t now_ns() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

class FakeClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  void advance_ns(int64_t by) { now_ns_ += by; }

 private:
  int64_t now_ns_ = 0;
};

inline double ms_between(int64_t start_ns, int64_t end_ns) { return static_cast<double>(end_ns - start_ns) * 1e-6; }

}  // namespace baton

// Timed loops of reads and of arithmetic on all threads.
#include "baton/bench/limits.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <functional>
#include <string_view>

#include "baton/base/clock.h"
#include "baton/bench/limits_loops.h"
#include "baton/bench/stats.h"
#include "baton/unit/host/memory.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace baton {
namespace {

constexpr double kRunSeconds = 0.01;
constexpr uint64_t kMiB = uint64_t{1} << 20;

// Work done per second: `run(rounds)` does rounds * per_round of it. Rounds are doubled until a run is long enough to
// say how many fill kRunSeconds; these runs are also the warm-up.
Rate timed(std::string what, double per_round, const std::function<void(uint64_t rounds)>& run) {
  const SteadyClock clock;
  const auto seconds_of = [&](uint64_t rounds) {
    const int64_t start = clock.now_ns();
    run(rounds);
    return std::max(ms_between(start, clock.now_ns()) / 1e3, 1e-9);
  };
  // The quickest of a few: a thread that another program kept waiting must not make the runs short.
  const auto quickest = [&](uint64_t rounds) {
    double seconds = seconds_of(rounds);
    for (int i = 0; i < 3 && seconds >= kRunSeconds / 2; ++i) seconds = std::min(seconds, seconds_of(rounds));
    return seconds;
  };
  uint64_t rounds = 1;
  for (double seconds = quickest(rounds); seconds < kRunSeconds / 2; seconds = quickest(rounds)) {
    const auto enough = static_cast<uint64_t>(static_cast<double>(rounds) * (kRunSeconds / seconds));
    rounds = std::max(rounds + 1, std::min(rounds * 8, enough));
  }
  std::vector<double> rates;
  for (int i = 0; i < kLimitRuns; ++i) rates.push_back(static_cast<double>(rounds) * per_round / seconds_of(rounds));
  const Summary summary = summarize(rates);
  return {std::move(what), summary.median, summary.low, summary.high};
}

std::string thread_text(uint32_t threads) { return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s"); }

}  // namespace

uint64_t Limits::cache_bytes() {
#if defined(__APPLE__)
  uint64_t bytes = 0;
  size_t size = sizeof(bytes);
  return sysctlbyname("hw.perflevel0.l2cachesize", &bytes, &size, nullptr, 0) == 0 ? bytes : 0;
#else
  uint64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream in(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    uint64_t kilobytes = 0;
    if (in >> kilobytes) largest = std::max(largest, kilobytes * 1024);
  }
  return largest;
#endif
}

uint64_t Limits::memory_bytes() {
  const auto pages = static_cast<uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  const uint64_t memory = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t wanted = std::clamp(3 * cache_bytes(), 256 * kMiB, 1024 * kMiB);
  return std::max(std::min(wanted, memory / 4), 16 * kMiB) / kMiB * kMiB;
}

Result<Rate> Limits::read(uint64_t bytes) {
  const uint64_t per_thread_max = memory_bytes() / pool_.size() / 4096 * 4096;
  // Eight sizes an octave: tests that differ by a few tokens share a measurement.
  const uint64_t wanted = std::max<uint64_t>(bytes / pool_.size(), 512);
  const uint64_t step = std::max<uint64_t>(std::bit_floor(wanted) / 8 / 512 * 512, 512);
  const uint64_t per_thread = std::min((wanted + step / 2) / step * step, std::max<uint64_t>(per_thread_max, 4096));
  const uint64_t total = per_thread * pool_.size();
  if (const auto known = reads_.find(total); known != reads_.end()) return known->second;
  BATON_TRY(const host::Memory memory, host::Memory::allocate(total, "the measurement of memory bandwidth", "bench"));
  unsigned char* const data = memory.data();
  // First touch by the thread that reads.
  pool_.run([&](uint32_t thread) { std::memset(data + thread * per_thread, 1, per_thread); });
  const ReadLoop loop = best_read_loop();
  std::vector<uint64_t> sums(pool_.size() * 8);
  Rate rate = timed(fmt::format("read of {} MiB, {}", (total + kMiB / 2) / kMiB, thread_text(pool_.size())),
                    static_cast<double>(total), [&](uint64_t rounds) {
                      pool_.run([&](uint32_t thread) {
                        uint64_t sum = 0;
                        for (uint64_t round = 0; round < rounds; ++round)
                          sum ^= loop(data + thread * per_thread, per_thread);
                        sums[thread * 8] = sum;  // the reads are used
                      });
                    });
  // Ones in pairs cancel out: a loop that skipped something would leave a rest.
  for (const uint64_t sum : sums) BATON_CHECK(sum == 0);
  return reads_.emplace(total, std::move(rate)).first->second;
}

Result<Rate> Limits::arithmetic(Arithmetic which) {
  if (const auto known = arithmetics_.find(which); known != arithmetics_.end()) return known->second;
  BATON_TRY(const ArithmeticLoop loop, arithmetic_loop(which));
  Rate rate = timed(fmt::format("{}, {}", loop.name, thread_text(pool_.size())),
                    loop.operations * static_cast<double>(pool_.size()),
                    [&](uint64_t rounds) { pool_.run([&](uint32_t) { loop.run(rounds); }); });
  return arithmetics_.emplace(which, std::move(rate)).first->second;
}

Arithmetic arithmetic_of(const host::Kernels& kernels, host::Packing packing) {
  if (packing == host::Packing::kF32) return kernels.arithmetic.f32;
  return host::is_integer(packing) ? kernels.arithmetic.integers : kernels.arithmetic.f16;
}

}  // namespace baton

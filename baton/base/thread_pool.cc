// Start, spin, sleep and end of the workers; counting of cores.
#include "baton/base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <string>
#include <utility>

#include "baton/base/affinity.h"

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace baton {
namespace {

constexpr auto kSpinTime = std::chrono::microseconds(60);
// Longer than what a request does between two passes. A virtual processor that goes idle is taken away, and given back
// late: with sleep after 60 us, 8 threads of a shared host decoded slower than 4.
constexpr auto kYieldTime = std::chrono::milliseconds(2);
constexpr int kPausesPerClockRead = 64;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Waits until `value` differs from `old`: by spinning, then letting others run, then in the kernel. Whoever changes
// `value` and then finds `sleepers` above zero must notify; both orders are sequentially consistent, so one of the two
// sees the other.
void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old, std::atomic<uint32_t>& sleepers) {
  const auto start = std::chrono::steady_clock::now();
  auto waited = start - start;
  do {
    if (waited >= kSpinTime) std::this_thread::yield();
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause();
    }
    waited = std::chrono::steady_clock::now() - start;
  } while (waited < kYieldTime);
  sleepers.fetch_add(1);
  while (value.load() == old) value.wait(old);
  sleepers.fetch_sub(1);
}

#if defined(__linux__)
// The first integer of a small file of the system, or -1.
int read_integer(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return -1;
  int value = -1;
  if (std::fscanf(file, "%d", &value) != 1) value = -1;
  std::fclose(file);
  return value;
}
#endif

}  // namespace

ThreadPool::ThreadPool(uint32_t threads, std::vector<uint32_t> cores)
    : cores_(std::move(cores)),
      threads_(threads > 0      ? threads
               : cores_.empty() ? physical_cores()
                                : static_cast<uint32_t>(cores_.size())),
      next_(threads_) {
  workers_.reserve(threads_ - 1);
  try {
    for (uint32_t thread = 1; thread < threads_; ++thread) workers_.emplace_back([this, thread] { work(thread); });
  } catch (...) {
    stopping_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::start(Function function, void* context) {
  if (threads_ == 1) return function(context, 0);
  function_ = function;
  context_ = context;
  running_.store(threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1);
  if (sleeping_workers_.load() != 0) generation_.notify_all();
  function(context, 0);
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    wait_for_change(running_, left, sleeping_caller_);
  }
}

void ThreadPool::work(uint32_t thread) {
  const PinnedThread pinned(cores_);
  if (!pinned.holds()) strays_.store(true, std::memory_order_relaxed);
  uint32_t seen = 0;
  for (;;) {
    wait_for_change(generation_, seen, sleeping_workers_);
    ++seen;  // the caller waits for all before it advances again, so no generation is ever skipped
    if (stopping_.load(std::memory_order_relaxed)) return;
    function_(context_, thread);
    // Every step notifies: the caller sleeps on the exact count it saw.
    running_.fetch_sub(1);
    if (sleeping_caller_.load() != 0) running_.notify_one();
  }
}

uint32_t physical_cores() {
#if defined(__linux__)
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    std::set<std::pair<int, int>> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed)) continue;
      const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
      const int core = read_integer(folder + "core_id");
      // Without topology each processor counts as a core.
      cores.emplace(read_integer(folder + "physical_package_id"), core >= 0 ? core : -1 - cpu);
    }
    if (!cores.empty()) return static_cast<uint32_t>(cores.size());
  }
#elif defined(__APPLE__)
  int count = 0;
  size_t bytes = sizeof(count);
  if (sysctlbyname("hw.perflevel0.physicalcpu", &count, &bytes, nullptr, 0) == 0 && count > 0) {
    return static_cast<uint32_t>(count);
  }
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace baton

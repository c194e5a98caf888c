// A fixed set of threads for data-parallel loops: the caller and its workers run one function each, nothing is queued.
// Workers spin for some tens of microseconds after a job, give way to others for two milliseconds, then sleep: the many
// short loops of a decode step start at once and an idle pool costs nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace baton {

// Owner: one; `run` and `parallel_for` are called from one thread at a time, and never from inside a job.
// A call does not allocate. A job must not throw.
class ThreadPool {
 public:
  // `threads` counts the caller: threads - 1 workers are started; 0 means as many as `cores`, or physical_cores() where
  // there are none. Workers are kept on the cores (baton/base/affinity.h); the caller sees to itself. Throws
  // std::system_error when the system refuses a thread.
  explicit ThreadPool(uint32_t threads, std::vector<uint32_t> cores = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t size() const { return threads_; }
  const std::vector<uint32_t>& cores() const { return cores_; }
  // Whether the system kept a worker elsewhere.
  bool strays() const { return strays_.load(std::memory_order_relaxed); }

  // job(thread) once on each thread, 0 being the caller; returns when all have returned.
  template <class Job>
  void run(Job&& job) {
    start([](void* context, uint32_t thread) { (*static_cast<std::remove_reference_t<Job>*>(context))(thread); }, &job);
  }

  // job(begin, end, thread) over [0, items) in pieces of at most `grain`. Each thread takes its own share first, one
  // piece after the other, so that it reads memory in long runs; then it helps with what is left of the others'.
  template <class Job>
  void parallel_for(int64_t items, int64_t grain, Job&& job) {
    if (items <= 0) return;
    if (threads_ == 1 || items <= grain) {
      for (int64_t begin = 0; begin < items; begin += grain)
        job(begin, begin + grain < items ? begin + grain : items, 0u);
      return;
    }
    const int64_t pieces = (items + grain - 1) / grain;
    const auto first_of = [&](uint32_t share) { return pieces * share / threads_ * grain; };
    for (uint32_t share = 0; share < threads_; ++share)
      next_[share].item.store(first_of(share), std::memory_order_relaxed);
    run([&](uint32_t thread) {
      for (uint32_t i = 0; i < threads_; ++i) {
        const uint32_t share = (thread + i) % threads_;
        const int64_t share_end = share + 1 == threads_ ? items : first_of(share + 1);
        for (;;) {
          const int64_t begin = next_[share].item.fetch_add(grain, std::memory_order_relaxed);
          if (begin >= share_end) break;
          job(begin, begin + grain < share_end ? begin + grain : share_end, thread);
        }
      }
    });
  }

 private:
  using Function = void (*)(void* context, uint32_t thread);
  void start(Function function, void* context);
  void work(uint32_t thread);

  struct alignas(64) Next {
    std::atomic<int64_t> item{0};
  };

  const std::vector<uint32_t> cores_;
  const uint32_t threads_;
  std::atomic<bool> strays_{false};
  std::vector<Next> next_;       // of each thread's share
  Function function_ = nullptr;  // written before generation_ is advanced
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> running_{0};
  alignas(64) std::atomic<uint32_t> sleeping_workers_{0};
  std::atomic<uint32_t> sleeping_caller_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

// Cores this process may run on, hyper-threads of one core counted once; at least 1.
uint32_t physical_cores();

}  // namespace baton

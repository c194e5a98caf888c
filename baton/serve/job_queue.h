// Requests that wait for a worker: bounded, and fair between those who ask.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "baton/serve/job.h"

namespace baton::serve {

// Any thread. Of each key the first that came is next; between keys their weights decide: who has waited with nothing
// taken begins where the others are, and does not catch up on what it did not ask for.
class JobQueue {
 public:
  explicit JobQueue(uint32_t waiting_max) : waiting_max_(waiting_max) {}

  enum class Pushed : uint8_t { kYes, kFull, kKeyFull, kClosed };
  // Takes the job only with kYes.
  Pushed push(std::unique_ptr<Job>& job);
  // Waits for one, of a key of which less run than may; null: closed, and nothing waits. It runs until `ended`.
  std::unique_ptr<Job> pop();
  void ended(uint32_t key);
  // The client left: null when it waits no longer.
  std::unique_ptr<Job> remove(uint64_t number);
  // Nothing more comes in; all that waited.
  std::vector<std::unique_ptr<Job>> close();
  uint64_t waiting() const;

 private:
  struct Line {
    std::map<uint64_t, std::unique_ptr<Job>> jobs;  // by number: the order they came in
    double passed = 0;                              // jobs taken, over the weight
    uint32_t weight = 1;
    uint32_t running = 0, running_max = UINT32_MAX;
    bool ready() const { return !jobs.empty() && running < running_max; }
  };
  Line* next_line();
  const uint32_t waiting_max_;
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::map<uint32_t, Line> lines_;  // by key
  uint64_t waiting_ = 0;
  double passed_ = 0;  // of the line that was served last
  bool closed_ = false;
};

}  // namespace baton::serve

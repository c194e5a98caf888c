// Requests that wait for a worker: bounded, and fair between those who ask.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "baton/serve/job.h"

namespace baton::serve {

// Any thread. A queue for each model: next is the one with the fewest requests that run, and one without any may run
// one beyond `running_max`, so that the requests of a model never wait for those of others alone. Of each key the first
// that came is next; between keys their weights decide: who has waited with nothing taken begins where the others are,
// and does not catch up on what it did not ask for.
class JobQueue {
 public:
  JobQueue(uint32_t waiting_max, uint32_t running_max) : waiting_max_(waiting_max), running_max_(running_max) {}

  enum class Pushed : uint8_t { kYes, kFull, kKeyFull, kClosed };
  // Takes the job only with kYes; `taken` is called before a worker can have it.
  Pushed push(std::unique_ptr<Job>& job, const std::function<void(Job&)>& taken = {});
  // Waits for one that may run, of a key of which less run than may, and counts it as such until it is `done`; null:
  // closed, and nothing waits.
  std::unique_ptr<Job> pop();
  void done(uint32_t model, uint32_t key);
  // Whether it would wait for others of its key.
  bool waits_for_its_key(const Job& job) const;
  // The client left: null when it waits no longer.
  std::unique_ptr<Job> remove(uint64_t number);
  // Nothing more comes in; all that waited.
  std::vector<std::unique_ptr<Job>> close();
  uint64_t waiting() const;
  // Of one model.
  struct Counts {
    uint64_t running = 0, waiting = 0;
  };
  Counts counts_of(uint32_t model) const;

 private:
  struct Line {
    std::map<uint64_t, std::unique_ptr<Job>> jobs;  // by number: the order they came in
    double passed = 0;                              // jobs taken, over the weight
    uint32_t weight = 1;
  };
  struct Model {
    std::map<uint32_t, Line> lines;  // by key
    uint64_t waiting = 0, running = 0;
    double passed = 0;  // of the line that was served last
    uint64_t turn = 0;  // of when one was taken last
  };
  // Of all models.
  struct Key {
    uint64_t waiting = 0, running = 0;
    uint32_t running_max = UINT32_MAX;
  };
  Model* next_model();
  Line* next_line(Model& model);
  std::unique_ptr<Job> take(Model& model);
  // One less waits.
  void left(Model& model, uint32_t key);

  const uint32_t waiting_max_, running_max_;
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::map<uint32_t, Model> models_;  // by PooledModel::index
  std::map<uint32_t, Key> keys_;
  uint64_t waiting_ = 0, running_ = 0, turns_ = 0;
  bool closed_ = false;
};

}  // namespace baton::serve

// Fetches models into the hub's cache for /api/pull, where the server was told that it may.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "baton/hub/settings.h"
#include "baton/serve/formats/ollama_models.h"
#include "baton/serve/job.h"

namespace baton::serve {

// One at a time, on a thread of its own. Outlives the exchanges that it took.
class Puller {
 public:
  explicit Puller(hub::Settings settings) : settings_(std::move(settings)) {}
  ~Puller();  // ends, and waits for it
  Puller(const Puller&) = delete;
  Puller& operator=(const Puller&) = delete;

  // Answers: lines of progress, or one at the end. An ApiError: nothing was begun. Who has read the last line may start
  // the next.
  tl::expected<void, ApiError> start(const ExchangePtr& exchange, const formats::PullRequest& request);

  // What is fetched is interrupted, from any thread; the next pull, of another process, goes on from there.
  void end() { ending_ = true; }

 private:
  const hub::Settings settings_;
  std::mutex mutex_;  // of the next
  std::thread thread_;
  std::atomic<bool> running_{false}, ending_{false};
};

}  // namespace baton::serve

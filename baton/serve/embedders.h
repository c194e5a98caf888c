// Models that make vectors, beside those that write text: each has a thread that computes, and a line of requests
// before it, first come, first served.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "baton/api/embed.h"
#include "baton/serve/model_lease.h"

namespace baton::serve {

inline constexpr size_t kEmbedWaitingMax = 256;  // requests of one model

class ServedEmbedder final : public Served {
 public:
  // kOutOfMemory when the system refuses a thread.
  static Result<std::unique_ptr<ServedEmbedder>> create(std::unique_ptr<Embedder> embedder);
  ~ServedEmbedder() override;  // waits for what runs; what waits is dropped
  ServedEmbedder(const ServedEmbedder&) = delete;
  ServedEmbedder& operator=(const ServedEmbedder&) = delete;

  const Embedder& embedder() const { return *embedder_; }

  // Any thread, never waits: the work is done on this model's thread, which `lease` keeps loaded until then. False: as
  // many wait as may; nothing was done.
  bool post(std::function<void(Embedder&)> work, ModelLease lease);

 private:
  struct Work {
    ModelLease lease;
    std::function<void(Embedder&)> run;
  };
  explicit ServedEmbedder(std::unique_ptr<Embedder> embedder) : embedder_(std::move(embedder)) {}
  void loop();

  const std::unique_ptr<Embedder> embedder_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Work> waiting_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace baton::serve

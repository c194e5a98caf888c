// Models that make vectors, beside those that write text: each has a thread that computes, and a line of requests
// before it, first come, first served.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "baton/api/embed.h"

namespace baton::serve {

inline constexpr size_t kEmbedWaitingMax = 256;  // requests of one model

class ServedEmbedder {
 public:
  // kOutOfMemory when the system refuses a thread.
  static Result<std::unique_ptr<ServedEmbedder>> create(std::string name, std::vector<std::string> aliases,
                                                        std::unique_ptr<Embedder> embedder);
  ~ServedEmbedder();  // waits for what runs; what waits is dropped
  ServedEmbedder(const ServedEmbedder&) = delete;
  ServedEmbedder& operator=(const ServedEmbedder&) = delete;

  const std::string& name() const { return name_; }
  bool is_called(std::string_view name) const;
  int64_t created() const { return created_; }  // seconds since 1970
  const Embedder& embedder() const { return *embedder_; }

  // Any thread, never waits: the work is done on this model's thread. False: as many wait as may; nothing was done.
  using Work = std::function<void(Embedder&)>;
  bool post(Work work);

 private:
  ServedEmbedder(std::string name, std::vector<std::string> aliases, std::unique_ptr<Embedder> embedder);
  void loop();

  const std::string name_;
  const std::vector<std::string> aliases_;
  const std::unique_ptr<Embedder> embedder_;
  const int64_t created_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Work> waiting_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace baton::serve

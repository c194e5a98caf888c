// One thread for each model, and its line.
#include "baton/serve/embedders.h"

#include <fmt/format.h>

#include <system_error>

namespace baton::serve {

Result<std::unique_ptr<ServedEmbedder>> ServedEmbedder::create(std::unique_ptr<Embedder> embedder) try {
  std::unique_ptr<ServedEmbedder> made(new ServedEmbedder(std::move(embedder)));
  made->thread_ = std::thread([served = made.get()] { served->loop(); });
  return made;
} catch (const std::system_error& error) {
  return fail(Code::kOutOfMemory, fmt::format("cannot start the thread of an embedding model: {}: allow more processes "
                                              "(ulimit -u)",
                                              error.code().message()));
}

ServedEmbedder::~ServedEmbedder() {
  std::deque<Work> dropped;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    dropped.swap(waiting_);
  }
  came_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool ServedEmbedder::post(std::function<void(Embedder&)> work, ModelLease lease) {
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || waiting_.size() >= kEmbedWaitingMax) return false;
    waiting_.push_back({std::move(lease), std::move(work)});
  }
  came_.notify_one();
  return true;
}

void ServedEmbedder::loop() {
  for (;;) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      came_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
      if (closing_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work.run(*embedder_);
  }
}

}  // namespace baton::serve

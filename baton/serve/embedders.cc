// One thread for each model, and its line.
#include "baton/serve/embedders.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <system_error>

namespace baton::serve {

ServedEmbedder::ServedEmbedder(std::string name, std::vector<std::string> aliases, std::unique_ptr<Embedder> embedder)
    : name_(std::move(name)),
      aliases_(std::move(aliases)),
      embedder_(std::move(embedder)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

Result<std::unique_ptr<ServedEmbedder>> ServedEmbedder::create(std::string name, std::vector<std::string> aliases,
                                                               std::unique_ptr<Embedder> embedder) try {
  std::unique_ptr<ServedEmbedder> made(new ServedEmbedder(std::move(name), std::move(aliases), std::move(embedder)));
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

bool ServedEmbedder::is_called(std::string_view name) const {
  return name == name_ || std::find(aliases_.begin(), aliases_.end(), name) != aliases_.end();
}

bool ServedEmbedder::post(Work work) {
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || waiting_.size() >= kEmbedWaitingMax) return false;
    waiting_.push_back(std::move(work));
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
    work(*embedder_);
  }
}

}  // namespace baton::serve

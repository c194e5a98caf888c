// One thread that tries, every few milliseconds while there is anything.
#include "baton/serve/outbox.h"

#include <algorithm>
#include <chrono>
#include <string_view>

namespace baton::serve {

bool Unsent::push(std::string_view bytes) {
  bytes_ += bytes;
  return flush() && bytes_.size() - at_ <= kBytesMax;
}

bool Unsent::flush() {
  while (!empty()) {
    const std::string_view piece = std::string_view(bytes_).substr(at_, kPieceBytes);
    if (!exchange_->try_write(piece)) {
      if (exchange_->gone()) return false;
      break;
    }
    at_ += piece.size();
  }
  if (empty() || at_ > kBytesMax / 8) {
    bytes_.erase(0, at_);
    at_ = 0;
  }
  return true;
}

void Outbox::start() {
  thread_ = std::thread([this] { loop(); });
}

void Outbox::finish(Unsent unsent) {
  if (!unsent.flush()) return;
  if (unsent.empty()) return unsent.end();
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    if (unsent_.size() == kStreamsMax) unsent_.pop_front();  // its connection closes
    unsent_.push_back(std::move(unsent));
  }
  came_.notify_one();
}

void Outbox::loop() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    unsent_.remove_if([](Unsent& unsent) {
      const bool there = unsent.flush();
      if (there && unsent.empty()) unsent.end();
      return !there || unsent.empty();
    });
    if (unsent_.empty()) {
      came_.wait(lock, [&] { return closing_ || !unsent_.empty(); });
    } else {
      came_.wait_for(lock, std::chrono::milliseconds(10));
    }
  }
}

void Outbox::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  came_.notify_all();
  if (thread_.joinable()) thread_.join();
  unsent_.clear();
}

uint64_t Outbox::waiting() const {
  const std::lock_guard lock(mutex_);
  return unsent_.size();
}

}  // namespace baton::serve

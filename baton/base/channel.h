// A bounded queue between threads: the only thing threads share. Closing wakes everyone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace baton {

// Many senders, many receivers. The bound is set at start; senders are told when it is reached.
template <class T>
class Channel {
 public:
  explicit Channel(size_t items_max) : items_max_(items_max) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // False when full or closed; `item` is then untouched.
  bool try_send(T& item) {
    const std::scoped_lock lock(mutex_);
    if (closed_ || items_.size() >= items_max_) return false;
    items_.push_back(std::move(item));
    ready_.notify_one();
    return true;
  }
  // Waits while full. False when closed.
  bool send(T item) {
    std::unique_lock lock(mutex_);
    space_.wait(lock, [&] { return closed_ || items_.size() < items_max_; });
    if (closed_) return false;
    items_.push_back(std::move(item));
    ready_.notify_one();
    return true;
  }
  // Waits for an item; empty when closed and drained.
  std::optional<T> receive() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return take_locked();
  }
  // Empty when nothing came in time, or closed and drained.
  std::optional<T> receive_for(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, timeout, [&] { return closed_ || !items_.empty(); });
    return take_locked();
  }
  void close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    ready_.notify_all();
    space_.notify_all();
  }

 private:
  std::optional<T> take_locked() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    space_.notify_one();
    return item;
  }

  const size_t items_max_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::condition_variable space_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace baton

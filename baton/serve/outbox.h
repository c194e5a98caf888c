// Ends of streams that clients did not take at once, so that nobody who computes waits for who reads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "baton/http/server.h"

namespace baton::serve {

// What is still to be sent of one stream; one thread at a time.
class Unsent {
 public:
  explicit Unsent(std::shared_ptr<http::Exchange> exchange) : exchange_(std::move(exchange)) {}
  // Sends as much as the client takes. False: it is gone, or lets more than kBytesMax wait.
  bool push(std::string_view bytes);
  bool flush();
  bool empty() const { return at_ == bytes_.size(); }
  void end() { exchange_->end(); }

 private:
  static constexpr size_t kPieceBytes = 32 * 1024, kBytesMax = size_t{8} << 20;
  std::shared_ptr<http::Exchange> exchange_;
  std::string bytes_;
  size_t at_ = 0;
};

class Outbox {
 public:
  Outbox() = default;
  ~Outbox() { close(); }
  void start();
  // Sends the rest, then ends the stream. Never waits.
  void finish(Unsent unsent);
  // What was not taken by now is dropped.
  void close();
  uint64_t waiting() const;

 private:
  static constexpr size_t kStreamsMax = 1024;
  void loop();
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::list<Unsent> unsent_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace baton::serve

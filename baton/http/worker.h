// What connections have in common: the server's settings and counts, and a thread with its I/O context and connections.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include "baton/http/server.h"

namespace baton::http {

class Connection;

struct Shared {
  Limits limits;
  Server::Handler handler;
  Server::ErrorBody error_body;
  std::function<void(const Request&, const Ended&)> on_refused;  // may be empty
  std::atomic<bool> stopping{false};                             // no further request is taken; set with the mutex
  std::atomic<uint64_t> connections{0}, accepted{0}, refused{0}, bad_requests{0};
  std::atomic<uint64_t> ids{0};
  uint64_t id_seed = 0;
  std::mutex mutex;  // of `exchanges`
  std::condition_variable fewer;
  uint64_t exchanges = 0;

  std::atomic<uint64_t> body_bytes{0};  // of all requests, while they come in and until their exchange is let go

  // False: no further request is taken.
  bool begin_exchange();
  void end_exchange();
  std::string new_id();
};

// What one request takes of Limits::bodies_bytes_max; gives it back at its end.
class BodyShare {
 public:
  explicit BodyShare(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  BodyShare(BodyShare&& other) noexcept : shared_(std::move(other.shared_)), bytes_(std::exchange(other.bytes_, 0)) {}
  BodyShare& operator=(BodyShare&&) = delete;
  ~BodyShare() {
    if (bytes_ > 0) shared_->body_bytes -= bytes_;
  }
  // False: that is more than there is. It is taken all the same, until this ends.
  bool grow_to(uint64_t bytes);

 private:
  std::shared_ptr<Shared> shared_;
  uint64_t bytes_ = 0;
};

struct Worker : std::enable_shared_from_this<Worker> {
  explicit Worker(std::shared_ptr<Shared> all) : shared(std::move(all)) {}

  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard{io.get_executor()};
  const std::shared_ptr<Shared> shared;
  std::array<char, 64 * 1024> read_buffer;  // of its thread, as all that follows
  std::unordered_set<std::shared_ptr<Connection>> connections;
  bool closed = false;
  std::thread thread;

  void run();  // until its work is done; what throws costs one connection
};

}  // namespace baton::http

// What connections have in common: the server's settings and counts, and a thread with its I/O context and connections.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>

#include "baton/http/server.h"

namespace baton::http {

class Connection;

struct Shared {
  Limits limits;
  Server::Handler handler;
  Server::ErrorBody error_body;
  std::atomic<bool> stopping{false};  // no further request is taken
  std::atomic<uint64_t> connections{0}, accepted{0}, refused{0}, bad_requests{0};
  std::atomic<uint64_t> ids{0};
  uint64_t id_seed = 0;
  std::mutex mutex;  // of `exchanges`
  std::condition_variable fewer;
  uint64_t exchanges = 0;

  void begin_exchange();
  void end_exchange();
  std::string new_id();
};

struct Worker : std::enable_shared_from_this<Worker> {
  explicit Worker(std::shared_ptr<Shared> all) : shared(std::move(all)) {}

  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard{io.get_executor()};
  const std::shared_ptr<Shared> shared;
  std::unordered_set<std::shared_ptr<Connection>> connections;  // of its thread
  bool closed = false;                                          // of its thread
  std::thread thread;
};

}  // namespace baton::http

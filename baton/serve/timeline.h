// What happens to requests, for who watches: docs/server.md has the form.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "baton/http/server.h"

namespace baton::serve {

// Any thread; nothing here waits.
class Timeline {
 public:
  using Json = nlohmann::ordered_json;
  Timeline();

  double now_ms() const;  // since the server started
  int64_t started() const { return started_; }
  // Puts `seq` and `t_ms` in front.
  void add(const Json& event);
  // Whether anybody listens: what is only worth it then is left out.
  bool watched() const;
  Json events() const;
  // The stream, beginning with `snapshot`; 503 when too many listen.
  void listen(std::shared_ptr<http::Exchange> exchange, Json snapshot);
  void close();  // ends the streams

 private:
  void leave_those_gone();

  static constexpr size_t kEventsMax = 256, kListenersMax = 64;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const int64_t started_;
  mutable std::mutex mutex_;
  uint64_t seq_ = 0;
  std::deque<Json> events_;
  std::list<std::shared_ptr<http::Exchange>> listeners_;
  bool closed_ = false;
};

}  // namespace baton::serve

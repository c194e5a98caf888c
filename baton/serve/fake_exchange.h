// For tests of the service: a client without a connection.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "baton/serve/service.h"

namespace baton::serve {

// A client: what it was sent, and whether it takes any.
class FakeExchange final : public http::Exchange {
 public:
  FakeExchange(std::string path, const Json& body) {
    request_.method = "POST";
    request_.path = std::move(path);
    request_.body = body.dump();
    request_.arrived = std::chrono::steady_clock::now();
  }
  const http::Request& request() const override { return request_; }
  void respond(http::Response response) override {
    const std::lock_guard lock(mutex_);
    response_ = std::move(response);
    ended_ = true;
  }
  bool begin(int status, http::Headers /*headers*/) override {
    const std::lock_guard lock(mutex_);
    response_.status = status;
    begun_ = true;
    return true;
  }
  bool write(std::string_view bytes) override { return try_write(bytes); }
  bool try_write(std::string_view bytes) override {
    const std::lock_guard lock(mutex_);
    if (!reads_ || gone_) return false;
    response_.body += bytes;
    return true;
  }
  void end() override {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  void keep_alive(std::string /*bytes*/, std::chrono::milliseconds /*quiet*/) override {}
  bool gone() const override {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  void on_gone(std::function<void()> tell) override {
    const std::lock_guard lock(mutex_);
    tell_ = std::move(tell);
  }
  void add_header(std::string name, std::string value) override {
    const std::lock_guard lock(mutex_);
    added_.emplace_back(std::move(name), std::move(value));
  }
  void keep(std::unique_ptr<http::Note> note) override { note_ = std::move(note); }
  http::Note* note() const override { return note_.get(); }

  void leave() {
    std::function<void()> tell;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      tell = tell_;
    }
    if (tell) tell();
  }
  void read(bool reads) {
    const std::lock_guard lock(mutex_);
    reads_ = reads;
  }
  bool begun() const {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  http::Response response() const {
    const std::lock_guard lock(mutex_);
    return response_;
  }

 private:
  mutable std::mutex mutex_;
  http::Request request_;
  http::Response response_;
  std::function<void()> tell_;
  http::Headers added_;
  std::unique_ptr<http::Note> note_;
  bool reads_ = true, gone_ = false, begun_ = false, ended_ = false;
};

inline bool comes(const std::function<bool()>& what) {
  for (int i = 0; i < 3000; ++i) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace baton::serve

// What is to be sent of one answer: between who answers (any thread) and the connection (its own thread).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "baton/http/answer_head.h"
#include "baton/http/server.h"
#include "baton/http/worker.h"

namespace baton::http {

// A connection, to whoever has something for it. Any thread; never waits.
class Wakeable {
 public:
  virtual ~Wakeable() = default;
  virtual void wake() = 0;
};

// What the answer has to know of its request.
struct AnswerTerms {
  std::string request_id;
  bool head_only = false;  // HEAD: everything but the body
  bool http11 = true;
  uint64_t unsent_bytes_max = 0;
  std::chrono::steady_clock::time_point arrived = {};
};

class Outbox {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `keeps`: what the connection needs to be woken, for as long as somebody may.
  Outbox(AnswerTerms terms, bool close, std::weak_ptr<Wakeable> connection, std::shared_ptr<void> keeps);
  ~Outbox();  // tells the note

  // For who answers; see Exchange.
  void respond(Response response);
  bool begin(int status, const Headers& headers);
  bool write(std::string_view bytes);
  bool try_write(std::string_view bytes);
  void end();
  void keep_alive(std::string bytes, std::chrono::milliseconds quiet);
  bool gone() const;
  void on_gone(std::function<void()> tell);
  void add_header(std::string name, std::string value);
  void keep(std::unique_ptr<Note> note);
  Note* note() const { return note_.get(); }  // the handler's call is behind keep's
  // Nobody is left who could answer. Ends a connection whose answer is not complete.
  void abandon();

  // For the connection.
  struct Next {
    bool complete = false;   // nothing follows `bytes`
    bool abandoned = false;  // nothing follows, and the answer is not whole
    std::string bytes;
  };
  Next take();              // what is to be sent now
  void sent(size_t bytes);  // of what was taken
  void close_behind();      // no further request: said in the head if that is still to be written
  bool closes() const;
  void lose();      // the client is gone
  void all_sent();  // nobody is to be told any more
  // When a quiet answer is due for a sign of life (Time::max(): never), and to give it.
  Time quiet_until() const;
  void send_keep_alive(Time now);

 private:
  void put(std::string_view bytes);  // as one piece, with the lock
  template <class Put>
  bool putting(std::unique_lock<std::mutex>& lock, const Put& put);
  void wake(std::unique_lock<std::mutex>& lock);
  void over(bool whole);  // with the lock

  const AnswerTerms terms_;
  const std::weak_ptr<Wakeable> connection_;
  const std::shared_ptr<void> keeps_;
  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::string pending_;     // framed, not taken yet
  uint64_t in_flight_ = 0;  // taken, not sent yet
  Headers extra_;
  std::unique_ptr<Note> note_;
  Ended record_;
  Framing framing_ = Framing::kNone;
  bool begun_ = false, ended_ = false, lost_ = false, abandoned_ = false, woken_ = false, close_;
  std::function<void()> on_gone_;
  std::string keep_alive_;
  std::chrono::milliseconds quiet_{0};
  Time last_put_{};
};

// One request and its outbox, as the handler sees them. With its last owner goes the right to answer.
class ServedExchange final : public Exchange {
 public:
  ServedExchange(Request request, std::shared_ptr<Outbox> outbox, BodyShare share)
      : request_(std::move(request)), outbox_(std::move(outbox)), share_(std::move(share)) {}
  ~ServedExchange() override { outbox_->abandon(); }
  const Request& request() const override { return request_; }
  void respond(Response response) override { outbox_->respond(std::move(response)); }
  bool begin(int status, Headers headers) override { return outbox_->begin(status, headers); }
  bool write(std::string_view bytes) override { return outbox_->write(bytes); }
  bool try_write(std::string_view bytes) override { return outbox_->try_write(bytes); }
  void end() override { outbox_->end(); }
  void keep_alive(std::string bytes, std::chrono::milliseconds quiet) override {
    outbox_->keep_alive(std::move(bytes), quiet);
  }
  bool gone() const override { return outbox_->gone(); }
  void on_gone(std::function<void()> tell) override { outbox_->on_gone(std::move(tell)); }
  void add_header(std::string name, std::string value) override {
    outbox_->add_header(std::move(name), std::move(value));
  }
  void keep(std::unique_ptr<Note> note) override { outbox_->keep(std::move(note)); }
  Note* note() const override { return outbox_->note(); }

 private:
  const Request request_;
  const std::shared_ptr<Outbox> outbox_;
  const BodyShare share_;
};

}  // namespace baton::http

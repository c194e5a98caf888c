// One client: requests are read one at a time, each goes to the handler and its answer goes out before the next is
// read. While an answer is open a read stays outstanding, so that a client that leaves is noticed. What a client sends
// before its answer is complete (pipelining) is not kept: the answer goes out, then a 400, and the connection closes.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "baton/http/outbox.h"
#include "baton/http/request_reader.h"
#include "baton/http/transport.h"
#include "baton/http/worker.h"

namespace baton::http {

// All of it on the thread of its worker, but for `wake`.
class Connection final : public StreamUser, public Wakeable, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Worker& worker, std::unique_ptr<Transport> transport, std::string remote);
  ~Connection() override;

  // `refused`: is told that there is no room, and closed.
  void start(bool refused);
  void stop();   // as Server::stop_accepting
  void close();  // at once; an open exchange is gone

  void wake() override;

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class State : uint8_t { kOpening, kIdle, kReading, kAnswering, kRefusing, kLingering, kClosed };

  void on_open(error_code error) override {
    guarded([&] { opened(error); });
  }
  void on_read(error_code error, std::string_view bytes) override {
    guarded([&] { received(error, bytes); });
  }
  void on_written(error_code error, size_t bytes) override {
    guarded([&] { written(error, bytes); });
  }
  // What throws (there is no memory) costs this connection and nothing else.
  template <class Step>
  void guarded(const Step& step) {
    try {
      step();
    } catch (const std::exception&) {
      close();
    }
  }

  void opened(error_code error);
  void received(error_code error, std::string_view bytes);
  void written(error_code error, size_t bytes);
  void read();
  void read_request(std::string_view bytes);
  void dispatch(std::string_view more);
  void read_while_answering(std::string_view bytes);
  void ended_by_client(error_code error);
  std::string id_of(const Request& request) const;
  void pump();
  void answer_done();
  void send(std::string bytes);
  void refuse(int status, const std::string& message, Request request = {});  // `request`: where the reader is gone
  void linger();
  void arm();
  void on_timer();
  void on_deadline();
  Time next_deadline() const;

  Worker& worker_;
  const std::shared_ptr<Shared> shared_;
  const std::unique_ptr<Transport> transport_;
  const std::string remote_;
  boost::asio::steady_timer timer_;
  Time armed_ = Time::max();           // when the timer fires
  Time deadline_ = Time::max();        // of what the state waits for
  Time write_deadline_ = Time::max();  // while something is being sent
  std::unique_ptr<RequestReader> reader_;
  std::optional<BodyShare> body_share_;  // beside the reader
  std::shared_ptr<Outbox> outbox_;       // while an exchange is open
  std::string out_;                      // being sent
  std::string refusal_;                  // to be sent behind that
  std::string early_;                    // came while the last bytes of an answer were on their way
  size_t out_sent_ = 0;
  uint64_t discarded_ = 0;  // bytes that nobody wants
  State state_ = State::kOpening;
  bool sending_ = false, reading_ = false, client_ended_ = false, pipelined_ = false, last_bytes_ = false,
       turned_away_ = false;
};

}  // namespace baton::http

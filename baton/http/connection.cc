// See connection.h.
#include "baton/http/connection.h"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <utility>

namespace baton::http {
namespace {

namespace net = boost::asio;
using std::chrono::steady_clock;

// How long, and for how many bytes, a client that was refused may go on sending before the connection is cut: cut at
// once, it would see a reset and not the answer.
constexpr std::chrono::seconds kLinger{2};
constexpr uint64_t kLingerBytes = uint64_t{64} << 20;
constexpr uint64_t kPipelinedBytes = 64 * 1024;  // discarded behind an open answer, at most

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

Connection::Connection(Worker& worker, std::unique_ptr<Transport> transport, std::string remote)
    : worker_(worker),
      shared_(worker.shared),
      transport_(std::move(transport)),
      remote_(std::move(remote)),
      timer_(worker.io) {}

Connection::~Connection() { --shared_->connections; }

void Connection::start(bool refused) {
  worker_.connections.insert(shared_from_this());
  turned_away_ = refused;
  deadline_ = steady_clock::now() + shared_->limits.header_timeout;
  arm();
  transport_->open(shared_from_this());
}

void Connection::opened(error_code error) {
  if (state_ == State::kClosed) return;
  if (error) return close();
  state_ = State::kIdle;
  if (turned_away_) {
    refuse(503, "the server has no room for another connection; try again later");
  } else if (shared_->stopping) {
    return close();
  }
  read();
}

void Connection::read() {
  if (reading_ || client_ended_ || state_ == State::kClosed) return;
  reading_ = true;
  transport_->read(shared_from_this());
}

void Connection::received(error_code error, std::string_view bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (error) return ended_by_client(error);
  switch (state_) {
    case State::kIdle:
    case State::kReading:
      read_request(bytes);
      break;
    case State::kAnswering:
      read_while_answering(bytes);
      break;
    default:
      discarded_ += bytes.size();
      if (discarded_ > kLingerBytes) return close();
  }
  read();
}

// An answer that is already whole goes out to a client that only ended its own side; nothing else does.
void Connection::ended_by_client(error_code error) {
  client_ended_ = true;
  if (outbox_) outbox_->lose();
  if (error == net::error::eof && state_ == State::kRefusing) return;
  if (error == net::error::eof && state_ == State::kAnswering) pump();
  if (state_ != State::kAnswering || error != net::error::eof || !sending_) close();
}

void Connection::read_request(std::string_view bytes) {
  if (!reader_) {
    reader_ = std::make_unique<RequestReader>(shared_->limits);
    body_share_.emplace(shared_);
  }
  const bool had_head = reader_->in_body();
  const auto progress = reader_->put(bytes);
  if (progress == RequestReader::Progress::kRefused) {
    const Refusal refusal = reader_->refusal();
    return refuse(refusal.status, refusal.message);
  }
  if (!body_share_->grow_to(reader_->request().body.size())) {
    return refuse(503, "too many large requests at once; try again later");
  }
  if (progress == RequestReader::Progress::kDone) return dispatch(bytes);
  if (state_ == State::kIdle && reader_->started()) {
    state_ = State::kReading;
    deadline_ = steady_clock::now() + shared_->limits.header_timeout;
  }
  if (!had_head && reader_->in_body()) {
    deadline_ = steady_clock::now() + shared_->limits.body_timeout;
    if (reader_->facts().expects_continue && reader_->request().body.empty()) send("HTTP/1.1 100 Continue\r\n\r\n");
  }
  arm();
}

void Connection::dispatch(std::string_view more) {
  const HeadFacts facts = reader_->facts();
  Request request = reader_->take();
  BodyShare share = *std::move(body_share_);
  reader_.reset();
  body_share_.reset();
  request.remote = remote_;
  request.arrived = steady_clock::now();
  request.id = id_of(request);
  AnswerTerms terms{request.id, request.method == "HEAD", facts.http11, shared_->limits.unsent_bytes_max,
                    request.arrived};
  auto outbox = std::make_shared<Outbox>(std::move(terms), facts.close, weak_from_this(), worker_.shared_from_this());
  if (!shared_->begin_exchange()) return refuse(503, "the server is shutting down", std::move(request));
  outbox_ = std::move(outbox);
  state_ = State::kAnswering;
  deadline_ = Time::max();
  discarded_ = 0;
  pipelined_ = last_bytes_ = false;
  if (!more.empty()) read_while_answering(more);
  if (state_ != State::kAnswering) return;
  shared_->handler(std::make_shared<ServedExchange>(std::move(request), outbox_, std::move(share)));
}

std::string Connection::id_of(const Request& request) const {
  const std::string* id = request.header("x-request-id");
  return id && !id->empty() && id->size() <= 128 && is_printable(*id) ? *id : shared_->new_id();
}

void Connection::read_while_answering(std::string_view bytes) {
  // The client may have its answer before this thread knows that it was sent.
  if (last_bytes_ && early_.size() + bytes.size() <= kPipelinedBytes) {
    early_ += bytes;
    return;
  }
  discarded_ += bytes.size();
  if (!pipelined_ && bytes.find_first_not_of("\r\n") == bytes.npos && discarded_ <= 4) return;
  pipelined_ = true;
  outbox_->close_behind();
  if (discarded_ > kPipelinedBytes) close();
}

void Connection::wake() {
  net::post(worker_.io, [self = shared_from_this()] { self->guarded([&] { self->pump(); }); });
}

// Sends what the exchange has put since.
void Connection::pump() {
  if (state_ != State::kAnswering || sending_) return;
  Outbox::Next next = outbox_->take();
  last_bytes_ = next.complete;
  if (!next.bytes.empty()) return send(std::move(next.bytes));
  if (next.abandoned) return close();
  if (next.complete) return answer_done();
  if (client_ended_) return close();
  arm();
}

void Connection::send(std::string bytes) {
  out_ = std::move(bytes);
  out_sent_ = 0;
  sending_ = true;
  write_deadline_ = steady_clock::now() + shared_->limits.write_timeout;
  arm();
  transport_->write(shared_from_this(), out_);
}

void Connection::written(error_code error, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (error) return close();
  out_sent_ += bytes;
  if (outbox_) outbox_->sent(bytes);
  if (out_sent_ < out_.size()) {
    write_deadline_ = steady_clock::now() + shared_->limits.write_timeout;
    return transport_->write(shared_from_this(), std::string_view(out_).substr(out_sent_));
  }
  out_ = {};
  sending_ = false;
  write_deadline_ = Time::max();
  if (!refusal_.empty()) return send(std::exchange(refusal_, {}));
  if (state_ == State::kRefusing) return linger();
  pump();
}

void Connection::answer_done() {
  const bool last = outbox_->closes();
  outbox_->all_sent();
  outbox_.reset();
  shared_->end_exchange();
  state_ = State::kIdle;
  if (client_ended_) return close();
  if (pipelined_) return refuse(400, "a request came before the one in front of it was answered (pipelining)");
  if (last || shared_->stopping) return linger();
  deadline_ = steady_clock::now() + shared_->limits.idle_timeout;
  arm();
  const std::string early = std::exchange(early_, {});
  if (!early.empty()) read_request(early);
}

// Not while an answer is open.
void Connection::refuse(int status, const std::string& message, Request request) {
  if (turned_away_) ++shared_->refused;
  if (status != 503) ++shared_->bad_requests;
  if (reader_) request = reader_->take();
  request.id = id_of(request);
  request.remote = remote_;
  reader_.reset();
  body_share_.reset();
  state_ = State::kRefusing;
  deadline_ = Time::max();
  discarded_ = 0;
  Response response = shared_->error_body(status, message);
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  std::string bytes =
      answer_head(response.status, response.headers, request.id, Framing::kLength, response.body.size(), true);
  bytes += response.body;
  if (shared_->on_refused) shared_->on_refused(request, {response.status, bytes.size(), true, 0});
  if (!sending_) return send(std::move(bytes));
  refusal_ = std::move(bytes);  // behind 100 Continue, which is not out yet
}

void Connection::linger() {
  if (client_ended_) return close();
  state_ = State::kLingering;
  transport_->end_writing(shared_from_this());
  deadline_ = steady_clock::now() + kLinger;
  arm();
}

void Connection::stop() {
  if (state_ == State::kIdle && !turned_away_) return close();
  if (outbox_) outbox_->close_behind();
}

void Connection::close() {
  if (std::exchange(state_, State::kClosed) == State::kClosed) return;
  if (outbox_) {
    outbox_->lose();
    outbox_.reset();
    shared_->end_exchange();
  }
  timer_.cancel();
  transport_->close();
  worker_.connections.erase(shared_from_this());
}

Connection::Time Connection::next_deadline() const {
  const Time quiet = outbox_ && !sending_ ? outbox_->quiet_until() : Time::max();
  return std::min({deadline_, write_deadline_, quiet});
}

// Deadlines move back far more often than forward: the timer is set anew only when it would fire too late.
void Connection::arm() {
  const Time next = next_deadline();
  if (state_ == State::kClosed || next >= armed_) return;
  armed_ = next;
  timer_.expires_at(next);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->guarded([&] { self->on_timer(); });
  });
}

void Connection::on_timer() {
  if (state_ == State::kClosed) return;
  armed_ = Time::max();
  const Time now = steady_clock::now();
  if (now >= write_deadline_) return close();
  if (now >= deadline_) return on_deadline();
  if (outbox_ && !sending_) {
    outbox_->send_keep_alive(now);
    pump();
  }
  arm();
}

void Connection::on_deadline() {
  if (state_ != State::kReading) return close();
  const bool body = reader_ && reader_->in_body();
  refuse(408, body ? "the body did not come in time" : "the head of the request did not come in time");
}

}  // namespace baton::http

// See outbox.h.
#include "baton/http/outbox.h"

#include <algorithm>
#include <new>
#include <utility>

#include "baton/base/status.h"

namespace baton::http {

Outbox::Outbox(AnswerTerms terms, bool close, std::weak_ptr<Wakeable> connection, std::shared_ptr<void> keeps)
    : terms_(std::move(terms)), connection_(std::move(connection)), keeps_(std::move(keeps)), close_(close) {}

Outbox::~Outbox() {
  if (note_) note_->ended(record_);
}

void Outbox::over(bool whole) {
  record_.whole = whole;
  record_.total_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - terms_.arrived).count();
}

void Outbox::add_header(std::string name, std::string value) {
  const std::lock_guard lock(mutex_);
  extra_.emplace_back(std::move(name), std::move(value));
}

void Outbox::keep(std::unique_ptr<Note> note) {
  BATON_CHECK(!note_);
  note_ = std::move(note);
}

// One wake-up for all that is put until the connection takes it.
void Outbox::wake(std::unique_lock<std::mutex>& lock) {
  const bool needed = !std::exchange(woken_, true);
  lock.unlock();
  if (!needed) return;
  try {
    if (const auto connection = connection_.lock()) connection->wake();
  } catch (const std::bad_alloc&) {
    lock.lock();
    woken_ = false;  // the next one tries again
  }
}

// Where there is no memory for what is put, the answer cannot be whole any more: its connection closes.
template <class Put>
bool Outbox::putting(std::unique_lock<std::mutex>& lock, const Put& put_now) {
  if (lost_ || abandoned_) return false;
  try {
    put_now();
  } catch (const std::bad_alloc&) {
    abandoned_ = true;
  }
  const bool good = !abandoned_;
  wake(lock);
  return good;
}

void Outbox::put(std::string_view bytes) {
  last_put_ = std::chrono::steady_clock::now();
  if (bytes.empty() || framing_ == Framing::kNone) return;
  if (framing_ == Framing::kChunked) pending_ += chunk_size_line(bytes.size());
  pending_ += bytes;
  if (framing_ == Framing::kChunked) pending_ += "\r\n";
}

void Outbox::respond(Response response) {
  std::unique_lock lock(mutex_);
  BATON_CHECK(!begun_ && !ended_);
  begun_ = ended_ = true;
  putting(lock, [&] {
    const bool none = has_no_body(response.status);
    record_.status = response.status;
    response.headers.insert(response.headers.end(), extra_.begin(), extra_.end());
    pending_ = answer_head(response.status, response.headers, terms_.request_id,
                           none ? Framing::kNone : Framing::kLength, response.body.size(), close_);
    if (!none && !terms_.head_only) pending_ += response.body;
  });
}

bool Outbox::begin(int status, const Headers& headers) {
  std::unique_lock lock(mutex_);
  BATON_CHECK(!begun_ && !ended_);
  begun_ = true;
  return putting(lock, [&] {
    if (!terms_.http11) close_ = true;
    framing_ = has_no_body(status) ? Framing::kNone : terms_.http11 ? Framing::kChunked : Framing::kToClose;
    record_.status = status;
    Headers all = headers;
    all.insert(all.end(), extra_.begin(), extra_.end());
    pending_ = answer_head(status, all, terms_.request_id, framing_, 0, close_);
    if (terms_.head_only) framing_ = Framing::kNone;
    last_put_ = std::chrono::steady_clock::now();
  });
}

bool Outbox::write(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  BATON_CHECK(begun_ && !ended_);
  room_.wait(lock, [&] { return lost_ || abandoned_ || pending_.size() + in_flight_ <= terms_.unsent_bytes_max; });
  return putting(lock, [&] { put(bytes); });
}

bool Outbox::try_write(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  BATON_CHECK(begun_ && !ended_);
  const uint64_t unsent = pending_.size() + in_flight_;
  if (unsent > 0 && unsent + bytes.size() > terms_.unsent_bytes_max) return false;
  return putting(lock, [&] { put(bytes); });
}

void Outbox::end() {
  std::unique_lock lock(mutex_);
  BATON_CHECK(begun_ && !ended_);
  ended_ = true;
  putting(lock, [&] {
    if (framing_ == Framing::kChunked) pending_ += "0\r\n\r\n";
  });
}

void Outbox::keep_alive(std::string bytes, std::chrono::milliseconds quiet) {
  std::unique_lock lock(mutex_);
  keep_alive_ = std::move(bytes);
  quiet_ = std::max(quiet, std::chrono::milliseconds(1));
  last_put_ = std::chrono::steady_clock::now();
  wake(lock);
}

bool Outbox::gone() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void Outbox::on_gone(std::function<void()> tell) {
  {
    const std::lock_guard lock(mutex_);
    if (!lost_) {
      on_gone_ = std::move(tell);
      return;
    }
  }
  tell();
}

void Outbox::all_sent() {
  std::function<void()> tell;  // ends without the lock, with what it holds
  const std::lock_guard lock(mutex_);
  tell = std::exchange(on_gone_, nullptr);
  over(true);
}

void Outbox::abandon() {
  std::function<void()> tell;
  std::unique_lock lock(mutex_);
  tell = std::exchange(on_gone_, nullptr);
  if (ended_ || lost_) return;
  abandoned_ = true;
  wake(lock);
}

Outbox::Next Outbox::take() {
  const std::lock_guard lock(mutex_);
  woken_ = false;
  in_flight_ += pending_.size();
  return {ended_ && !abandoned_, abandoned_, std::exchange(pending_, {})};
}

void Outbox::sent(size_t bytes) {
  const std::lock_guard lock(mutex_);
  in_flight_ -= std::min<uint64_t>(bytes, in_flight_);
  record_.bytes += bytes;
  if (pending_.size() + in_flight_ <= terms_.unsent_bytes_max) room_.notify_all();
}

void Outbox::close_behind() {
  const std::lock_guard lock(mutex_);
  close_ = true;
}

bool Outbox::closes() const {
  const std::lock_guard lock(mutex_);
  return close_;
}

void Outbox::lose() {
  std::function<void()> tell;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(lost_, true)) return;
    over(false);
    tell = std::exchange(on_gone_, nullptr);
    room_.notify_all();
  }
  if (tell) tell();
}

Outbox::Time Outbox::quiet_until() const {
  const std::lock_guard lock(mutex_);
  if (keep_alive_.empty() || !begun_ || ended_ || lost_) return Time::max();
  return last_put_ + quiet_;
}

void Outbox::send_keep_alive(Time now) {
  const std::lock_guard lock(mutex_);
  if (keep_alive_.empty() || !begun_ || ended_ || lost_ || now < last_put_ + quiet_) return;
  if (pending_.empty() && in_flight_ == 0) {
    put(keep_alive_);
  } else {
    last_put_ = now;  // what is under way is a sign of life
  }
}

}  // namespace baton::http

// A ring of events, and who listens to it.
#include "baton/serve/timeline.h"

#include <fmt/format.h>

namespace baton::serve {
namespace {

std::string dumped(const Timeline::Json& json) {
  return json.dump(-1, ' ', false, Timeline::Json::error_handler_t::replace);
}

}  // namespace

Timeline::Timeline()
    : started_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

double Timeline::now_ms() const {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
}

void Timeline::add(const Json& event) {
  const std::lock_guard lock(mutex_);
  Json made = {{"seq", ++seq_}, {"t_ms", now_ms()}};
  made.update(event);
  if (!listeners_.empty()) {
    const std::string text = fmt::format("event: request\nid: {}\ndata: {}\n\n", seq_, dumped(made));
    listeners_.remove_if([&](const auto& listener) {
      listener->try_write(text);
      return listener->gone();
    });
  }
  events_.push_back(std::move(made));
  if (events_.size() > kEventsMax) events_.pop_front();
}

bool Timeline::watched() const {
  const std::lock_guard lock(mutex_);
  return !listeners_.empty();
}

Timeline::Json Timeline::events() const {
  const std::lock_guard lock(mutex_);
  Json list = Json::array();
  for (const Json& event : events_) list.push_back(event);
  return list;
}

void Timeline::leave_those_gone() {
  std::list<std::shared_ptr<http::Exchange>> gone;  // let go of without the lock
  const std::lock_guard lock(mutex_);
  for (auto each = listeners_.begin(); each != listeners_.end();) {
    const auto next = std::next(each);
    if ((*each)->gone()) gone.splice(gone.end(), listeners_, each);
    each = next;
  }
}

void Timeline::listen(std::shared_ptr<http::Exchange> exchange, Json snapshot) {
  std::unique_lock lock(mutex_);
  listeners_.remove_if([](const auto& listener) { return listener->gone(); });
  if (closed_ || listeners_.size() == kListenersMax) {
    return exchange->respond({503,
                              {{"content-type", "application/json"}, {"retry-after", "5"}},
                              R"({"error": {"message": "too many listen to the timeline", "type": "server_error", )"
                              R"("param": null, "code": "overloaded"}})"});
  }
  // Under the lock: what happens from here on is behind the snapshot.
  Json events = Json::array();
  for (const Json& event : events_) events.push_back(event);
  snapshot["events"] = std::move(events);
  exchange->begin(200, {{"content-type", "text/event-stream"}, {"cache-control", "no-store"}});
  exchange->try_write(fmt::format("event: snapshot\ndata: {}\n\n", dumped(snapshot)));
  exchange->keep_alive(": \n\n", std::chrono::seconds(10));
  listeners_.push_back(exchange);
  lock.unlock();
  exchange->on_gone([this] { leave_those_gone(); });
}

void Timeline::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& listener : listeners_) listener->end();
  listeners_.clear();
}

}  // namespace baton::serve

// The lines are Ollama's, so that its clients show a bar.
#include "baton/serve/puller.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <system_error>
#include <utility>

#include "baton/hub/pull.h"
#include "baton/serve/answer_figures.h"
#include "baton/serve/body.h"
#include "baton/serve/service.h"

namespace baton::serve {
namespace {

using PullClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetweenLines{200};

struct LastLine {
  int status;
  Json line;
};

// What goes to the client, as it asked for it.
class LinesOfPull {
 public:
  LinesOfPull(ExchangePtr exchange, bool stream) : exchange_(std::move(exchange)), stream_(stream) {
    if (stream_) exchange_->begin(200, {{"content-type", "application/x-ndjson"}});
  }
  void tell(const Json& line) {
    if (stream_) exchange_->write(formats::json_line(line) + "\n");
  }
  void tell(const hub::PullProgress& progress) {
    const auto now = PullClock::now();
    const bool ends = progress.file_done == progress.file_bytes;
    if (now - told_ < kBetweenLines && !ends) return;
    told_ = now;
    const bool sha = progress.etag.size() == 64;
    tell({{"status", fmt::format("pulling {}", progress.etag.substr(0, 12))},
          {"digest", (sha ? "sha256:" : "git:") + progress.etag},
          {"total", progress.file_bytes},
          {"completed", progress.file_done}});
  }
  void end(const LastLine& last) {
    if (!stream_) return exchange_->respond(json_response(last.status, last.line));
    tell(last.line);
    exchange_->end();
  }

 private:
  const ExchangePtr exchange_;
  const bool stream_;
  PullClock::time_point told_{};
};

LastLine pull(const formats::PullRequest& request, const hub::Settings& settings, std::function<bool()> cancelled,
              LinesOfPull& lines) {
  lines.tell(Json{{"status", "pulling manifest"}});
  hub::PullOptions options;
  options.settings = settings;
  options.watch.cancelled = std::move(cancelled);
  options.progress = [&](const hub::PullProgress& progress) { lines.tell(progress); };
  const auto name = hub::parse_repo(request.model);  // checked by `start`
  const auto pulled = hub::pull(*name, options);
  if (!pulled) {
    const bool none = pulled.error().code == Code::kNotFound;
    return {none ? 404 : 500, {{"error", without_paths(pulled.error().message)}}};
  }
  lines.tell(Json{{"status", "verifying sha256 digest"}});
  lines.tell(Json{{"status", "writing manifest"}});
  lines.tell(Json{{"status", fmt::format("it is in the cache: a server started with -m {} answers with it",
                                         pulled->model.name.text())}});
  return {200, {{"status", "success"}}};
}

}  // namespace

Puller::~Puller() {
  end();
  if (thread_.joinable()) thread_.join();
}

tl::expected<void, ApiError> Puller::start(const ExchangePtr& exchange, const formats::PullRequest& request) {
  if (!hub::like_repo(request.model)) {
    return tl::unexpected(ApiError{
        .status = 400, .message = "model: takes OWNER/NAME or OWNER/NAME:TYPE, as the hub has it", .param = "model"});
  }
  const std::lock_guard lock(mutex_);
  if (running_.exchange(true)) {
    return tl::unexpected(ApiError{.status = 429,
                                   .message = "another model is fetched: ask again when it is there",
                                   .type = "rate_limit_error",
                                   .code = "overloaded"});
  }
  if (thread_.joinable()) thread_.join();
  try {
    thread_ = std::thread([this, exchange, request] {
      LinesOfPull lines(exchange, request.stream);
      const LastLine last = pull(
          request, settings_, [&] { return ending_ || exchange->gone(); }, lines);
      running_ = false;  // before the client knows, so that what it asks for next is begun
      lines.end(last);
    });
  } catch (const std::system_error&) {
    running_ = false;
    return tl::unexpected(ApiError{.status = 503, .message = "the system refuses a thread: ask again later"});
  }
  return {};
}

}  // namespace baton::serve

// The server as a whole: listener, routes, keys and the service behind them.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "baton/http/server.h"
#include "baton/serve/access_log.h"
#include "baton/serve/api_keys.h"
#include "baton/serve/cors.h"
#include "baton/serve/puller.h"
#include "baton/serve/rate_limits.h"
#include "baton/serve/service.h"

namespace baton::serve {

struct AppOptions {
  http::Options http;
  ServiceOptions service;
  std::vector<std::string> hosts;            // names that it is asked for by, beside localhost and addresses
  ApiKeys keys;                              // empty: everybody may ask
  Cors cors;                                 // pages of other sites that may ask
  AccessLog* access_log = nullptr;           // null: none. Outlives the models, as the next
  RateLimits* limits = nullptr;              // of `keys`
  Puller* puller = nullptr;                  // null: no model is fetched
  nlohmann::ordered_json machine = nullptr;  // of /props: what was detected at the start
};

class App {
 public:
  // What would keep it from opening, but for what only listening tells.
  static Status check(const AppOptions& options);
  // Listens when it returns. The pool has its models, and outlives it.
  static Result<std::unique_ptr<App>> open(AppOptions options, ModelPool& models);
  ~App();  // as close

  std::string address() const { return server_->address(); }
  // No new connections, /ready says 503, what waits is answered so. Returns at once.
  void stop();
  // Waits for what runs, at most so long, then cuts it off. False: it was cut off.
  bool drain(std::chrono::milliseconds timeout);
  void cancel_all() { service_->cancel_all(); }
  void close();

  Service& service() { return *service_; }
  const AppOptions& options() const { return options_; }
  http::Counts connections() const { return server_ ? server_->counts() : http::Counts(); }

 private:
  explicit App(AppOptions options) : options_(std::move(options)) {}
  void handle(const ExchangePtr& exchange);
  void route(const ExchangePtr& exchange);
  // False: it was answered, what the key may ask for in a minute is used up.
  bool within_limits(const ExchangePtr& exchange, const Protocol* protocol, const Caller& caller);
  tl::expected<Caller, ApiError> caller_of(const http::Request& request) const;

  AppOptions options_;
  std::unique_ptr<Service> service_;
  std::atomic<uint64_t> spans_{0};
  uint64_t first_span_ = 0;
  std::unique_ptr<http::Server> server_;  // last: closed first
};

}  // namespace baton::serve

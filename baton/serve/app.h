// The server as a whole: listener, routes, keys and the service behind them.
#pragma once

#include <memory>
#include <string>

#include "baton/http/server.h"
#include "baton/serve/api_keys.h"
#include "baton/serve/service.h"

namespace baton::serve {

struct AppOptions {
  http::Options http;
  ServiceOptions service;
  ApiKeys keys;                              // empty: everybody may ask
  nlohmann::ordered_json machine = nullptr;  // of /props: what was detected at the start
};

class App {
 public:
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
  tl::expected<Caller, ApiError> caller_of(const http::Request& request) const;

  AppOptions options_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<http::Server> server_;  // last: closed first
};

}  // namespace baton::serve

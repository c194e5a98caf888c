// From exchanges to routes.
#include "baton/serve/app.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cctype>

#include "baton/base/random.h"
#include "baton/serve/host_name.h"
#include "baton/serve/request_note.h"
#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// "Bearer KEY", or Anthropic's header.
std::string_view key_in(const http::Request& request) {
  constexpr std::string_view kBearer = "bearer ";
  if (const std::string* key = request.header("x-api-key")) return *key;
  const std::string* given = request.header("authorization");
  if (given == nullptr || given->size() <= kBearer.size()) return {};
  const std::string_view text = *given;
  return same_word(text.substr(0, kBearer.size()), kBearer) ? text.substr(kBearer.size()) : std::string_view();
}

// A page of another site may send requests through a browser, though it cannot read the answers.
bool of_another_site(const http::Request& request) {
  const std::string* origin = request.header("origin");
  const std::string* host = request.header("host");
  if (origin == nullptr || host == nullptr) return false;
  const size_t scheme = origin->find("://");
  return scheme == std::string::npos || !same_word(std::string_view(*origin).substr(scheme + 3), *host);
}

// Where nobody else reaches it and keys guard nothing, a name of its own is all that tells a page of another site.
bool guards_by_name(const AppOptions& options) {
  const http::Options& http = options.http;
  const bool loopback = http.host.starts_with("127.") || http.host == "::1" || same_word(http.host, "localhost");
  return loopback && options.keys.empty() && http.unix_socket.empty() && http.tls_certificate.empty();
}

// Whose errors are understood where no route says it.
const Protocol* protocol_of(std::string_view path) {
  return path.starts_with("/api/")          ? &ollama_chat()
         : path.starts_with("/v1/messages") ? &anthropic_messages()
                                            : nullptr;
}

http::Response error_of_server(int status, const std::string& message) {
  const bool ours = status >= 500;
  return json_response(
      status, openai::error_body(
                  {.status = status, .message = message, .type = ours ? "server_error" : "invalid_request_error"}));
}

}  // namespace

Status App::check(const AppOptions& options) { return http::Server::check(options.http); }

Result<std::unique_ptr<App>> App::open(AppOptions options, ModelPool& models) {
  if (sodium_init() < 0) return fail(Code::kInternal, "the cryptographic library does not start");
  std::unique_ptr<App> app(new App(std::move(options)));
  randombytes_buf(&app->first_span_, sizeof app->first_span_);
  if (AccessLog* log = app->options_.access_log) {
    app->options_.http.on_refused = [log](const http::Request& request, const http::Ended& ended) {
      AccessLine line = line_of(request);
      line.ended = ended;
      log->put(line);
    };
  }
  BATON_TRY(app->service_, Service::create(app->options_.service, models));
  BATON_TRY(app->server_, http::Server::open(
                              app->options_.http,
                              [app = app.get()](std::shared_ptr<http::Exchange> exchange) { app->handle(exchange); },
                              error_of_server));
  return app;
}

App::~App() { close(); }

void App::stop() {
  if (server_) server_->stop_accepting();
  service_->stop();
  if (options_.puller != nullptr) options_.puller->end();
}

bool App::drain(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const bool all = service_->drain(timeout);
  service_->timeline().close();
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  if (server_) server_->drain(std::max(left, std::chrono::milliseconds(200)));
  return all;
}

void App::close() {
  if (service_) service_->stop();
  if (server_) server_->close();
  service_.reset();
  server_.reset();
}

tl::expected<Caller, ApiError> App::caller_of(const http::Request& request) const {
  if (options_.keys.empty()) return Caller();
  const std::string_view given = key_in(request);
  const auto number = options_.keys.find(given);
  if (!number) {
    return tl::unexpected(ApiError{.status = 401,
                                   .message = given.empty() ? "no API key: send it as 'Authorization: Bearer KEY'"
                                                            : "the API key is none of this server's",
                                   .type = "authentication_error",
                                   .code = "invalid_api_key"});
  }
  const ApiKey& key = options_.keys.all()[*number];
  // One key alone shares with nobody: its checkpoints may go into the state cache.
  const uint64_t tenant = options_.keys.all().size() > 1 ? *number + 1 : 0;
  return Caller{*number, tenant, key.weight, key.waiting_max, key.name, key.running_max};
}

void App::handle(const ExchangePtr& exchange) {
  const http::Request& request = exchange->request();
  const uint64_t span = Random(first_span_ + spans_++).next();
  auto note = std::make_unique<RequestNote>(request, span, options_.access_log, options_.limits);
  if (note->line().trace) exchange->add_header("traceresponse", note->line().trace->response());
  exchange->keep(std::move(note));
  for (auto& [name, value] : options_.cors.headers(request.header("origin"))) exchange->add_header(name, value);
  route(exchange);
}

bool App::within_limits(const ExchangePtr& exchange, const Protocol* protocol, const Caller& caller) {
  RateLimits::Verdict verdict = options_.limits->take_request(caller.key);
  for (auto& [name, value] : verdict.headers) exchange->add_header(name, value);
  if (verdict.allowed) return true;
  service_->metrics().count_refused("key_limit");
  exchange->add_header("retry-after-ms", fmt::to_string(verdict.retry_ms));
  respond_error(
      *exchange, protocol,
      {.status = 429, .message = std::move(verdict.message), .type = "rate_limit_error", .code = "rate_limit_exceeded"},
      verdict.retry_ms);
  return false;
}

void App::route(const ExchangePtr& exchange) {
  const http::Request& request = exchange->request();
  const std::string* origin = request.header("origin");
  const bool invited = origin != nullptr && options_.cors.allows(*origin);
  if (const std::string methods = methods_of(request.path); !methods.empty() && invited && Cors::is_preflight(request))
    return exchange->respond(options_.cors.preflight(request, methods));
  bool known = false;
  const Route* route = find_route(request.method, request.path, &known);
  const Protocol* protocol = route != nullptr && route->protocol != nullptr ? &route->protocol() : nullptr;
  if (route == nullptr) {
    const int status = known ? 405 : 404;
    if (known) exchange->add_header("Allow", methods_of(request.path));
    return respond_error(
        *exchange, protocol_of(request.path),
        {.status = status,
         .message = known ? "this path takes another method" : "there is nothing here: /openapi.json lists what is",
         .code = known ? "method_not_allowed" : "not_found"});
  }
  if (!invited && of_another_site(request)) {
    return respond_error(*exchange, protocol,
                         {.status = 403,
                          .message = "requests from pages of other sites are refused: --cors ORIGIN lets them ask",
                          .type = "permission_error",
                          .code = "foreign_origin"});
  }
  const std::string* host = request.header("host");
  if (!route->open && host != nullptr && guards_by_name(options_) && !is_own_host(*host, options_.hosts)) {
    return respond_error(
        *exchange, protocol,
        {.status = 403,
         .message = "the Host is no name of this server: ask for localhost or its address, or start it "
                    "with --allow-host NAME",
         .type = "permission_error",
         .code = "foreign_host"});
  }
  auto caller = route->open ? Caller() : caller_of(request);
  if (!caller) return respond_error(*exchange, protocol, caller.error());
  if (!caller->name.empty()) {
    note_of(*exchange)->set_key(caller->key, caller->name);
    // What only looks is not counted.
    const bool counts = options_.limits != nullptr && route->method == "POST";
    if (counts && !within_limits(exchange, protocol, *caller)) return;
  }
  if (const std::string* coding = request.header("content-encoding"); coding != nullptr && *coding != "identity") {
    return respond_error(*exchange, protocol,
                         {.status = 415,
                          .message = "bodies are taken as they are: leave Content-Encoding out",
                          .code = "unsupported_encoding"});
  }
  if (route->handle != nullptr) return route->handle(*this, exchange, *caller);
  service_->take(*protocol, exchange, *std::move(caller));
}

}  // namespace baton::serve

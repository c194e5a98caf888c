// An HTTP/1.1 server for APIs that stream: bounded in connections, bytes and time, and no thread of it ever waits for
// who answers. Requests come whole; answers go out whole or piece by piece. RFC 9110, 9112; server-sent events are the
// caller's bytes (https://html.spec.whatwg.org/multipage/server-sent-events.html).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/base/status.h"

namespace baton::http {

// In the order they came; names in lower case.
using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // "GET", as it came
  std::string path;    // percent-decoded, begins with '/', without "." and ".." segments; UTF-8 without NUL
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in order
  Headers headers;
  std::string body;    // whole; at most Limits::body_bytes_max
  std::string remote;  // "127.0.0.1:54321", or "unix"
  std::string id;      // of X-Request-Id where it is 1 to 128 printable characters, else made here; sent back
  std::chrono::steady_clock::time_point arrived;

  const std::string* header(std::string_view name) const;  // the first; null: none
  const std::string* parameter(std::string_view name) const;
};

struct Response {
  int status = 200;
  Headers headers = {};  // Content-Length, Connection, Date and X-Request-Id are the server's
  std::string body = {};
};

// What became of one answer.
struct Ended {
  int status = 0;       // 0: there was none
  uint64_t bytes = 0;   // that were sent of it, its head too
  bool whole = false;   // all of it was; false: the client left, was too slow, or the answer was cut off
  double total_ms = 0;  // since the request had come
};

// What somebody keeps with a request, for as long as it lasts.
class Note {
 public:
  virtual ~Note() = default;
  // The answer ended, and whoever answered has let go of the exchange. Once, on the thread of the last of them; must
  // not wait, and not throw.
  virtual void ended(const Ended& ended) = 0;
};

// One request and its answer. Any thread, one at a time; `gone` and `on_gone` any thread. The last to let go of an
// exchange that was not answered closes its connection.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const Request& request() const = 0;
  // The whole answer. Once, and nothing else. Never waits.
  virtual void respond(Response response) = 0;
  // An answer in pieces (chunked): begin once, write any number of times, end once. `write` waits while more than
  // Limits::unsent_bytes_max are unsent; false: the client is gone, or was too slow for Limits::write_timeout, and
  // nothing more is sent. Not from a thread of the server (`try_write`).
  virtual bool begin(int status, Headers headers) = 0;
  virtual bool write(std::string_view bytes) = 0;
  // Never waits: false also when it does not fit, then nothing was taken.
  virtual bool try_write(std::string_view bytes) = 0;
  virtual void end() = 0;
  // From now on, while the answer is open: `bytes` is sent whenever nothing was for so long. By the server's timer.
  virtual void keep_alive(std::string bytes, std::chrono::milliseconds quiet) = 0;
  // The client closed its side, or was too slow. Noticed also while nothing is sent.
  virtual bool gone() const = 0;
  // Called once, on a thread of the server, when it is; at once when it is already. Must not wait.
  virtual void on_gone(std::function<void()> tell) = 0;
  // One more header of the answer, whoever gives it: before `respond` or `begin`.
  virtual void add_header(std::string name, std::string value) = 0;
  // Once, by the handler. The note stays where it is until `ended` was called.
  virtual void keep(std::unique_ptr<Note> note) = 0;
  virtual Note* note() const = 0;  // null: none
};

// Answers with a clear 4xx, and the connection closes, when one is exceeded; the message names it.
struct Limits {
  uint32_t connections_max = 12'000;  // one more is answered 503 and closed
  uint64_t body_bytes_max = uint64_t{32} << 20;
  uint64_t bodies_bytes_max = uint64_t{1} << 30;     // of all requests that are held at once; one more is answered 503
  uint32_t header_bytes_max = 16 * 1024;             // request line and headers
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte, or from accept
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds idle_timeout{75'000};   // between requests
  std::chrono::milliseconds write_timeout{30'000};  // no byte taken for so long
  uint64_t unsent_bytes_max = 256 * 1024;           // of one answer in pieces
};

// An address that was taken before anybody listens there: who asks is refused as long. Given back by its last owner.
struct Bound;

struct Options {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;                    // 0: any free one
  std::filesystem::path unix_socket = {};  // instead; an old socket that nobody listens on is replaced
  std::filesystem::path tls_certificate = {}, tls_key = {};  // PEM; both or none
  std::shared_ptr<Bound> bound = {};                         // of Server::bind with these options; null: open takes it
  uint32_t threads = 2;
  Limits limits = {};
  // Of requests that the server itself refused (no handler sees them), with what of them was understood. As a handler.
  std::function<void(const Request& request, const Ended& ended)> on_refused = {};
};

struct Counts {
  uint64_t connections = 0;  // open now
  uint64_t exchanges = 0;    // requests that came and are not answered to the end
  uint64_t accepted = 0, refused = 0, bad_requests = 0;
};

class Server {
 public:
  // On a thread of the server; must not wait.
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;
  // What the server itself answers (a body too large): the caller's format. `status`, `message` -> body and its type.
  using ErrorBody = std::function<Response(int status, const std::string& message)>;
  // What would keep it from opening, but for an address that is taken.
  static Status check(const Options& options);
  // For who has long to do before it opens: the errors of `open` come now, and a port is taken. Null for a Unix socket,
  // which is looked at alone: a path that nobody listens on is anybody's.
  static Result<std::shared_ptr<Bound>> bind(const Options& options);
  // Listens when it returns. kUnavailable names the address that is taken; errors of files name them. `options.bound`
  // is used up.
  static Result<std::unique_ptr<Server>> open(const Options& options, Handler handler, ErrorBody error_body);
  virtual ~Server() = default;  // as close

  virtual std::string address() const = 0;  // "http://127.0.0.1:8080", "unix:/run/baton.sock"
  virtual uint16_t port() const = 0;
  virtual Counts counts() const = 0;
  // No new connections, and no further request on those that are: they close behind their answer. Returns at once.
  virtual void stop_accepting() = 0;
  // Waits until no exchange is left, at most so long; false: some are.
  virtual bool drain(std::chrono::milliseconds timeout) = 0;
  // Closes all, waits for its threads. Exchanges that live on are `gone`.
  virtual void close() = 0;
};

}  // namespace baton::http

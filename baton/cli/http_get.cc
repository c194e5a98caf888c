// The answer ends with the connection.
#include "baton/cli/http_get.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "baton/base/descriptor.h"
#include "baton/cli/command.h"

namespace baton::cli {
namespace {

constexpr size_t kAnswerMax = size_t{16} << 20;

tl::unexpected<Error> nobody(const std::string& url, const char* why) {
  return fail(Code::kUnavailable,
              fmt::format("{}: {}: start `baton serve`, or say where it listens with --url", url, why));
}

void limit_waiting(int descriptor) {
  const timeval limit{5, 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

// A connected socket; the caller closes it.
Result<int> connect_unix(const std::string& url, std::string_view socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.empty() || socket_path.size() >= sizeof(address.sun_path))
    return fail(Code::kInvalidInput, fmt::format("{}: no path of a socket", url));
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  const int made = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (made >= 0 && ::connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return made;
  const int why = errno;
  const Descriptor closes(made);
  return nobody(url, std::strerror(why));
}

Result<int> connect_host(const std::string& url, std::string host) {
  std::string port = "80";
  if (const size_t colon = host.rfind(':'); colon != std::string::npos && host.find(']', colon) == std::string::npos) {
    port = host.substr(colon + 1);
    host.resize(colon);
  }
  uint16_t number = 0;  // getaddrinfo takes larger ones, less 65536
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size())
    return fail(Code::kInvalidInput, fmt::format("--url {}: the port must be from 0 to 65535", url));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (const int problem = ::getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); problem != 0)
    return nobody(url, ::gai_strerror(problem));
  int why = 0, made = -1;
  for (const addrinfo* at = found; at != nullptr && made < 0; at = at->ai_next) {
    made = ::socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (made >= 0) limit_waiting(made);
    if (made >= 0 && ::connect(made, at->ai_addr, at->ai_addrlen) == 0) break;
    why = errno;
    const Descriptor closes(std::exchange(made, -1));
  }
  ::freeaddrinfo(found);
  if (made < 0) return nobody(url, std::strerror(why));
  return made;
}

}  // namespace

Result<std::string> http_get(const std::string& url, const std::string& path, const std::string& api_key) {
  constexpr std::string_view kHttp = "http://", kUnix = "unix:";
  const bool local = url.starts_with(kUnix);
  if (!local && !url.starts_with(kHttp))
    return fail(Code::kInvalidInput, fmt::format("--url {}: it takes http://HOST:PORT, or unix:SOCKET", url));
  std::string host = local ? "localhost" : url.substr(kHttp.size(), url.find('/', kHttp.size()) - kHttp.size());
  BATON_TRY(const int connection,
            local ? connect_unix(url, std::string_view(url).substr(kUnix.size())) : connect_host(url, host));
  const Descriptor closes(connection);
  limit_waiting(connection);
  const std::string key = api_key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", api_key);
  const std::string request =
      fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\n\r\n", path, host, key);
  if (::send(connection, request.data(), request.size(), 0) != static_cast<ssize_t>(request.size()))
    return nobody(url, std::strerror(errno));
  std::string answer;
  char buffer[16 * 1024];
  for (ssize_t count; (count = ::recv(connection, buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(count));
    if (answer.size() > kAnswerMax) break;
  }
  const size_t head = answer.find("\r\n\r\n");
  if (head == std::string::npos || !answer.starts_with("HTTP/1.")) return nobody(url, "no answer of HTTP");
  std::string body = answer.substr(head + 4);
  if (answer.substr(9, 3) == "200") return body;
  // What our errors say, without their form.
  const OrderedJson told = OrderedJson::parse(body, nullptr, false);
  const bool ours = told.is_object() && told.contains("error") && told["error"].is_object();
  const std::string said = ours ? told["error"].value("message", body) : body.empty() ? answer.substr(0, 40) : body;
  return fail(Code::kInvalidInput, fmt::format("{}{}: {}{}", url, path, said,
                                               answer.substr(9, 3) == "401" ? " (here: --api-key-file FILE)" : ""));
}

}  // namespace baton::cli

// See sockets.h.
#include "baton/http/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

namespace baton::http {
namespace {

constexpr int kBacklog = 4096;
constexpr uint32_t kOtherFiles = 256;  // of the process: models, caches, the engine's

std::string reason(int error) { return std::generic_category().message(error); }

int close_with(int fd, int error) {
  ::close(fd);
  return error;
}

Result<int> new_socket(int family) {
  const int fd = ::socket(family, SOCK_STREAM, 0);
  if (fd < 0) return fail(Code::kUnavailable, fmt::format("no socket: {}", reason(errno)));
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

std::string with_port(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return fmt::format("{}:{}", text, ntohs(v4->sin_port));
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  return fmt::format("[{}]:{}", text, ntohs(v6->sin6_port));
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Result<Addresses> addresses_of(const std::string& host, uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (const int error = ::getaddrinfo(host.c_str(), fmt::to_string(port).c_str(), &hints, &found); error != 0 || !found)
    return fail(Code::kInvalidInput, fmt::format("host '{}': {}", host, ::gai_strerror(error)));
  return Addresses(found, [](addrinfo* list) { ::freeaddrinfo(list); });
}

tl::unexpected<Error> refused(const Options& options, int error) {
  const std::string remedy = error == EADDRINUSE ? "; choose another port or stop who listens there" : "";
  return fail(Code::kUnavailable, fmt::format("{}:{}: {}{}", options.host, options.port, reason(error), remedy));
}

Result<std::shared_ptr<Bound>> bind_to_port(const Options& options) {
  BATON_TRY(const Addresses found, addresses_of(options.host, options.port));
  const addrinfo* chosen = found.get();  // IPv4 where a name has both
  for (const addrinfo* each = found.get(); each && chosen->ai_family != AF_INET; each = each->ai_next) chosen = each;
  BATON_TRY(const int fd, new_socket(chosen->ai_family));
  const int on = 1, off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (chosen->ai_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd, chosen->ai_addr, chosen->ai_addrlen) != 0) return refused(options, close_with(fd, errno));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  const std::string address = with_port(bound);
  const in_port_t in_order = bound.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(&bound)->sin_port
                                                        : reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port;
  return std::make_shared<Bound>(Listening{fd, bound.ss_family, ntohs(in_order), "http://" + address, {}});
}

Result<Listening> listen_on_port(const Options& options) {
  std::shared_ptr<Bound> bound = options.bound;
  if (!bound) {
    BATON_TRY(bound, bind_to_port(options));
  }
  BATON_CHECK(bound->at.fd >= 0);
  // Two that began at once can both have the port, but only one of them listens.
  if (::listen(bound->at.fd, kBacklog) != 0) return refused(options, errno);
  return std::exchange(bound->at, Listening{});
}

// Whether somebody listens; what nobody listens on is left of a process that was killed.
bool is_answered(const sockaddr_un& address) {
  const auto fd = new_socket(AF_UNIX);
  if (!fd) return true;
  const bool answered =
      ::connect(*fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
  ::close(*fd);
  return answered;
}

// The address of a path where a socket can be made, or takes the place of one that nobody listens on.
Result<sockaddr_un> free_path(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof address.sun_path) {
    return fail(Code::kInvalidInput, fmt::format("{}: longer than the {} bytes that the path of a socket may have",
                                                 text, sizeof address.sun_path - 1));
  }
  std::copy(text.begin(), text.end(), address.sun_path);
  struct stat status {};
  if (::lstat(text.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return fail(Code::kInvalidInput, fmt::format("{}: exists and is no socket; name another path", text));
    }
    if (is_answered(address)) {
      return fail(Code::kUnavailable,
                  fmt::format("{}: another process listens there; stop it or name another path", text));
    }
  }
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return fail(Code::kUnavailable, fmt::format("{}: its folder: {}", text, reason(errno)));
  return address;
}

Result<Listening> listen_on_path(const std::filesystem::path& path) {
  BATON_TRY(const sockaddr_un address, free_path(path));
  ::unlink(path.c_str());
  BATON_TRY(const int fd, new_socket(AF_UNIX));
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(fd, kBacklog) != 0)
    return fail(Code::kUnavailable, fmt::format("{}: {}", path.string(), reason(close_with(fd, errno))));
  ::chmod(path.c_str(), 0660);  // the owner, and whom the group lets in
  return Listening{fd, AF_UNIX, 0, "unix:" + path.string(), path};
}

}  // namespace

Status check_host(const std::string& host) {
  BATON_OK(addresses_of(host, 0));
  return {};
}

Bound::~Bound() {
  if (at.fd >= 0) ::close(at.fd);
}

Result<std::shared_ptr<Bound>> bind_to(const Options& options) {
  if (options.unix_socket.empty()) return bind_to_port(options);
  BATON_OK(free_path(options.unix_socket));
  return nullptr;
}

Result<Listening> listen_on(const Options& options) {
  return options.unix_socket.empty() ? listen_on_port(options) : listen_on_path(options.unix_socket);
}

std::string peer_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unknown";
  return address.ss_family == AF_UNIX ? "unix" : with_port(address);
}

uint32_t connections_possible(uint32_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t needed = rlim_t{wanted} + kOtherFiles;
  if (limit.rlim_cur < needed) {
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = std::min<rlim_t>(needed, limit.rlim_max);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  }
  const rlim_t left = limit.rlim_cur > kOtherFiles ? limit.rlim_cur - kOtherFiles : limit.rlim_cur / 2;
  return static_cast<uint32_t>(std::min<rlim_t>(wanted, left));
}

}  // namespace baton::http

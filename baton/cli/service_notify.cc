// See service_notify.h.
#include "baton/cli/service_notify.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "baton/base/descriptor.h"

namespace baton::cli {
namespace {

std::string taken(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value != nullptr ? value : "";
  ::unsetenv(name);
  return text;
}

std::optional<int64_t> number_in(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0 ? std::optional(number) : std::nullopt;
}

Status problem(std::string_view socket, int number) {
  return fail(Code::kUnavailable, fmt::format("NOTIFY_SOCKET {}: {}", socket, std::generic_category().message(number)));
}

}  // namespace

ServiceNotify::ServiceNotify() : socket_(taken("NOTIFY_SOCKET")) {
  const auto time = number_in(taken("WATCHDOG_USEC"));
  const std::string of = taken("WATCHDOG_PID");
  if (time && (of.empty() || number_in(of) == ::getpid())) watchdog_ = std::chrono::microseconds(*time);
}

ServiceNotify::~ServiceNotify() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status ServiceNotify::tell(std::string_view state) const {
  if (!wanted()) return {};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if ((socket_[0] != '/' && socket_[0] != '@') || socket_.size() >= sizeof address.sun_path)
    return problem(socket_, EINVAL);
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (socket_[0] == '@') address.sun_path[0] = '\0';  // Linux's abstract sockets
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  if (fd < 0) return problem(socket_, errno);
  const Descriptor closed(fd);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  // An abstract name has no NUL at its end, and none is counted of the other.
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  if (::sendto(fd, state.data(), state.size(), MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&address), length) < 0)
    return problem(socket_, errno);
  return {};
}

void ServiceNotify::check(std::function<void()> lives) {
  const std::lock_guard lock(checking_);
  lives_ = std::move(lives);
}

void ServiceNotify::watch() {
  if (wanted() && watchdog_ && !thread_.joinable()) thread_ = std::thread([this] { loop(); });
}

void ServiceNotify::loop() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    lock.unlock();
    {
      const std::lock_guard checking(checking_);
      if (lives_) lives_();
    }
    static_cast<void>(tell("WATCHDOG=1"));
    lock.lock();
    ending_.wait_for(lock, *watchdog_ / 2, [&] { return ended_; });
  }
}

}  // namespace baton::cli

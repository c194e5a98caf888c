// What a manager of services is told of its server, as systemd has it: datagrams to the socket that NOTIFY_SOCKET
// names. https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "baton/base/status.h"

namespace baton::cli {

class ServiceNotify {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and takes them out of the environment of children.
  ServiceNotify();
  ~ServiceNotify();
  ServiceNotify(const ServiceNotify&) = delete;
  ServiceNotify& operator=(const ServiceNotify&) = delete;

  bool wanted() const { return !socket_.empty(); }
  // "READY=1\nSTATUS=...". Nothing where nobody wants to know; never waits.
  Status tell(std::string_view state) const;
  // From now on, twice in the manager's time, where it asked for it: WATCHDOG=1, as long as `check` comes back.
  void watch();
  // What tells that the server lives; null: that the process does is enough. Behind this the one before is not called.
  void check(std::function<void()> lives);
  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }

 private:
  void loop();

  std::string socket_;
  std::optional<std::chrono::microseconds> watchdog_;
  std::mutex checking_, mutex_;
  std::function<void()> lives_;
  std::condition_variable ending_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace baton::cli

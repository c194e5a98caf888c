// The access log: lines on their way to a file, by a thread of its own. Who has a line never waits: what a slow disk or
// reader leaves no room for is dropped and counted, and the log itself says so as soon as it can.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "baton/base/status.h"
#include "baton/serve/access_line.h"

namespace baton::serve {

struct AccessLogOptions {
  std::filesystem::path file;  // "-": standard error
  AccessFormat format = AccessFormat::kText;
  bool prompts = false;           // also what was asked
  uint64_t bytes_max = 4u << 20;  // of lines that wait
};

// Must outlive every exchange with a note of it.
class AccessLog {
 public:
  // Opened to append, made (0640) where it is not there. Errors name the file.
  static Result<std::unique_ptr<AccessLog>> open(const AccessLogOptions& options);
  ~AccessLog();  // as close

  struct Counts {
    uint64_t lines = 0, dropped = 0;
  };

  // Any thread.
  void put(const AccessLine& line);
  Counts counts() const;
  bool prompts() const { return options_.prompts; }
  // Writes what waits, as far as two seconds go.
  void close();

 private:
  explicit AccessLog(AccessLogOptions options) : options_(std::move(options)) {}
  Status open_file();
  void loop();
  // A file that was moved or removed (logrotate) is made anew.
  void follow();
  bool write(std::string_view text);
  bool writable() const;
  std::string dropped_line(uint64_t dropped) const;

  const AccessLogOptions options_;
  int file_ = -1;      // of the thread, as the next
  bool torn_ = false;  // its last line has no end
  mutable std::mutex mutex_;
  std::condition_variable came_, ended_;
  std::deque<std::string> waiting_;
  uint64_t bytes_ = 0, dropped_now_ = 0;  // since the log last said so
  Counts counts_;
  bool closing_ = false, done_ = false;
  std::atomic<bool> give_up_{false};
  std::thread thread_;
};

}  // namespace baton::serve

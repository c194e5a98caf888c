// A bounded list of lines, and the thread that writes them.
#include "baton/serve/access_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <new>
#include <system_error>
#include <utility>

namespace baton::serve {
namespace {

constexpr size_t kPieceBytes = 4096;  // a pipe that takes any takes so many at once
constexpr std::chrono::seconds kCloseTime{2};
constexpr std::chrono::milliseconds kAgain{500};  // after a write that failed

int64_t wall_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// What has gone away is an error of a write, not the end of the process.
void block_broken_pipes() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

// A pipe that nobody reads is no reason to wait.
int open_to_append(const std::filesystem::path& file) {
  return ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);
}

}  // namespace

Result<std::unique_ptr<AccessLog>> AccessLog::open(const AccessLogOptions& options) try {
  std::unique_ptr<AccessLog> log(new AccessLog(options));
  BATON_OK(log->open_file());
  log->thread_ = std::thread([each = log.get()] { each->loop(); });
  return log;
} catch (const std::system_error& error) {
  return fail(Code::kOutOfMemory, fmt::format("cannot start the thread of the access log: {}", error.code().message()));
}

Status AccessLog::open_file() {
  if (options_.file == "-") {
    file_ = STDERR_FILENO;
    return {};
  }
  file_ = open_to_append(options_.file);
  if (file_ >= 0) return {};
  const char* const remedy = errno == ENXIO ? ": it is a pipe that nobody reads" : "";
  return fail(errno == ENOENT ? Code::kNotFound : Code::kInvalidInput,
              fmt::format("{}: the access log cannot be opened: {}{}", options_.file.string(),
                          std::generic_category().message(errno), remedy));
}

AccessLog::~AccessLog() { close(); }

void AccessLog::put(const AccessLine& line) {
  try {
    std::string text = line.text(options_.format);
    const std::lock_guard lock(mutex_);
    if (closing_ || bytes_ + text.size() > options_.bytes_max) {
      ++dropped_now_;
      ++counts_.dropped;
    } else {
      bytes_ += text.size();
      ++counts_.lines;
      waiting_.push_back(std::move(text));
    }
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(mutex_);
    ++dropped_now_;
    ++counts_.dropped;
  }
  came_.notify_one();
}

AccessLog::Counts AccessLog::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void AccessLog::close() {
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(closing_, true)) return;
    came_.notify_all();
    if (thread_.joinable()) ended_.wait_for(lock, kCloseTime, [&] { return done_; });
  }
  give_up_ = true;
  if (thread_.joinable()) thread_.join();
  if (file_ > STDERR_FILENO) ::close(file_);
  file_ = -1;
}

std::string AccessLog::dropped_line(uint64_t dropped) const {
  const std::string time = time_text(wall_ms());
  return options_.format == AccessFormat::kJson
             ? fmt::format("{{\"time\":\"{}\",\"dropped_lines\":{}}}\n", time, dropped)
             : fmt::format("time={} dropped_lines={}\n", time, dropped);
}

void AccessLog::loop() {
  block_broken_pipes();
  std::unique_lock lock(mutex_);
  while (true) {
    came_.wait(lock, [&] { return closing_ || !waiting_.empty() || dropped_now_ > 0; });
    if (waiting_.empty() && dropped_now_ == 0) break;
    std::deque<std::string> lines = std::exchange(waiting_, {});
    const uint64_t dropped = std::exchange(dropped_now_, 0);
    lock.unlock();
    follow();
    uint64_t lost = 0;
    bool told = dropped == 0;
    for (const std::string& line : lines) lost += lost == 0 && write(line) ? 0 : 1;
    if (lost == 0 && !told) told = write(dropped_line(dropped));
    lock.lock();
    for (const std::string& line : lines) bytes_ -= line.size();
    counts_.dropped += lost;
    counts_.lines -= lost;
    dropped_now_ += lost + (told ? 0 : dropped);
    if (lost == 0 && told) continue;
    if (closing_) break;
    came_.wait_for(lock, kAgain, [&] { return closing_; });
  }
  done_ = true;
  ended_.notify_all();
}

void AccessLog::follow() {
  if (options_.file == "-") return;
  struct stat now {
  }, ours{};
  const bool there = ::stat(options_.file.c_str(), &now) == 0;
  if (file_ >= 0 && there && ::fstat(file_, &ours) == 0 && now.st_ino == ours.st_ino && now.st_dev == ours.st_dev)
    return;
  const int anew = open_to_append(options_.file);
  if (anew < 0) return;  // the old one takes what comes, until there is another
  if (file_ >= 0) ::close(file_);
  file_ = anew;
  torn_ = false;
}

// Whether a piece can be written without waiting; looks for the end of the log meanwhile.
bool AccessLog::writable() const {
  while (!give_up_) {
    pollfd asked{file_, POLLOUT, 0};
    const int ready = ::poll(&asked, 1, 50);
    if (ready > 0) return true;  // what is wrong with it, the write says
    if (ready < 0 && errno != EINTR) return false;
  }
  return false;
}

bool AccessLog::write(std::string_view text) {
  if (torn_ && writable() && ::write(file_, "\n", 1) == 1) torn_ = false;
  if (torn_) return false;
  const size_t size = text.size();
  while (!text.empty()) {
    if (!writable()) break;
    const ssize_t done = ::write(file_, text.data(), std::min(text.size(), kPieceBytes));
    if (done > 0) text.remove_prefix(static_cast<size_t>(done));
    if (done < 0 && errno != EINTR && errno != EAGAIN) break;
  }
  torn_ = !text.empty() && text.size() < size;
  return text.empty();
}

}  // namespace baton::serve

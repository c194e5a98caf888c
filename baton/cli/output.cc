// What goes to stdout and stderr. Everything for stdout goes through `print`, so that what could not be written is
// known at the end, whichever command wrote it.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <utility>

#include "baton/base/terminal.h"
#include "baton/cli/command.h"
#include "baton/cli/interrupt.h"

namespace baton::cli {
namespace {

// Shows text of files in warnings without what commands a terminal.
class SafePayload final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& to) override {
    const std::string text = terminal_safe({message.payload.data(), message.payload.size()}, kMessageShownMax);
    to.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<SafePayload>(); }
};

int output_error = 0;  // errno of the first write to stdout that failed

}  // namespace

int report(const Error& error) {
  fmt::print(stderr, "baton: {}\n", terminal_safe(error.message, kMessageShownMax));
  return error.code == Code::kCancelled ? kInterrupted : kFailed;
}

int report_usage(const Error& error) {
  report(error);
  return error.code == Code::kInvalidInput ? kUsage : kFailed;
}

int report_unit(const Error& error) {
  report(error);
  return error.code == Code::kNotFound || error.code == Code::kInvalidInput ? kUsage : kFailed;
}

void start_logs(bool verbose) {
  const auto level = verbose ? spdlog::level::info : spdlog::level::warn;
  if (const auto started = spdlog::get("baton")) return started->set_level(level);
  auto logger = spdlog::stderr_color_mt("baton");  // colours only on a terminal
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<SafePayload>('*').set_pattern("baton: %^%l%$: %*");
  logger->set_formatter(std::move(formatter));
  logger->set_level(level);
  spdlog::set_default_logger(std::move(logger));
}

bool print(std::string_view text) {
  while (!text.empty() && output_error == 0) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      struct pollfd entry {
        STDOUT_FILENO, POLLOUT, 0
      };
      ::poll(&entry, 1, 1000);
    } else if (errno != EINTR) {
      output_error = errno;
    }
  }
  return output_error == 0;
}

OrderedJson text_or_null(const std::string& text) { return text.empty() ? OrderedJson(nullptr) : OrderedJson(text); }

void print_json(const OrderedJson& value) {
  print(value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

bool output_lost() { return output_error != 0; }

void begin_output() {
  // A descriptor that is closed would be given to the first file that is opened: what is printed would go there.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      // Writes to a closed stdout must fail; nobody counts on stderr.
      [[maybe_unused]] const int opened = ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
  struct sigaction action {};
  action.sa_handler = SIG_IGN;  // a write tells, and work can end in order
  ::sigaction(SIGPIPE, &action, nullptr);
  ::sigaction(SIGXFSZ, &action, nullptr);  // of a file that grows past ulimit -f
}

int end_output(int code) {
  if (code == kInterrupted) code = interrupted_code();
  // Some systems tell only now that what they took is lost.
  if (output_error == 0 && ::close(STDOUT_FILENO) != 0 && errno != EBADF) output_error = errno;
  if (output_error == 0) return code;
  if (output_error == EPIPE) return kReaderGone;
  fmt::print(stderr, "baton: standard output: cannot write: {}\n", std::strerror(output_error));
  return kFailed;
}

void progress(std::string_view text) {
  if (::isatty(2) != 0) fmt::print(stderr, "\r\x1b[K{}", text);
}

}  // namespace baton::cli

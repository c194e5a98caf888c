// Lines from a descriptor, and turns from entries.
#include "baton/cli/line_editor.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace baton::cli {
namespace {

constexpr int kPollMs = 100;
constexpr std::string_view kQuotes = "\"\"\"";
constexpr std::string_view kTurnBlanks = " \t\r\n";

std::string_view without_blanks_before(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kTurnBlanks), text.size()));
  return text;
}

// Where the argument of `/word argument` begins; the beginning for other text.
size_t argument_of(std::string_view text) {
  const size_t begin = text.size() - without_blanks_before(text).size();
  if (begin == text.size() || text[begin] != '/') return begin;
  const size_t blank = std::min(text.find_first_of(kTurnBlanks, begin), text.size());
  return text.size() - without_blanks_before(text.substr(blank)).size();
}

class LineReader final : public LineEditor {
 public:
  LineReader(int descriptor, std::function<bool()> interrupted, std::function<void(std::string_view)> waiting)
      : descriptor_(descriptor), interrupted_(std::move(interrupted)), waiting_(std::move(waiting)) {}

  Outcome read(std::string_view, std::string* text) override {
    while (true) {
      if (const size_t end = buffer_.find('\n', searched_); end != std::string::npos) {
        *text = buffer_.substr(0, end);
        if (!text->empty() && text->back() == '\r') text->pop_back();
        buffer_.erase(0, end + 1);
        searched_ = 0;
        return Outcome::kText;
      }
      searched_ = buffer_.size();
      if (!wait()) return clear();
      char bytes[65536];
      const ssize_t count = ::read(descriptor_, bytes, sizeof(bytes));
      if (count > 0) {
        buffer_.append(bytes, static_cast<size_t>(count));
        continue;
      }
      if (count < 0 && errno == EINTR) {
        if (!interrupted_ || !interrupted_()) continue;
        return clear();
      }
      searched_ = 0;
      if (buffer_.empty()) return Outcome::kEnd;
      *text = std::exchange(buffer_, {});  // a last line without its newline
      return Outcome::kText;
    }
  }

 private:
  // Until there is something to read, or an interrupt: false.
  bool wait() {
    struct pollfd ready = {descriptor_, POLLIN, 0};
    while (waiting_) {
      waiting_(buffer_);
      if (::poll(&ready, 1, kPollMs) > 0) break;
      if (interrupted_ && interrupted_()) return false;
    }
    return true;
  }
  Outcome clear() {
    buffer_.clear();
    searched_ = 0;
    return Outcome::kInterrupted;
  }

  const int descriptor_;
  const std::function<bool()> interrupted_;
  const std::function<void(std::string_view)> waiting_;
  std::string buffer_;
  size_t searched_ = 0;
};

}  // namespace

std::unique_ptr<LineEditor> open_line_reader(int descriptor, std::function<bool()> interrupted,
                                             std::function<void(std::string_view)> waiting) {
  return std::make_unique<LineReader>(descriptor, std::move(interrupted), std::move(waiting));
}

bool TurnAssembler::add(std::string_view entry) {
  if (!begun_) {
    const size_t argument = argument_of(entry);
    quoted_ = entry.substr(argument).starts_with(kQuotes);
    if (quoted_) {
      if (without_blanks_before(entry).starts_with('/')) text_ = entry.substr(0, argument);
      prefix_ = text_.size();
      entry.remove_prefix(argument + kQuotes.size());
    }
  }
  begun_ = true;
  if (quoted_) {
    const std::string_view trimmed = entry.substr(0, entry.find_last_not_of(kTurnBlanks) + 1);
    if (!trimmed.ends_with(kQuotes)) {
      text_ += entry;
      text_ += '\n';
      return false;
    }
    text_ += trimmed.substr(0, trimmed.size() - kQuotes.size());
    return true;
  }
  if (entry.ends_with('\\')) {
    text_ += entry.substr(0, entry.size() - 1);
    text_ += '\n';
    return false;
  }
  text_ += entry;
  return true;
}

EnteredTurn TurnAssembler::take() {
  EnteredTurn turn{std::move(text_), quoted_ && prefix_ == 0};
  // The newlines next to the quotes belong to them.
  if (quoted_) {
    if (turn.text.size() > prefix_ && turn.text[prefix_] == '\n') turn.text.erase(prefix_, 1);
    if (turn.text.size() > prefix_ && turn.text.back() == '\n') turn.text.pop_back();
  }
  // A paste ends its last line as a file does.
  while (!quoted_ && (turn.text.ends_with('\n') || turn.text.ends_with('\r'))) turn.text.pop_back();
  reset();
  return turn;
}

}  // namespace baton::cli

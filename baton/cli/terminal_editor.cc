// The editor at a terminal: libedit, and around it what it lacks: bracketed paste, keys typed while an answer streams,
// completion of commands, and signals that do not go through the process group.
#include <fcntl.h>
#include <fmt/format.h>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <utility>

#include "baton/cli/command.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/line_editor.h"
#include "baton/cli/line_history.h"

namespace baton::cli {
namespace {

constexpr int kPollMs = 100;
constexpr wchar_t kEscape = L'\1';  // around what takes no room in a prompt
constexpr std::wstring_view kPasteEnd = L"\033[201~";
constexpr std::string_view kPasteOn = "\033[?2004h", kPasteOff = "\033[?2004l";

volatile std::sig_atomic_t resized = 0, continued = 0;
struct termios terminal_before;  // what a signal that ends the program puts back

void put(std::string_view text) {
  const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
  static_cast<void>(written);
}

extern "C" void on_resize(int) { resized = 1; }
extern "C" void on_continue(int) { continued = 1; }
extern "C" void restore_terminal() {
  put(kPasteOff);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}
extern "C" void on_end(int signal);

struct Handled {
  int signal;
  void (*handler)(int);
  struct sigaction before;
};
Handled handled[] = {{SIGWINCH, on_resize, {}},
                     {SIGCONT, on_continue, {}},
                     {SIGTERM, on_end, {}},
                     {SIGHUP, on_end, {}},
                     {SIGQUIT, on_end, {}}};

// The terminal first, then whoever had the signal before.
extern "C" void on_end(int signal) {
  restore_terminal();
  for (const Handled& each : handled) {
    if (each.signal == signal) ::sigaction(signal, &each.before, nullptr);
  }
  ::raise(signal);
}

// One character from the front of UTF-8 bytes: its length, 0 when more bytes are needed. Ill-formed: U+FFFD.
size_t character_of(std::string_view bytes, wchar_t* out) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  const size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
  *out = L'\uFFFD';
  if (length == 0) return 1;
  uint32_t code = length == 1 ? lead : lead & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (i >= bytes.size()) return 0;
    const auto next = static_cast<unsigned char>(bytes[i]);
    if (next >> 6 != 2) return i;
    code = code << 6 | (next & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool bad = code < kLeast[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000);
  if (!bad) *out = static_cast<wchar_t>(code);
  return length;
}

std::wstring wide_of(std::string_view text) {
  std::wstring wide;
  while (!text.empty()) {
    wchar_t character = L'\uFFFD';
    const size_t length = character_of(text, &character);
    wide += character;
    text.remove_prefix(length == 0 ? text.size() : length);
  }
  return wide;
}

std::string narrow_of(std::wstring_view wide) {
  std::string text;
  for (const wchar_t character : wide) {
    const auto code = static_cast<uint32_t>(character);
    if (code < 0x80) {
      text += static_cast<char>(code);
      continue;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr uint32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
    text += static_cast<char>(kLead[more] | code >> (6 * more));
    for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f));
  }
  return text;
}

bool use_utf8_locale() {
  for (const char* name : {"", "C.UTF-8", "en_US.UTF-8"}) {
    if (std::setlocale(LC_CTYPE, name) == nullptr) continue;
    const std::string_view codeset = ::nl_langinfo(CODESET);
    if (codeset == "UTF-8" || codeset == "utf8") return true;
  }
  return false;
}

class TerminalEditor final : public LineEditor {
 public:
  TerminalEditor(EditorOptions options, EditLine* edit, HistoryW* history)
      : options_(std::move(options)), edit_(edit), history_(history), past_(options_.history) {
    ::tcgetattr(STDIN_FILENO, &terminal_before);
    set_quiet();
    HistEventW event;
    ::history_w(history_, &event, H_SETSIZE, static_cast<int>(LineHistory::kEntriesMax));
    for (const std::string& entry : past_.entries()) ::history_w(history_, &event, H_ENTER, wide_of(entry).c_str());
    bind_keys();
    for (Handled& each : handled) {
      struct sigaction action {};
      action.sa_handler = each.handler;
      ::sigaction(each.signal, &action, &each.before);
    }
    at_forced_exit(restore_terminal);
    if (!past_.problem().empty()) spdlog::warn("{}", past_.problem());
    put(kPasteOn);
  }
  ~TerminalEditor() override {
    at_forced_exit(nullptr);
    for (Handled& each : handled) ::sigaction(each.signal, &each.before, nullptr);
    ::el_end(edit_);
    ::history_wend(history_);
    restore_terminal();
  }

  Outcome read(std::string_view prompt, std::string* text) override {
    prompt_ = wide_of(prompt);
    // libedit drops an escape at a prompt's end: this one comes before the last blank.
    if (options_.colour && prompt_.ends_with(L' '))
      prompt_ = L"\1\033[1m\1" + prompt_.substr(0, prompt_.size() - 1) + L"\1\033[0m\1 ";
    interrupted_ = false;
    int count = 0;
    ill_formed_ = false;
    const wchar_t* line = ::el_wgets(edit_, &count);
    while (ill_formed_ && !interrupted_ && line != nullptr && count > 0) {
      put("baton: what was typed is not UTF-8 and was not sent: set the terminal to UTF-8\n");
      ill_formed_ = false;
      line = ::el_wgets(edit_, &count);
    }
    if (interrupted_) {
      put("^C\n");
      return Outcome::kInterrupted;
    }
    if (line == nullptr || count <= 0) {
      put("\n");
      return Outcome::kEnd;
    }
    std::wstring_view entry(line, static_cast<size_t>(count));
    if (entry.back() == L'\n') entry.remove_suffix(1);
    *text = narrow_of(entry);
    return Outcome::kText;
  }

  void remember(std::string_view text) override {
    if (!past_.add(text)) return;
    HistEventW event;
    ::history_w(history_, &event, H_ENTER, wide_of(text).c_str());
  }

  void poll() override {
    if (std::exchange(continued, 0) != 0) set_quiet();
    take_typed(0);
  }

 private:
  static TerminalEditor& of(EditLine* edit) {
    void* self = nullptr;
    ::el_wget(edit, EL_CLIENTDATA, &self);
    return *static_cast<TerminalEditor*>(self);
  }
  static wchar_t* show_prompt(EditLine* edit) { return of(edit).prompt_.data(); }
  static int get_character(EditLine* edit, wchar_t* out) { return of(edit).next_character(out); }
  static unsigned char on_paste(EditLine* edit, wint_t) { return of(edit).paste(); }
  static unsigned char on_paste_end(EditLine*, wint_t) { return CC_NORM; }
  static unsigned char on_tab(EditLine* edit, wint_t) { return of(edit).complete(); }
  static unsigned char on_newline(EditLine* edit, wint_t) {
    return ::el_winsertstr(edit, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
  }

  void bind_keys() {
    ::el_wset(edit_, EL_CLIENTDATA, this);
    ::el_wset(edit_, EL_PROMPT_ESC, show_prompt, kEscape);
    ::el_wset(edit_, EL_EDITOR, L"emacs");
    ::el_wset(edit_, EL_SIGNAL, 0);
    ::el_wset(edit_, EL_HIST, ::history_w, history_);
    ::el_wset(edit_, EL_GETCFN, get_character);
    ::el_wset(edit_, EL_ADDFN, L"baton-paste", L"insert what is pasted", on_paste);
    ::el_wset(edit_, EL_ADDFN, L"baton-paste-end", L"the end of a paste that was interrupted", on_paste_end);
    ::el_wset(edit_, EL_ADDFN, L"baton-complete", L"complete a command", on_tab);
    ::el_wset(edit_, EL_ADDFN, L"baton-newline", L"insert a newline", on_newline);
    ::el_wset(edit_, EL_SETTY, L"-d", L"-icrnl", L"-inlcr", nullptr);  // a pasted CR LF is one newline
    // Between two reads: see set_quiet.
    ::el_wset(edit_, EL_SETTY, L"-x", L"-icanon", L"-echo", L"-icrnl", L"-inlcr", nullptr);
    ::el_source(edit_, nullptr);  // the user's .editrc, if there is one
    constexpr std::pair<const wchar_t*, const wchar_t*> kKeys[] = {
        {L"\\e[200~", L"baton-paste"},       {L"\\e[201~", L"baton-paste-end"}, {L"^I", L"baton-complete"},
        {L"\\e^M", L"baton-newline"},        {L"\\e[1~", L"ed-move-to-beg"},    {L"\\e[4~", L"ed-move-to-end"},
        {L"\\e[3~", L"ed-delete-next-char"}, {L"\\e[1;5C", L"em-next-word"},    {L"\\e[1;5D", L"ed-prev-word"},
        {L"^R", L"em-inc-search-prev"},
    };
    for (const auto& [key, function] : kKeys) ::el_wset(edit_, EL_BIND, key, function, nullptr);
  }

  // Between two reads: keys neither echoed nor held back by lines, and as they come (a pasted CR LF is one newline);
  // Ctrl-C and Ctrl-Z still make signals. Never lines in between: a Ctrl-D typed while the terminal collects a line is
  // lost when it stops doing so.
  void set_quiet() {
    struct termios quiet = terminal_before;
    quiet.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR);
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
    quiet.c_cc[VMIN] = 1;
    quiet.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet);
  }

  // What was typed, for at most `wait_ms`; false at the end of the input.
  bool take_typed(int wait_ms) {
    struct pollfd waiting = {STDIN_FILENO, POLLIN, 0};
    while (::poll(&waiting, 1, wait_ms) > 0) {
      char bytes[4096];
      const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof(bytes));
      if (count < 0 && errno == EINTR) return true;
      if (count <= 0) return false;
      typed_.append(bytes, static_cast<size_t>(count));
      wait_ms = 0;
    }
    return true;
  }

  // 1: a character; 0: the end; -1: interrupted.
  int next_character(wchar_t* out) {
    while (true) {
      if (used_ > 0 && used_ == typed_.size()) {
        typed_.clear();
        used_ = 0;
      }
      if (used_ < typed_.size()) {
        if (const size_t length = character_of(std::string_view(typed_).substr(used_), out); length > 0) {
          // A replacement character may be what was typed.
          ill_formed_ |= *out == L'\uFFFD' && !std::string_view(typed_).substr(used_).starts_with("\xef\xbf\xbd");
          used_ += length;
          return 1;
        }
      }
      if (options_.interrupted && options_.interrupted()) {
        interrupted_ = true;
        typed_.clear();
        used_ = 0;
        return -1;
      }
      if (std::exchange(continued, 0) != 0) {
        ::el_wset(edit_, EL_PREP_TERM, 0);
        ::el_wset(edit_, EL_PREP_TERM, 1);
        put(kPasteOn);
        ::el_wset(edit_, EL_REFRESH);
      }
      if (std::exchange(resized, 0) != 0) {
        ::el_resize(edit_);
        put("\r\033[J");
        ::el_wset(edit_, EL_REFRESH);
      }
      if (options_.waiting) {
        const LineInfoW* line = ::el_wline(edit_);
        options_.waiting(narrow_of({line->buffer, static_cast<size_t>(line->lastchar - line->buffer)}));
      }
      if (!take_typed(kPollMs)) return 0;
    }
  }

  unsigned char paste() {
    std::wstring text;
    wchar_t character = 0;
    while (!text.ends_with(kPasteEnd)) {
      if (::el_wgetc(edit_, &character) != 1) return CC_EOF;
      if (character == L'\n' && text.ends_with(L'\r')) text.pop_back();
      if (character != 0) text += character;
    }
    text.resize(text.size() - kPasteEnd.size());
    std::replace(text.begin(), text.end(), L'\r', L'\n');
    if (text.empty()) return CC_NORM;
    return ::el_winsertstr(edit_, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  unsigned char complete() {
    const LineInfoW* line = ::el_wline(edit_);
    const std::wstring_view before(line->buffer, static_cast<size_t>(line->cursor - line->buffer));
    if (!options_.complete) return CC_ERROR;
    const std::string text = narrow_of(before);
    const auto [from, words] = options_.complete(text);
    if (words.empty()) return CC_ERROR;
    const std::wstring typed = wide_of(text.substr(from));
    std::vector<std::wstring> fits;
    for (const std::string& word : words) fits.push_back(wide_of(word));
    std::wstring common = fits.front();
    for (const std::wstring& fit : fits) {
      const auto differ = std::mismatch(common.begin(), common.end(), fit.begin(), fit.end());
      common.erase(differ.first, common.end());
    }
    if (fits.size() == 1 && !common.ends_with(L'/')) common += L' ';
    if (common.size() > typed.size()) {
      return ::el_winsertstr(edit_, common.substr(typed.size()).c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    }
    std::string list = "\n";
    for (const std::wstring& fit : fits) list += narrow_of(fit) + "  ";
    put(list + "\n");
    return CC_REDISPLAY;
  }

  const EditorOptions options_;
  EditLine* edit_;
  HistoryW* history_;
  LineHistory past_;
  std::wstring prompt_;
  std::string typed_;  // bytes that were read and not yet used
  size_t used_ = 0;
  bool interrupted_ = false, ill_formed_ = false;
};

}  // namespace

Result<std::unique_ptr<LineEditor>> open_terminal_editor(EditorOptions options) {
  const char* kind = std::getenv("TERM");
  if (kind == nullptr || *kind == '\0' || std::string_view(kind) == "dumb")
    return fail(Code::kUnsupported, "no line editing on this terminal (TERM is dumb or not set)");
  if (!use_utf8_locale()) return fail(Code::kUnsupported, "no line editing: no UTF-8 locale is installed");
  EditLine* edit = ::el_init("baton", stdin, stdout, stderr);
  if (edit == nullptr) return fail(Code::kUnsupported, "no line editing: libedit does not start on this terminal");
  HistoryW* history = ::history_winit();
  if (history == nullptr) {
    ::el_end(edit);
    return fail(Code::kOutOfMemory, "no line editing: no memory for the history");
  }
  return std::make_unique<TerminalEditor>(std::move(options), edit, history);
}

}  // namespace baton::cli

// Where the turns of a chat come from: keys at a terminal, with editing and history, or lines of a pipe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/base/status.h"

namespace baton::cli {

class LineEditor {
 public:
  enum class Outcome : uint8_t { kText, kEnd, kInterrupted };
  virtual ~LineEditor() = default;

  // One entry: a line, or several when they were pasted at once. Without the newline at its end. Any length.
  virtual Outcome read(std::string_view prompt, std::string* text) = 0;
  // Into the history.
  virtual void remember(std::string_view) {}

  // Between two reads keys are kept for the next one instead of being echoed. `poll` takes in what was typed: a
  // terminal holds back more than 4 KB, and the Ctrl-C behind them. To be called a few times a second.
  virtual void poll() {}
};

struct EditorOptions {
  // What Tab offers: for the text before the cursor, where the word begins and what it may be. Empty: nothing.
  std::function<std::pair<size_t, std::vector<std::string>>(std::string_view before)> complete;
  std::filesystem::path history;      // empty: none is kept
  std::function<bool()> interrupted;  // ends a waiting read
  // Asked about ten times a second while a read waits, with the line as it is. May be empty. Must not take long.
  std::function<void(std::string_view line)> waiting = {};
  bool colour = false;  // the prompt stands out
};

// On standard input and output, which are a terminal. kUnsupported when the locale or the terminal cannot do it.
Result<std::unique_ptr<LineEditor>> open_terminal_editor(EditorOptions options);
// Lines of a descriptor, as they come. `waiting` (may be empty): as in EditorOptions.
std::unique_ptr<LineEditor> open_line_reader(int descriptor, std::function<bool()> interrupted,
                                             std::function<void(std::string_view)> waiting = {});

struct EnteredTurn {
  std::string text;
  bool literal = false;  // it was quoted: no command, whatever it says
};

// One turn from one or more entries: a last backslash, or `"""`, goes on in the next; quotes around a turn are taken
// off, and so are those around a command's argument.
class TurnAssembler {
 public:
  // True when the turn is complete.
  bool add(std::string_view entry);
  bool begun() const { return begun_; }
  // Of a turn that is not complete.
  std::string_view so_far() const { return text_; }
  EnteredTurn take();
  void reset() { *this = {}; }

 private:
  std::string text_;
  size_t prefix_ = 0;  // a command in front of the quotes
  bool begun_ = false, quoted_ = false;
};

}  // namespace baton::cli

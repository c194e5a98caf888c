// The entries of earlier chats, in a file of JSON strings, one a line (entries may hold newlines). Readable by the
// owner only; bounded. A file that cannot be read or written means less history, never an error. What is there and is
// no history (a device, a FIFO, somebody's notes) is left alone.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace baton::cli {

class LineHistory {
 public:
  static constexpr size_t kEntriesMax = 1000;         // after a load; twice as many lines make it write the file anew
  static constexpr size_t kEntryBytesMax = 16 << 10;  // longer ones are remembered by this run only

  // Empty path: nothing is read or written.
  explicit LineHistory(std::filesystem::path path);
  const std::vector<std::string>& entries() const { return entries_; }
  // Why nothing is read or written though a path was given; empty otherwise.
  const std::string& problem() const { return problem_; }
  // False when it is the last entry again.
  bool add(std::string_view entry);

 private:
  std::filesystem::path path_;
  std::string problem_;
  std::vector<std::string> entries_;
};

// $XDG_STATE_HOME/baton/chat_history, or below ~/.local/state; empty without a home.
std::filesystem::path default_history_path();

}  // namespace baton::cli

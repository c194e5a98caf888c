// Lines of a file of any size or of a pipe, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "baton/base/status.h"

namespace baton {

struct Line {
  std::string text;     // without its newline; empty when it is too long
  uint64_t number = 0;  // from 1
  uint64_t offset = 0;  // of its first byte
  bool whole = false;   // ends with a newline
  bool too_long = false;
};

// What becomes of a line that is too long: it is skipped to its end, and given then; or it is given as soon as it is
// too long, and nothing can be read behind that.
enum class LongLines : uint8_t { kSkipped, kReported };

// Holds one line and 64 KiB. Single-threaded; move-only.
class LineReader {
 public:
  enum class Outcome { kLine, kNone, kEnd };

  // "-": standard input. A line of more than `bytes_max` is said to be too long.
  static Result<LineReader> open(const std::filesystem::path& path, size_t bytes_max,
                                 LongLines long_lines = LongLines::kSkipped);
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  // kNone: nothing came within `wait_ms`, or a signal did. The last line of a file may lack its newline.
  Result<Outcome> next(Line& line, int wait_ms);

 private:
  LineReader(std::filesystem::path name, int fd, bool owned, size_t bytes_max);
  // Takes from what was read up to a newline; true when there was one.
  bool take(Line& line);

  std::filesystem::path name_;
  int fd_ = -1;
  bool owned_ = false, ended_ = false;
  size_t bytes_max_ = 0;
  std::string read_, begun_;  // not yet taken; the line so far
  size_t at_ = 0;             // in read_
  uint64_t number_ = 0, offset_ = 0, taken_ = 0;
  bool too_long_ = false;
  LongLines long_lines_ = LongLines::kSkipped;
};

}  // namespace baton

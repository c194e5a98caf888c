// The file of answers of `baton batch`: lines are added whole, and what an earlier run left there is gone on from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "baton/api/batch_line.h"
#include "baton/base/line_reader.h"

namespace baton::cli {

// Single-threaded; move-only. Holds the custom_ids of the answers that are there.
class BatchOutput {
 public:
  // A regular file is locked against a second run, and read: kInvalidInput when it holds what no batch wrote, or
  // answers of another `model` or, by `fingerprint`, of other flags. A last line that is torn is cut off. Anything else
  // (a pipe, a device; "-" is stdout) is written to as it is.
  static Result<BatchOutput> open(const std::string& path, const std::string& model, const std::string& fingerprint);
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  ~BatchOutput();

  // What an earlier run wrote: a response to the request, or that its line is none.
  enum class Kept { kNothing, kAnswer, kError };
  Kept kept(const std::string& custom_id) const {
    const auto found = responded_.find(custom_id);
    return found == responded_.end() ? Kept::kNothing : found->second ? Kept::kAnswer : Kept::kError;
  }
  bool reported(uint64_t line) const { return reported_.contains(line); }
  uint64_t lines_kept() const { return responded_.size() + reported_.size(); }
  uint64_t torn_bytes() const { return torn_bytes_; }
  // kInvalidInput when the file has a response to a request that `requests`, a regular file, does not have.
  Status check_requests(const std::string& requests) const;
  // Before the first line is added.
  Status cut_torn_line();

  // One line, its newline included. After an error the file ends with the last whole line.
  Status add(std::string_view line);
  // What the system only says at the end.
  Status finish();

 private:
  BatchOutput(std::string path, int fd, bool regular) : path_(std::move(path)), fd_(fd), regular_(regular) {}
  Status read_answers(const std::string& model, const std::string& fingerprint);
  Status take(const Line& line, const std::string& model, const std::string& fingerprint);

  std::string path_;
  int fd_ = -1;  // below zero: stdout, through print()
  bool regular_ = false;
  uint64_t bytes_ = 0;  // of whole lines
  uint64_t torn_bytes_ = 0;
  std::unordered_map<std::string, bool> responded_;  // by custom_id: whether with an answer
  std::unordered_set<uint64_t> reported_;
};

// Of a line of requests or answers.
inline constexpr size_t kBatchLineBytesMax = size_t{64} << 20;
// Lines that are not blank, of a regular file; empty for anything else.
Result<std::optional<uint64_t>> count_lines(const std::string& path);
bool is_blank(std::string_view text);

}  // namespace baton::cli

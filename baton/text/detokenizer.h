// Streaming text: ids in, whole UTF-8 characters out, and stop strings that are never half shown.
// Both are single-threaded and belong to one answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/tokenizer.h"

namespace baton {

// UTF-8 in any cuts to valid UTF-8: holds back an unfinished character; an ill-formed sequence becomes U+FFFD as soon
// as it is certain, one per maximal subpart, as Python's decode(errors="replace") does.
class Utf8Stream {
 public:
  // Appends to *out.
  void push(std::string_view bytes, std::string* out);
  // The end: an unfinished character becomes one U+FFFD.
  void finish(std::string* out);

 private:
  char pending_[4] = {};
  int pending_count_ = 0;
};

class Detokenizer {
 public:
  // `tokenizer` must outlive this. `skip_special` leaves control tokens out. `begins`: the ids are a text of their own,
  // and the space that encoding put in front of it is dropped, as by Tokenizer::decode; an answer continues its prompt.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true, bool begins = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special), spaces_(begins ? tokenizer.leading_spaces() : 0) {}

  // The text that this token completes; may be empty. kInvalidInput for an id outside the vocabulary.
  Result<std::string> push(int32_t id);
  // What is still held back, at the end of the answer.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  size_t spaces_;  // in front that may still be dropped
  Utf8Stream stream_;
};

// Watches a stream of text for stop strings. Text that may be the beginning of one is held back.
class StopStrings {
 public:
  static constexpr size_t kStringsMax = 64;
  static constexpr size_t kBytesMax = 4096;  // of one string

  // kInvalidInput for an empty string or past the limits. No strings at all is fine: text passes through.
  static Result<StopStrings> create(std::vector<std::string> stops);

  struct Output {
    std::string text;             // safe to show: never part of a stop string
    std::optional<size_t> match;  // index of the stop string that was found; it and what follows is dropped
  };
  // After a match every further push gives nothing. The match that begins first wins, then the earlier in the list.
  Output push(std::string_view text);
  // The end of the answer without a match: what is still held back.
  std::string finish();
  bool matched() const { return matched_; }

 private:
  StopStrings() = default;
  std::vector<std::string> stops_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace baton

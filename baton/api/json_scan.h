// Follows one JSON value character by character, so that what a model writes can be passed on while it comes and is
// known to be valid so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

inline bool is_json_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

class JsonScan {
 public:
  static constexpr size_t kDepthMax = 64;         // objects and lists in each other
  static constexpr size_t kNumberBytesMax = 128;  // of one number

  enum class Step : uint8_t {
    kMore,    // taken, the value goes on
    kEnd,     // taken, the value ended with it
    kBehind,  // not taken: the value, a number, ended before it
    kBad,     // not taken: no JSON
  };
  // UTF-8 is the caller's business. What was taken is put behind `out` as it is, but that characters which JSON wants
  // escaped in a text are; numbers, words and escapes when they are whole. Not called again behind an end.
  Step take(char c, std::string* out);
  // What was taken and not yet put there.
  const std::string& held() const { return held_; }
  // The value would be whole if nothing more came: a number that nothing ended.
  bool whole_at_end() const;

 private:
  enum class Want : uint8_t { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kCommaOrEnd };
  enum class In : uint8_t { kNothing, kString, kEscape, kHex, kNumber, kWord };

  Step ended();
  Step in_string(char c, std::string* out);
  Step in_number(char c, std::string* out);
  void give(std::string* out);  // what is held
  Step begin_value(char c);
  Step close(char c);
  bool end_of_escape();

  std::vector<char> open_;  // '{' and '['
  Want want_ = Want::kValue;
  In in_ = In::kNothing;
  bool key_ = false;          // the string is a key
  std::string_view word_;     // rest of true, false, null
  std::string held_;          // of a number, a word, an escape: so far
  uint32_t hex_ = 0;          // digits of an escape so far
  int hex_digits_ = 0;        // and how many
  bool pair_open_ = false;    // a high surrogate waits for its low one
  bool escape_next_ = false;  // nothing but the low one's escape may follow
};

// Of a text that is one JSON value and nothing else, white space around it aside, within the scan's limits.
bool is_json(std::string_view text);

}  // namespace baton

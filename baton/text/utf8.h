// UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton {

struct Utf8Char {
  uint32_t code = 0;   // meaningful when valid
  uint8_t length = 1;  // bytes; when not valid: of the maximal subpart (Unicode 3.9), at least 1
  bool valid = false;
  bool truncated = false;  // not valid, but the text ended: more bytes could make it valid
};

// text[at] must exist.
Utf8Char decode_utf8(std::string_view text, size_t at);
// `code` must be a Unicode scalar value.
void append_utf8(uint32_t code, std::string* out);
bool is_utf8(std::string_view text);
// Bytes of the longest valid prefix.
size_t utf8_prefix(std::string_view text);
// Each maximal subpart that is no UTF-8 as one U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace baton

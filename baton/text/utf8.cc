// UTF-8 decoding by the table of well-formed sequences in the Unicode standard (table 3-7).
#include "baton/text/utf8.h"

namespace baton {

Utf8Char decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const size_t available = text.size() - at;
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true, false};
  // Length, bits of the lead byte, and the range of the second byte.
  int length = 0;
  uint32_t code = 0;
  uint8_t low = 0x80, high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2, code = lead & 0x1fu;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3, code = lead & 0x0fu;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4, code = lead & 0x07u;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return {0, 1, false, false};
  }
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) >= available) return {0, static_cast<uint8_t>(i), false, true};
    const uint8_t next = byte(static_cast<size_t>(i));
    if (next < low || next > high) return {0, static_cast<uint8_t>(i), false, false};
    code = code << 6 | (next & 0x3fu);
    low = 0x80, high = 0xbf;
  }
  return {code, static_cast<uint8_t>(length), true, false};
}

void append_utf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xc0 | code >> 6));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xe0 | code >> 12));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    out->push_back(static_cast<char>(0xf0 | code >> 18));
    out->push_back(static_cast<char>(0x80 | (code >> 12 & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

size_t utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid) return at;
    at += c.length;
  }
  return at;
}

bool is_utf8(std::string_view text) { return utf8_prefix(text) == text.size(); }

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    out.append(c.valid ? text.substr(at, c.length) : std::string_view("\xef\xbf\xbd"));
    at += c.length;
  }
  return out;
}

}  // namespace baton

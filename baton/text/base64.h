// Base64 as JSON files hold it: RFC 4648's alphabet, padded.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// Appends the bytes; false (and *out as before) for what is no base64.
inline bool from_base64(std::string_view text, std::string* out) {
  const size_t before = out->size();
  const auto refuse = [&] {
    out->resize(before);
    return false;
  };
  if (text.size() % 4 != 0) return refuse();
  while (!text.empty() && text.ends_with('=') && text.size() % 4 != 2) text.remove_suffix(1);
  unsigned bits = 0;
  int held = 0;
  for (const char c : text) {
    int value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = c - 'A';
    } else if (c >= 'a' && c <= 'z') {
      value = c - 'a' + 26;
    } else if (c >= '0' && c <= '9') {
      value = c - '0' + 52;
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else {
      return refuse();
    }
    bits = (bits << 6 | static_cast<unsigned>(value)) & 0xffffffu;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out->push_back(static_cast<char>(bits >> held & 0xffu));
  }
  return true;
}

}  // namespace baton

// The GPT-2 byte alphabet as two small functions; see the header for the rule.
#include "baton/text/byte_alphabet.h"

#include "baton/text/utf8.h"

namespace baton {
namespace {

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

struct Table {
  uint16_t to_char[256] = {};
  int16_t to_byte[324] = {};
};

constexpr Table make_table() {
  Table table;
  for (auto& byte : table.to_byte) byte = -1;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t code = stands_for_itself(byte) ? byte : next++;
    table.to_char[byte] = static_cast<uint16_t>(code);
    table.to_byte[code] = static_cast<int16_t>(byte);
  }
  return table;
}

constexpr Table kTable = make_table();

}  // namespace

uint32_t byte_to_char(uint8_t byte) { return kTable.to_char[byte]; }

int char_to_byte(uint32_t code) { return code < 324 ? kTable.to_byte[code] : -1; }

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) append_utf8(byte_to_char(static_cast<uint8_t>(c)), &text);
  return text;
}

bool from_byte_alphabet(std::string_view text, std::string* out) {
  const size_t before = out->size();
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const int byte = c.valid ? char_to_byte(c.code) : -1;
    if (byte < 0) {
      out->resize(before);
      return false;
    }
    out->push_back(static_cast<char>(byte));
    at += c.length;
  }
  return true;
}

}  // namespace baton

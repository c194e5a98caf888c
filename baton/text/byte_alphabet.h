// The byte-level alphabet of GPT-2: every byte as a printable character. Bytes 33-126, 161-172 and 174-255 are the
// character of the same number; the other 68, in increasing order, are U+0100 and up (space: U+0120).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

// The character that stands for a byte.
uint32_t byte_to_char(uint8_t byte);
// The byte that a character stands for, or -1.
int char_to_byte(uint32_t code);

std::string to_byte_alphabet(std::string_view bytes);
// Appends the bytes; false (and *out as before) when some character is not of the alphabet.
bool from_byte_alphabet(std::string_view text, std::string* out);

}  // namespace baton

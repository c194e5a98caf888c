// What Python's str does, on UTF-8 with origins: shared by the lexer, filters and methods.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "baton/text/jinja/value.h"

namespace baton::jinja {

// str.isspace for one character.
bool is_python_space(uint32_t code);
// Any decimal float that Python's float() reads, without underscores; no locale.
bool parse_float(std::string_view text, double* value);

size_t char_count(std::string_view text);
// Byte offset of the character with this index; text.size() past the end.
size_t char_offset(std::string_view text, size_t index);

// `chars` null: white space. Which ends: bit 0 left, bit 1 right.
Text strip(const Text& text, const Text* chars, int ends);
// maxsplit < 0: no limit. Empty separators are the caller's to refuse.
std::vector<Text> split(const Text& text, std::string_view separator, int64_t maxsplit);
std::vector<Text> split_right(const Text& text, std::string_view separator, int64_t maxsplit);
std::vector<Text> split_spaces(const Text& text, int64_t maxsplit);
std::vector<Text> split_lines(const Text& text);
void append_replaced(const Text& text, std::string_view from, const Text& to, int64_t count, TextBuilder* out);

enum class Case : uint8_t { kUpper, kLower, kTitle, kCapitalize };
// Simple case mappings of single characters, and U+00DF to SS; titles by Python's str.title.
void append_cased(const Text& text, Case what, TextBuilder* out);
// &, <, >, ' and " as HTML entities.
void append_escaped(const Text& text, TextBuilder* out);

enum class CharClass : uint8_t { kDigit, kDecimal, kAlpha, kAlnum, kSpace, kLower, kUpper };
// str.isdigit and so on: false for empty text.
bool is_all(std::string_view text, CharClass what);

}  // namespace baton::jinja

// Python's string operations. Every result is built from slices of what came in, so that origins survive.
#include "baton/text/jinja/strings.h"

#include <utf8proc.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <locale>
#include <sstream>
#include <string>

#include "baton/text/utf8.h"

namespace baton::jinja {
namespace {

utf8proc_int32_t as_code(uint32_t code) { return static_cast<utf8proc_int32_t>(code); }
uint32_t to_upper(uint32_t code) { return static_cast<uint32_t>(utf8proc_toupper(as_code(code))); }
uint32_t to_lower(uint32_t code) { return static_cast<uint32_t>(utf8proc_tolower(as_code(code))); }
bool is_cased(uint32_t code) {
  const auto category = utf8proc_category(as_code(code));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

size_t char_begin(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  return begin;
}

void append_upper(uint32_t code, bool content, TextBuilder* out) {
  if (code == 0xdf) {
    out->append("SS", content);
  } else {
    out->append_char(to_upper(code), content);
  }
}

// What Python looks through on both sides of a sigma: marks, formats, modifiers and punctuation within words.
bool is_case_ignorable(uint32_t code) {
  switch (utf8proc_category(as_code(code))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  constexpr uint32_t kWithinWords[] = {'\'',   '.',    ':',    0xb7,   0x387,  0x55f,  0x5f4,  0x2018, 0x2019,
                                       0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
  return std::find(std::begin(kWithinWords), std::end(kWithinWords), code) != std::end(kWithinWords);
}

// Unicode's Final_Sigma: a cased letter before it, none after it.
bool is_final_sigma(std::string_view bytes, size_t at) {
  bool before = false;
  for (size_t end = at; end > 0;) {
    end = char_begin(bytes, end);
    const uint32_t code = decode_utf8(bytes, end).code;
    if (is_case_ignorable(code)) continue;
    before = is_cased(code);
    break;
  }
  for (size_t next = at + 2; before && next < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, next);
    if (!is_case_ignorable(c.code)) return !is_cased(c.code);
    next += c.length;
  }
  return before;
}

void append_lower(std::string_view bytes, size_t at, uint32_t code, bool content, TextBuilder* out) {
  if (code == 0x130) {
    out->append("i\u0307", content);
  } else if (code == 0x3a3) {
    out->append_char(is_final_sigma(bytes, at) ? 0x3c2 : 0x3c3, content);
  } else {
    out->append_char(to_lower(code), content);
  }
}

}  // namespace

bool is_python_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool parse_float(std::string_view text, double* value) {
  std::string_view digits = text;
  if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) digits.remove_prefix(1);
  std::string lower(digits);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const double sign = !text.empty() && text[0] == '-' ? -1.0 : 1.0;
  if (lower == "inf" || lower == "infinity") return *value = sign * HUGE_VAL, true;
  if (lower == "nan") return *value = sign * static_cast<double>(NAN), true;
  // [digits][.digits][e[+-]digits], with a digit before the exponent.
  size_t at = 0, mantissa = 0;
  const auto skip_digits = [&] {
    const size_t from = at;
    while (at < lower.size() && lower[at] >= '0' && lower[at] <= '9') ++at;
    return at - from;
  };
  mantissa += skip_digits();
  if (at < lower.size() && lower[at] == '.') {
    ++at;
    mantissa += skip_digits();
  }
  if (mantissa == 0) return false;
  if (at < lower.size() && lower[at] == 'e') {
    ++at;
    if (at < lower.size() && (lower[at] == '+' || lower[at] == '-')) ++at;
    if (skip_digits() == 0) return false;
  }
  if (at != lower.size()) return false;
  std::istringstream stream(lower);
  stream.imbue(std::locale::classic());
  stream >> *value;  // out of range gives the largest value or 0, and sets fail
  if (stream.fail() && *value != 0.0) *value = HUGE_VAL;
  *value *= sign;
  return true;
}

size_t char_count(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

size_t char_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) continue;
    if (index-- == 0) return at;
  }
  return text.size();
}

Text strip(const Text& text, const Text* chars, int ends) {
  const std::string_view bytes = text.view();
  const auto strips = [&](size_t at) {
    const Utf8Char c = decode_utf8(bytes, at);
    if (chars == nullptr) return is_python_space(c.code);
    const std::string_view set = chars->view();
    for (size_t i = 0; i < set.size();) {
      const Utf8Char one = decode_utf8(set, i);
      if (one.code == c.code) return true;
      i += one.length;
    }
    return false;
  };
  size_t begin = 0, end = bytes.size();
  if ((ends & 1) != 0) {
    while (begin < end && strips(begin)) begin += decode_utf8(bytes, begin).length;
  }
  if ((ends & 2) != 0) {
    while (end > begin && strips(char_begin(bytes, end))) end = char_begin(bytes, end);
  }
  return text.slice(begin, end - begin);
}

std::vector<Text> split(const Text& text, std::string_view separator, int64_t maxsplit) {
  std::vector<Text> parts;
  const std::string_view bytes = text.view();
  size_t at = 0;
  while (maxsplit != 0) {
    const size_t found = bytes.find(separator, at);
    if (found == bytes.npos) break;
    parts.push_back(text.slice(at, found - at));
    at = found + separator.size();
    --maxsplit;
  }
  parts.push_back(text.slice(at, bytes.size() - at));
  return parts;
}

std::vector<Text> split_right(const Text& text, std::string_view separator, int64_t maxsplit) {
  std::vector<Text> parts;
  const std::string_view bytes = text.view();
  size_t end = bytes.size();
  while (maxsplit != 0 && end >= separator.size()) {
    const size_t found = bytes.rfind(separator, end - separator.size());
    if (found == bytes.npos) break;
    const size_t from = found + separator.size();
    parts.push_back(text.slice(from, end - from));
    end = found;
    --maxsplit;
  }
  parts.push_back(text.slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> split_spaces(const Text& text, int64_t maxsplit) {
  std::vector<Text> parts;
  Text rest = strip(text, nullptr, 1);
  while (rest.size > 0 && maxsplit != 0) {
    const std::string_view bytes = rest.view();
    size_t end = 0;
    while (end < bytes.size()) {
      const Utf8Char c = decode_utf8(bytes, end);
      if (is_python_space(c.code)) break;
      end += c.length;
    }
    parts.push_back(rest.slice(0, end));
    rest = strip(rest.slice(end, bytes.size() - end), nullptr, 1);
    --maxsplit;
  }
  if (rest.size > 0) parts.push_back(strip(rest, nullptr, 2));
  return parts;
}

std::vector<Text> split_lines(const Text& text) {
  std::vector<Text> lines;
  const std::string_view bytes = text.view();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, at);
    const bool ends = (c.code >= 0x0a && c.code <= 0x0d) || (c.code >= 0x1c && c.code <= 0x1e) || c.code == 0x85 ||
                      c.code == 0x2028 || c.code == 0x2029;
    const size_t after = at + c.length;
    if (ends) {
      lines.push_back(text.slice(begin, at - begin));
      begin = c.code == '\r' && after < bytes.size() && bytes[after] == '\n' ? after + 1 : after;
    }
    at = ends ? begin : after;
  }
  if (begin < bytes.size()) lines.push_back(text.slice(begin, bytes.size() - begin));
  return lines;
}

void append_replaced(const Text& text, std::string_view from, const Text& to, int64_t count, TextBuilder* out) {
  const std::string_view bytes = text.view();
  size_t at = 0;
  if (from.empty()) {
    // Between all characters, before the first and after the last.
    while (count != 0 && !out->overflowed()) {
      out->append(to);
      --count;
      if (at >= bytes.size()) return;
      const size_t length = decode_utf8(bytes, at).length;
      out->append(text.slice(at, length));
      at += length;
    }
  } else {
    while (count != 0 && !out->overflowed()) {
      const size_t found = bytes.find(from, at);
      if (found == bytes.npos) break;
      out->append(text.slice(at, found - at));
      out->append(to);
      at = found + from.size();
      --count;
    }
  }
  out->append(text.slice(at, bytes.size() - at));
}

void append_cased(const Text& text, Case what, TextBuilder* out) {
  const std::string_view bytes = text.view();
  bool after_cased = false;
  for (size_t at = 0; at < bytes.size() && !out->overflowed();) {
    const Utf8Char c = decode_utf8(bytes, at);
    const bool content = text.content_at(at);
    const bool upper =
        what == Case::kUpper || (what == Case::kTitle && !after_cased) || (what == Case::kCapitalize && at == 0);
    if (upper && what != Case::kUpper) {
      const auto title = static_cast<uint32_t>(utf8proc_totitle(as_code(c.code)));
      if (c.code == 0xdf) {
        out->append("Ss", content);
      } else {
        out->append_char(title, content);
      }
    } else if (upper) {
      append_upper(c.code, content, out);
    } else {
      append_lower(bytes, at, c.code, content, out);
    }
    after_cased = is_cased(c.code);
    at += c.length;
  }
}

void append_escaped(const Text& text, TextBuilder* out) {
  text.for_each_run([&](std::string_view bytes, bool content) {
    for (const char c : bytes) {
      switch (c) {
        case '&':
          out->append("&amp;", content);
          break;
        case '<':
          out->append("&lt;", content);
          break;
        case '>':
          out->append("&gt;", content);
          break;
        case '\'':
          out->append("&#39;", content);
          break;
        case '"':
          out->append("&#34;", content);
          break;
        default:
          out->append({&c, 1}, content);
      }
    }
  });
}

bool is_all(std::string_view text, CharClass what) {
  bool any_cased = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    at += c.length;
    const auto category = utf8proc_category(as_code(c.code));
    const bool alpha = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    const bool superscript = c.code == 0xb2 || c.code == 0xb3 || c.code == 0xb9 || c.code == 0x2070 ||
                             (c.code >= 0x2074 && c.code <= 0x2079) || (c.code >= 0x2080 && c.code <= 0x2089);
    bool fits = false;
    switch (what) {
      case CharClass::kDecimal:
        fits = category == UTF8PROC_CATEGORY_ND;
        break;
      case CharClass::kDigit:
        fits = category == UTF8PROC_CATEGORY_ND || superscript;
        break;
      case CharClass::kAlpha:
        fits = alpha;
        break;
      case CharClass::kAlnum:
        fits = alpha || (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
        break;
      case CharClass::kSpace:
        fits = is_python_space(c.code);
        break;
      case CharClass::kLower:
        fits = category != UTF8PROC_CATEGORY_LU && category != UTF8PROC_CATEGORY_LT;
        any_cased = any_cased || category == UTF8PROC_CATEGORY_LL;
        break;
      case CharClass::kUpper:
        fits = category != UTF8PROC_CATEGORY_LL && category != UTF8PROC_CATEGORY_LT;
        any_cased = any_cased || category == UTF8PROC_CATEGORY_LU;
        break;
    }
    if (!fits) return false;
  }
  if (what == CharClass::kLower || what == CharClass::kUpper) return any_cased;
  return !text.empty();
}

}  // namespace baton::jinja

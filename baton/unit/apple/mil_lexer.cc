// Cuts MIL text into words. Numbers are read without a locale: decimal with an exponent, hexadecimal floats, integers.
#include "baton/unit/apple/mil_lexer.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "baton/unit/apple/rule.h"

namespace baton::apple {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Reads one number from `text`; returns the characters used, 0 when there is none.
struct NumberReader {
  std::string_view text;
  size_t at = 0;

  char peek() const { return at < text.size() ? text[at] : '\0'; }

  bool read_exponent(int* exponent) {
    ++at;
    const bool negative = peek() == '-';
    if (peek() == '-' || peek() == '+') ++at;
    if (!is_digit(peek())) return false;
    int value = 0;
    for (; is_digit(peek()); ++at) value = value < 100000 ? value * 10 + (peek() - '0') : value;
    *exponent += negative ? -value : value;
    return true;
  }

  // Digits of base 10 or 16 around one point; *scale counts digits after the point.
  bool read_digits(int base, double* mantissa, int* scale) {
    bool any = false, point = false;
    for (;; ++at) {
      if (peek() == '.' && !point) {
        point = true;
        continue;
      }
      const int digit = base == 16 ? hex_digit(peek()) : (is_digit(peek()) ? peek() - '0' : -1);
      if (digit < 0) return any;
      any = true;
      *mantissa = *mantissa * base + digit;
      if (point) --*scale;
    }
  }

  bool read(double* value) {
    const bool negative = peek() == '-';
    if (peek() == '-' || peek() == '+') ++at;
    double mantissa = 0;
    int scale = 0, exponent = 0;
    if (peek() == '0' && at + 1 < text.size() && (text[at + 1] == 'x' || text[at + 1] == 'X')) {
      at += 2;
      if (!read_digits(16, &mantissa, &scale)) return false;
      if ((peek() == 'p' || peek() == 'P') && !read_exponent(&exponent)) return false;
      *value = std::ldexp(mantissa, exponent + 4 * scale);
    } else {
      if (!read_digits(10, &mantissa, &scale)) return false;
      if ((peek() == 'e' || peek() == 'E') && !read_exponent(&exponent)) return false;
      exponent += scale;
      *value = exponent < 0 ? mantissa / std::pow(10.0, -exponent) : mantissa * std::pow(10.0, exponent);
      if (mantissa == 0) *value = 0;
    }
    if (negative) *value = -*value;
    return !is_letter(peek()) && peek() != '.';
  }
};

}  // namespace

tl::unexpected<Error> MilLexer::error(std::string_view expected) const {
  const std::string found =
      token_.kind == MilToken::Kind::kEnd ? "the end of the text" : fmt::format("'{}'", token_.text);
  return fail(rule_error(Rule::kSyntax, fmt::format("line {} column {}: expected {}, found {}", token_.line,
                                                    token_.column, expected, found)));
}

Status MilLexer::read_number(size_t begin) {
  NumberReader reader{text_.substr(begin)};
  double value = 0;
  const bool good = reader.read(&value);
  token_.kind = MilToken::Kind::kNumber;
  token_.text = text_.substr(begin, reader.at > 0 ? reader.at : 1);
  token_.number = value;
  at_ = begin + reader.at;
  if (!good || !std::isfinite(value)) return error("a number");
  return {};
}

Status MilLexer::read_string() {
  const size_t begin = ++at_;
  for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    if (text_[at_] == '\n' || text_[at_] == '\0') break;
    if (text_[at_] == '\\') ++at_;
  }
  if (at_ >= text_.size() || text_[at_] != '"') {
    token_.kind = MilToken::Kind::kEnd;
    token_.text = {};
    return error("the closing quote of a string");
  }
  token_.kind = MilToken::Kind::kString;
  token_.text = text_.substr(begin, at_ - begin);
  ++at_;
  return {};
}

Status MilLexer::advance() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
    if (text_[at_] == '\n') {
      ++line_;
      line_begin_ = at_ + 1;
    }
    ++at_;
  }
  token_ = {};
  token_.line = line_;
  token_.column = static_cast<uint32_t>(at_ - line_begin_ + 1);
  if (at_ >= text_.size()) return {};
  const size_t begin = at_;
  const char c = text_[at_];
  if (is_letter(c)) {
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    token_.kind = MilToken::Kind::kName;
    token_.text = text_.substr(begin, at_ - begin);
    return {};
  }
  if (c == '"') return read_string();
  if (c == '-' && text_.substr(at_).starts_with("->")) {
    token_.kind = MilToken::Kind::kArrow;
    token_.text = text_.substr(at_, 2);
    at_ += 2;
    return {};
  }
  if (is_digit(c) || c == '-' || c == '+' || c == '.') return read_number(begin);
  token_.kind = MilToken::Kind::kMark;
  token_.text = text_.substr(at_++, 1);
  if (std::string_view("()[]{}<>,=;?").find(c) == std::string_view::npos) return error("MIL text");
  return {};
}

}  // namespace baton::apple

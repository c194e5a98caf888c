// The lexer. Text is searched for the next opening mark; inside a tag, tokens are read until its closing mark outside
// of brackets.
#include "baton/text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <locale>
#include <optional>
#include <sstream>

#include "baton/text/jinja/strings.h"
#include "baton/text/utf8.h"

namespace baton::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii_space(char c) { return static_cast<uint8_t>(c) < 0x80 && is_python_space(static_cast<uint8_t>(c)); }
bool is_name_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

// All line ends become \n; one at the very end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text.push_back(source[i]);
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)), rest_(source_) {}

  Result<std::vector<Token>> run() {
    while (at_ < rest_.size()) BATON_OK(read_text());
    add(TokenType::kEnd);
    return std::move(tokens_);
  }

 private:
  tl::unexpected<Error> bad(std::string_view what) const {
    return fail(Code::kInvalidInput, fmt::format("line {}: {}", line_, what));
  }
  bool looking_at(std::string_view text) const { return rest_.substr(at_, text.size()) == text; }
  void add(TokenType type, std::string text = {}) {
    Token token;
    token.type = type;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }
  void advance_to(size_t to) {
    line_ += static_cast<uint32_t>(
        std::count(rest_.begin() + static_cast<ptrdiff_t>(at_), rest_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  void skip_space() {
    size_t to = at_;
    while (to < rest_.size()) {
      const Utf8Char c = decode_utf8(rest_, to);
      if (!is_python_space(c.code)) break;
      to += c.length;
    }
    advance_to(to);
  }
  // The rule after a tag's end: '-' takes all white space, nothing takes one line break, '+' takes nothing.
  void after_tag(char sign, bool trim) {
    line_starting_ = false;
    if (sign == '-') {
      const size_t before = at_;
      skip_space();
      line_starting_ = at_ > before && rest_[at_ - 1] == '\n';
    } else if (trim && sign != '+' && at_ < rest_.size() && rest_[at_] == '\n') {
      advance_to(at_ + 1);
      line_starting_ = true;
    }
  }

  // The text that ends at `end`, before a tag with `sign` after its opening mark.
  void add_data(size_t end, char sign, bool is_variable) {
    std::string_view text = rest_.substr(at_, end - at_);
    if (sign == '-') {
      text = text.substr(0, strip_right(text));
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == text.npos ? 0 : newline + 1;
      if ((line_begin > 0 || line_starting_) && strip_right(text.substr(line_begin)) == 0) {
        text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) add(TokenType::kData, std::string(text));
    advance_to(end);
  }
  static size_t strip_right(std::string_view text) {
    size_t end = text.size();
    while (end > 0) {
      size_t begin = end - 1;
      while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
      if (!is_python_space(decode_utf8(text, begin).code)) break;
      end = begin;
    }
    return end;
  }
  char sign_at(size_t where) const {
    const char c = where < rest_.size() ? rest_[where] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  Status read_text() {
    size_t open = at_;
    for (;; ++open) {
      open = rest_.find('{', open);
      if (open == rest_.npos || open + 1 >= rest_.size()) {
        add(TokenType::kData, std::string(rest_.substr(at_)));
        at_ = rest_.size();
        return {};
      }
      const char kind = rest_[open + 1];
      if (kind == '%' || kind == '{' || kind == '#') break;
    }
    const char kind = rest_[open + 1];
    const char sign = sign_at(open + 2);
    add_data(open, sign, kind == '{');
    if (kind == '#') return skip_comment(open + 2);
    if (kind == '%') {
      if (const std::optional<size_t> raw = raw_begin(open)) return read_raw(*raw);
    }
    add(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin);
    advance_to(open + 2 + (sign != '\0' ? 1 : 0));
    return read_tag(kind == '{');
  }

  Status skip_comment(size_t from) {
    const size_t close = rest_.find("#}", from);
    if (close == rest_.npos) return bad("the comment is not closed");
    const char before = close > from ? rest_[close - 1] : '\0';
    advance_to(close + 2);
    after_tag(before == '-' || before == '+' ? before : '\0', true);
    return {};
  }

  // {% raw %}: where its text begins (white space of '-' included in the tag); empty when the tag is another one.
  std::optional<size_t> raw_begin(size_t open) {
    size_t at = open + 2 + (sign_at(open + 2) != '\0' ? 1 : 0);
    const auto spaces = [&] {
      while (at < rest_.size() && is_ascii_space(rest_[at])) ++at;
    };
    spaces();
    if (rest_.substr(at, 3) != "raw") return std::nullopt;
    at += 3;
    spaces();
    if (rest_.substr(at, 2) == "%}") return at + 2;
    if (rest_.substr(at, 3) != "-%}") return std::nullopt;
    at += 3;
    spaces();
    return at;
  }

  Status read_raw(size_t from) {
    advance_to(from);
    line_starting_ = from > 0 && rest_[from - 1] == '\n';
    for (size_t open = rest_.find("{%", at_); open != rest_.npos; open = rest_.find("{%", open + 2)) {
      const char sign = sign_at(open + 2);
      size_t at = open + 2 + (sign != '\0' ? 1 : 0);
      const auto spaces = [&] {
        while (at < rest_.size() && is_ascii_space(rest_[at])) ++at;
      };
      spaces();
      if (rest_.substr(at, 6) != "endraw") continue;
      at += 6;
      spaces();
      const char close_sign = sign_at(at);
      if (close_sign != '\0') ++at;
      if (rest_.substr(at, 2) != "%}") continue;
      add_data(open, sign, false);
      advance_to(at + 2);
      after_tag(close_sign, true);
      return {};
    }
    return bad("{% raw %} is not closed");
  }

  Status read_tag(bool is_variable) {
    std::string brackets;  // the closing ones that are awaited
    const std::string_view close = is_variable ? "}}" : "%}";
    for (;;) {
      skip_space();
      if (at_ >= rest_.size()) return bad("the template ends within a tag");
      if (brackets.empty()) {
        char sign = sign_at(at_);
        if (sign == '+' && is_variable) sign = '\0';
        const size_t mark = at_ + (sign != '\0' ? 1 : 0);
        if (rest_.substr(mark, 2) == close) {
          add(is_variable ? TokenType::kVariableEnd : TokenType::kBlockEnd);
          advance_to(mark + 2);
          after_tag(sign, !is_variable);
          return {};
        }
      }
      BATON_OK(read_token(&brackets));
    }
  }

  Status read_token(std::string* brackets) {
    const char c = rest_[at_];
    if (is_digit(c)) return read_number();
    if (is_name_char(c)) {
      size_t end = at_;
      while (end < rest_.size() && is_name_char(rest_[end])) ++end;
      add(TokenType::kName, std::string(rest_.substr(at_, end - at_)));
      at_ = end;
      return {};
    }
    if (c == '\'' || c == '"') return read_string(c);
    for (const std::string_view op : kOperators) {
      if (!looking_at(op)) continue;
      if (op == "(") brackets->push_back(')');
      if (op == "[") brackets->push_back(']');
      if (op == "{") brackets->push_back('}');
      if (op == ")" || op == "]" || op == "}") {
        if (brackets->empty() || brackets->back() != op[0]) return bad(fmt::format("unexpected '{}'", op));
        brackets->pop_back();
      }
      add(TokenType::kOperator, std::string(op));
      at_ += op.size();
      return {};
    }
    const Utf8Char shown = decode_utf8(rest_, at_);
    return bad(fmt::format("unexpected character '{}'", rest_.substr(at_, shown.length)));
  }

  // Digits with single underscores between them, as in Python; returns the end, or `from` when there are none.
  size_t digits_end(size_t from) const {
    size_t end = from;
    while (end < rest_.size() && is_digit(rest_[end])) {
      ++end;
      if (end + 1 < rest_.size() && rest_[end] == '_' && is_digit(rest_[end + 1])) ++end;
    }
    return end;
  }

  Status read_number() {
    const size_t whole = digits_end(at_);
    size_t end = whole;
    bool is_float = false;
    if (end < rest_.size() && rest_[end] == '.' && digits_end(end + 1) > end + 1) {
      end = digits_end(end + 1);
      is_float = true;
    }
    if (end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
      const size_t sign = end + 1 < rest_.size() && (rest_[end + 1] == '+' || rest_[end + 1] == '-') ? 1 : 0;
      if (const size_t exponent = digits_end(end + 1 + sign); exponent > end + 1 + sign) {
        end = exponent;
        is_float = true;
      }
    }
    const bool after_dot = at_ > 0 && rest_[at_ - 1] == '.';
    if (is_float && !after_dot) return add_float(end);
    return read_integer();
  }

  Status add_float(size_t end) {
    std::string digits(rest_.substr(at_, end - at_));
    std::erase(digits, '_');
    add(TokenType::kFloat, digits);
    if (!parse_float(digits, &tokens_.back().real)) return bad(fmt::format("'{}' is not a number", digits));
    at_ = end;
    return {};
  }

  Status read_integer() {
    int base = 10;
    size_t from = at_;
    if (rest_[at_] == '0' && at_ + 1 < rest_.size()) {
      const char kind = static_cast<char>(rest_[at_ + 1] | 0x20);
      if (kind == 'x' || kind == 'o' || kind == 'b') {
        base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
        from = at_ + 2;
      }
    }
    const auto is_base_digit = [&](char c) {
      const int value = is_digit(c) ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : 99;
      return value < base;
    };
    // A decimal that begins with 0 is only zeros.
    const bool zeros = base == 10 && rest_[at_] == '0';
    std::string digits;
    size_t end = from;
    while (end < rest_.size()) {
      size_t next = end;
      if (rest_[next] == '_' && (end > from || base != 10)) ++next;
      if (next >= rest_.size() || !is_base_digit(rest_[next]) || (zeros && rest_[next] != '0')) break;
      digits.push_back(rest_[next]);
      end = next + 1;
    }
    if (digits.empty()) {
      digits = "0";  // "0x" without digits: the integer 0 and then a name
      end = at_ + 1;
      base = 10;
    }
    add(TokenType::kInteger, digits);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), tokens_.back().integer, base);
    if (parsed.ec != std::errc()) return bad(fmt::format("the integer {} is above 64 bits", digits));
    at_ = end;
    return {};
  }

  Status read_string(char quote) {
    size_t end = at_ + 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return bad("a string is not closed");
    BATON_TRY(std::string text, unescape(rest_.substr(at_ + 1, end - at_ - 1)));
    add(TokenType::kString, std::move(text));
    advance_to(end + 1);
    return {};
  }

  // Python's unicode-escape.
  Result<std::string> unescape(std::string_view raw) const {
    std::string text;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        text.push_back(raw[i]);
        continue;
      }
      const char c = raw[++i];  // never past the end: the string's own end is not escaped
      constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t known = kFrom.find(c); known != kFrom.npos) {
        text.push_back(kTo[known]);
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        BATON_TRY(const uint32_t code, escaped_code(raw.substr(i + 1, count), count, 16));
        append_utf8(code, &text);
        i += count;
      } else if (c >= '0' && c <= '7') {
        size_t count = 1;
        while (count < 3 && i + count < raw.size() && raw[i + count] >= '0' && raw[i + count] <= '7') ++count;
        BATON_TRY(const uint32_t code, escaped_code(raw.substr(i, count), count, 8));
        append_utf8(code, &text);
        i += count - 1;
      } else if (c == 'N') {
        return bad("\\N{...} in a string is not supported");
      } else {
        text.push_back('\\');
        text.push_back(c);
      }
    }
    return text;
  }
  Result<uint32_t> escaped_code(std::string_view digits, size_t count, int base) const {
    uint32_t code = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    const bool whole = digits.size() == count && parsed.ec == std::errc() && parsed.ptr == digits.data() + count;
    if (!whole || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
      return bad(fmt::format("'{}' in a string escape is not a character", digits));
    }
    return code;
  }

  std::string source_;
  std::string_view rest_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace baton::jinja

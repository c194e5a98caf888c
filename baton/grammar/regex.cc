// A recursive descent over the pattern, by code points.
#include "baton/grammar/regex.h"

#include <fmt/format.h>

#include <optional>

#include "baton/text/utf8.h"

namespace baton::grammar {
namespace {

constexpr int kGroupsMax = 64;           // nested
constexpr uint32_t kTimesMax = 100'000;  // in {m,n}

using Ranges = std::vector<CodeRange>;

Ranges digits() { return {{'0', '9'}}; }
Ranges words() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
Ranges spaces() { return {{'\t', '\r'}, {' ', ' '}}; }
// What \S is not: all that anybody takes for a space.
Ranges all_spaces() {
  return {{'\t', '\r'},     {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

class RegexParser {
 public:
  RegexParser(std::string_view text, Spelling spelling, RegexPool* pool)
      : text_(text), spelling_(spelling), pool_(*pool) {}

  Result<RegexId> whole(RegexReach reach) {
    const RegexId any = pool_.repeat(pool_.characters({kAllCodes}, spelling_), 0, kUnbounded);
    std::vector<RegexId> ways;
    do {
      const bool from_start = take('^');
      BATON_TRY(const RegexId body, sequence(true));
      const bool to_end = take('$');
      std::vector<RegexId> parts;
      if (reach == RegexReach::kSearch && !from_start) parts.push_back(any);
      parts.push_back(body);
      if (reach == RegexReach::kSearch && !to_end) parts.push_back(any);
      ways.push_back(pool_.cat(std::move(parts)));
    } while (take('|'));
    if (at_ < text_.size()) return error(text_[at_] == ')' ? "')' without '('" : "'$' is only understood at the end");
    return pool_.alt(std::move(ways));
  }

 private:
  tl::unexpected<Error> error(std::string_view what, Code code = Code::kInvalidInput) const {
    return fail(code, fmt::format("at byte {} of the expression: {}", at_, what));
  }
  tl::unexpected<Error> unsupported(std::string_view what) const {
    return error(fmt::format("{} is not supported", what), Code::kUnsupported);
  }
  bool more() const { return at_ < text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(char c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Result<RegexId> alternatives() {
    std::vector<RegexId> ways;
    do {
      BATON_TRY(const RegexId way, sequence(false));
      ways.push_back(way);
    } while (take('|'));
    return pool_.alt(std::move(ways));
  }

  // Up to '|', ')' or the end, or a '$' in front of one where it means the end of the text.
  Result<RegexId> sequence(bool outermost) {
    std::vector<RegexId> parts;
    while (more() && peek() != '|' && peek() != ')') {
      if (peek() == '$' && outermost && (at_ + 1 == text_.size() || peek(1) == '|')) break;
      BATON_TRY(RegexId part, atom());
      BATON_TRY(part, quantified(part));
      parts.push_back(part);
    }
    return pool_.cat(std::move(parts));
  }

  Result<RegexId> atom() {
    if (take('(')) return group();
    if (peek() == '[') {
      BATON_TRY(Ranges ranges, character_class());
      return pool_.characters(std::move(ranges), spelling_);
    }
    if (peek() == '^' || peek() == '$') return unsupported(fmt::format("'{}' anywhere but at the ends", peek()));
    if (peek() == '*' || peek() == '+' || peek() == '?') return error(fmt::format("'{}' repeats nothing", peek()));
    if (take('.')) return pool_.characters(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}), spelling_);
    if (peek() == '\\') {
      BATON_TRY(Ranges ranges, escape(false));
      return pool_.characters(std::move(ranges), spelling_);
    }
    BATON_TRY(const uint32_t code, character());
    return pool_.characters({{code, code}}, spelling_);
  }

  Result<RegexId> group() {
    if (++depth_ > kGroupsMax) return error(fmt::format("more than {} groups within each other", kGroupsMax));
    if (take("?")) {
      if (take("P<") || (peek() == '<' && peek(1) != '=' && peek(1) != '!' && take('<'))) {
        while (more() && peek() != '>') ++at_;
        if (!take('>')) return error("the name of a group without '>'");
      } else if (!take(':')) {
        return unsupported(fmt::format("'(?{}'", peek()));
      }
    }
    BATON_TRY(const RegexId inner, alternatives());
    if (!take(')')) return error("'(' without ')'");
    --depth_;
    return inner;
  }

  std::optional<uint32_t> number() {
    uint64_t value = 0;
    const size_t from = at_;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), kUnbounded);
    if (at_ == from) return std::nullopt;
    return static_cast<uint32_t>(value);
  }

  Result<RegexId> quantified(RegexId part) {
    uint32_t min = 1, max = 1;
    if (take('*')) {
      min = 0, max = kUnbounded;
    } else if (take('+')) {
      max = kUnbounded;
    } else if (take('?')) {
      min = 0;
    } else if (peek() == '{') {
      const size_t from = at_++;
      const auto low = number();
      std::optional<uint32_t> high = low;
      bool open = false;
      if (take(',')) high = number(), open = !high;
      if (!low || !take('}')) {
        at_ = from;
        return error("'{' begins no {m}, {m,} or {m,n}: write \\{ for the character");
      }
      if (*low > kTimesMax || (high && *high > kTimesMax)) return error(fmt::format("more than {} times", kTimesMax));
      if (high && *high < *low) return error("{m,n} with n below m");
      min = *low, max = open ? kUnbounded : *high;
    } else {
      return part;
    }
    take('?');  // lazy: the same texts
    if (peek() == '+') return unsupported("a possessive quantifier");
    if (peek() == '*' || peek() == '?' || peek() == '{') return error("a quantifier behind a quantifier");
    return pool_.repeat(part, min, max);
  }

  Result<uint32_t> character() {
    const Utf8Char c = decode_utf8(text_, at_);
    if (!c.valid) return error("it is not UTF-8");
    at_ += c.length;
    return c.code;
  }

  Result<uint32_t> hex(size_t digits_min, size_t digits_max) {
    uint32_t value = 0;
    size_t count = 0;
    for (; count < digits_max; ++count, ++at_) {
      const char c = peek();
      const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!letter && (c < '0' || c > '9')) break;
      value = value * 16 + static_cast<uint32_t>(letter ? (c | 0x20) - 'a' + 10 : c - '0');
    }
    if (count < digits_min) return error("too few hexadecimal digits");
    return value;
  }

  Result<uint32_t> unicode() {
    if (take('{')) {
      BATON_TRY(const uint32_t code, hex(1, 6));
      if (!take('}') || code > kAllCodes.high) return error("no code point");
      return code;
    }
    BATON_TRY(uint32_t code, hex(4, 4));
    if (code >= 0xD800 && code < 0xDC00 && take("\\u")) {
      BATON_TRY(const uint32_t low, hex(4, 4));
      if (low < 0xDC00 || low > 0xDFFF) return error("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    return code;
  }

  // At a backslash.
  Result<Ranges> escape(bool in_class) {
    ++at_;
    if (!more()) return error("a backslash at the end");
    const auto one = [](uint32_t code) { return Ranges{{code, code}}; };
    const char c = peek();
    switch (c) {
      case 'd':
        return ++at_, digits();
      case 'w':
        return ++at_, words();
      case 's':
        return ++at_, spaces();
      case 'D':
        return ++at_, complement(digits());
      case 'W':
        return ++at_, complement(words());
      case 'S':
        return ++at_, complement(all_spaces());
      case 'n':
        return ++at_, one('\n');
      case 'r':
        return ++at_, one('\r');
      case 't':
        return ++at_, one('\t');
      case 'f':
        return ++at_, one('\f');
      case 'v':
        return ++at_, one('\v');
      case '0':
        return ++at_, one(0);
      case 'x': {
        ++at_;
        BATON_TRY(const uint32_t code, hex(2, 2));
        return one(code);
      }
      case 'u': {
        ++at_;
        BATON_TRY(const uint32_t code, unicode());
        return one(code);
      }
      case 'A':
      case 'z':
      case 'Z':
      case 'B':
      case 'k':
      case 'p':
      case 'P':
      case 'c':
        return unsupported(fmt::format("\\{}", c));
      default:
        break;
    }
    if (c == 'b' && in_class) return ++at_, one('\b');
    if (c == 'b' || (c >= '1' && c <= '9')) return unsupported(fmt::format("\\{}", c));
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return error(fmt::format("\\{} means nothing", c));
    BATON_TRY(const uint32_t code, character());
    return one(code);
  }

  Result<Ranges> character_class() {
    ++at_;
    const bool negated = take('^');
    Ranges out;
    while (peek() != ']') {
      if (!more()) return error("'[' without ']'");
      BATON_TRY(const Ranges low, class_item());
      const bool single = low.size() == 1 && low[0].low == low[0].high;
      if (single && peek() == '-' && at_ + 1 < text_.size() && peek(1) != ']') {
        ++at_;
        BATON_TRY(const Ranges high, class_item());
        if (high.size() != 1 || high[0].low != high[0].high) return error("a range that ends in a class");
        if (high[0].low < low[0].low) return error("a range that ends before it begins");
        out.push_back({low[0].low, high[0].low});
      } else {
        out.insert(out.end(), low.begin(), low.end());
      }
    }
    ++at_;
    return negated ? complement(std::move(out)) : normalized(std::move(out));
  }
  Result<Ranges> class_item() {
    if (!more()) return error("'[' without ']'");
    if (peek() == '\\') return escape(true);
    BATON_TRY(const uint32_t code, character());
    return Ranges{{code, code}};
  }

  std::string_view text_;
  Spelling spelling_;
  RegexPool& pool_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<RegexId> parse_regex(std::string_view pattern, Spelling spelling, RegexReach reach, RegexPool* pool) {
  if (pattern.size() > kRegexBytesMax) {
    return fail(Code::kInvalidInput,
                fmt::format("the expression has {} bytes: at most {}", pattern.size(), kRegexBytesMax));
  }
  return RegexParser(pattern, spelling, pool).whole(reach);
}

}  // namespace baton::grammar

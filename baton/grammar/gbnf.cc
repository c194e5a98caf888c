// A recursive descent over the rules; what is regular becomes expressions, the rest rules.
#include "baton/grammar/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "baton/text/utf8.h"

namespace baton::grammar {
namespace {

constexpr int kNestingMax = 100;          // of groups
constexpr int kInlineMax = 200;           // rules that lead to each other, put together as one expression
constexpr uint64_t kInlineSize = 20'000;  // of such an expression
constexpr uint32_t kRepeatMax = 10'000;

class GbnfReader {
 public:
  GbnfReader(std::string_view text, Draft* draft) : text_(text), draft_(*draft) {}

  Result<ExprId> root() {
    BATON_OK(read_rules());
    const auto found = names_.find("root");
    if (found == names_.end() || rules_[found->second].body == kNone) {
      return fail(Code::kInvalidInput, "the grammar has no rule 'root'");
    }
    for (const RuleText& rule : rules_) {
      if (rule.body == kNone) {
        return fail(Code::kInvalidInput, fmt::format("line {}: rule '{}' is not defined", rule.line, rule.name));
      }
    }
    const ExprId out = reference(static_cast<uint32_t>(found->second));
    while (!open_.empty()) {
      const uint32_t rule = open_.back();
      open_.pop_back();
      draft_.define(*rules_[rule].draft, expression(rules_[rule].body));
    }
    return out;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  enum class Kind : uint8_t { kRegex, kRule, kCat, kAlt, kRepeat };
  struct Node {
    Kind kind = Kind::kCat;
    uint32_t value = 0;  // a RegexId, or a rule
    std::vector<uint32_t> parts = {};
    uint32_t min = 0, max = 0;
  };
  struct RuleText {
    std::string name;
    int line = 0;  // where it is first spoken of
    uint32_t body = kNone;
    enum class Look : uint8_t { kNot, kNow, kDone } looked = Look::kNot;
    std::optional<RegexId> regex = {};
    std::optional<uint32_t> draft = {};
  };

  // Reading.
  tl::unexpected<Error> error(std::string_view what) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(std::min(at_, text_.size())), '\n');
    return fail(Code::kInvalidInput, fmt::format("line {}: {}", line, what));
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool more() const { return at_ < text_.size(); }
  uint32_t add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  void skip(bool lines) {
    for (; more(); ++at_) {
      if (peek() == '#') {
        while (more() && peek() != '\n') ++at_;
        if (!lines || !more()) return;
      } else if (peek() != ' ' && peek() != '\t' && peek() != '\r' && !(lines && peek() == '\n')) {
        return;
      }
    }
  }
  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string_view name() {
    const size_t from = at_;
    while (is_name(peek())) ++at_;
    return text_.substr(from, at_ - from);
  }
  uint32_t rule_of(std::string_view called) {
    const auto [found, made] = names_.emplace(called, rules_.size());
    if (made)
      rules_.push_back(
          {std::string(called),
           1 + static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n'))});
    return static_cast<uint32_t>(found->second);
  }

  Status read_rules() {
    if (text_.size() > kGbnfBytesMax) {
      return fail(Code::kInvalidInput,
                  fmt::format("the grammar has {} bytes: at most {}", text_.size(), kGbnfBytesMax));
    }
    for (skip(true); more(); skip(true)) {
      const std::string_view called = name();
      if (called.empty()) return error("a rule begins with its name");
      skip(false);
      if (!text_.substr(at_).starts_with("::=")) return error(fmt::format("'::=' must follow '{}'", called));
      const uint32_t rule = rule_of(called);
      if (rules_[rule].body != kNone) return error(fmt::format("rule '{}' is there already", called));
      at_ += 3;
      skip(true);
      BATON_TRY(const uint32_t body, alternatives(0));
      rules_[rule].body = body;
      if (more() && peek() != '\n') return error(fmt::format("'{}' is not understood here", peek()));
    }
    return {};
  }

  Result<uint32_t> alternatives(int depth) {
    if (depth > kNestingMax) return error(fmt::format("more than {} groups within each other", kNestingMax));
    std::vector<uint32_t> ways;
    while (true) {
      BATON_TRY(const uint32_t way, sequence(depth));
      ways.push_back(way);
      // A line that begins with '|' goes on.
      const size_t end = at_;
      skip(true);
      if (peek() != '|') {
        if (depth == 0) at_ = end;
        break;
      }
      ++at_;
      skip(true);
    }
    return ways.size() == 1 ? ways[0] : add({.kind = Kind::kAlt, .parts = std::move(ways)});
  }

  Result<uint32_t> sequence(int depth) {
    std::vector<uint32_t> parts;
    while (true) {
      skip(depth > 0);
      uint32_t part = 0;
      if (peek() == '"') {
        BATON_TRY(part, literal());
      } else if (peek() == '[') {
        BATON_TRY(part, character_class());
      } else if (peek() == '.') {
        ++at_;
        part = add({.kind = Kind::kRegex, .value = draft_.regex().characters({kAllCodes}, Spelling::kText)});
      } else if (peek() == '(') {
        ++at_;
        skip(true);
        BATON_TRY(part, alternatives(depth + 1));
        skip(true);
        if (peek() != ')') return error("'(' without ')'");
        ++at_;
      } else if (is_name(peek())) {
        part = add({.kind = Kind::kRule, .value = rule_of(name())});
      } else {
        break;
      }
      BATON_TRY(part, repeated(part));
      parts.push_back(part);
    }
    return parts.size() == 1 ? parts[0] : add({.kind = Kind::kCat, .parts = std::move(parts)});
  }

  Result<uint32_t> number() {
    uint64_t value = 0;
    const size_t from = at_;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), kUnbounded);
    if (at_ == from) return error("a number is missing");
    if (value > kRepeatMax) return error(fmt::format("more than {} times", kRepeatMax));
    return static_cast<uint32_t>(value);
  }
  Result<uint32_t> repeated(uint32_t part) {
    while (true) {
      skip(false);
      uint32_t min = 0, max = kUnbounded;
      if (peek() == '*' || peek() == '+' || peek() == '?') {
        min = peek() == '+' ? 1 : 0;
        if (peek() == '?') max = 1;
        ++at_;
      } else if (peek() == '{') {
        ++at_;
        skip(false);
        BATON_TRY(min, number());
        max = min;
        skip(false);
        if (peek() == ',') {
          ++at_;
          skip(false);
          max = kUnbounded;
          if (peek() != '}') {
            BATON_TRY(max, number());
          }
          skip(false);
        }
        if (peek() != '}' || max < min) return error("'{' begins no {m}, {m,} or {m,n}");
        ++at_;
      } else {
        return part;
      }
      part = add({.kind = Kind::kRepeat, .parts = {part}, .min = min, .max = max});
    }
  }

  Result<uint32_t> character() {
    if (!more() || peek() == '\n') return error("it ends within quotes or a class");
    if (peek() == '\\') {
      ++at_;
      const char c = peek();
      ++at_;
      const auto hex = [this](int count) -> Result<uint32_t> {
        uint32_t value = 0;
        for (; count > 0; --count, ++at_) {
          const char d = peek();
          const bool letter = (d >= 'a' && d <= 'f') || (d >= 'A' && d <= 'F');
          if (!letter && (d < '0' || d > '9')) return error("too few hexadecimal digits");
          value = value * 16 + static_cast<uint32_t>(letter ? (d | 0x20) - 'a' + 10 : d - '0');
        }
        if (value > kAllCodes.high || (value >= 0xD800 && value <= 0xDFFF)) return error("no character");
        return value;
      };
      switch (c) {
        case 'n':
          return '\n';
        case 't':
          return '\t';
        case 'r':
          return '\r';
        case 'x':
          return hex(2);
        case 'u':
          return hex(4);
        case 'U':
          return hex(8);
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-':
        case '^':
        case '/':
        case '\'':
          return static_cast<uint32_t>(c);
        default:
          return error(fmt::format("'\\{}' means nothing", c));
      }
    }
    const Utf8Char c = decode_utf8(text_, at_);
    if (!c.valid) return error("it is not UTF-8");
    at_ += c.length;
    return c.code;
  }
  Result<uint32_t> literal() {
    std::string bytes;
    for (++at_; peek() != '"';) {
      BATON_TRY(const uint32_t code, character());
      append_utf8(code, &bytes);
    }
    ++at_;
    return add({.kind = Kind::kRegex, .value = draft_.regex().text(bytes)});
  }
  Result<uint32_t> character_class() {
    ++at_;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    std::vector<CodeRange> ranges;
    while (peek() != ']') {
      BATON_TRY(const uint32_t low, character());
      uint32_t high = low;
      if (peek() == '-' && peek(1) != ']') {
        ++at_;
        BATON_TRY(high, character());
        if (high < low) return error("a range that ends before it begins");
      }
      ranges.push_back({low, high});
    }
    ++at_;
    if (negated) ranges = complement(std::move(ranges));
    return add({.kind = Kind::kRegex, .value = draft_.regex().characters(std::move(ranges), Spelling::kText)});
  }

  // Nothing where it leads back to itself, or is large.
  std::optional<RegexId> regular(uint32_t id, int depth) {
    if (depth > kInlineMax) return std::nullopt;
    const Node node = nodes_[id];
    if (node.kind == Kind::kRegex) return node.value;
    if (node.kind == Kind::kRule) {
      if (rules_[node.value].looked == RuleText::Look::kNot) {
        rules_[node.value].looked = RuleText::Look::kNow;
        const auto found = regular(rules_[node.value].body, depth + 1);
        rules_[node.value].regex = found;
        rules_[node.value].looked = RuleText::Look::kDone;
      }
      return rules_[node.value].looked == RuleText::Look::kDone ? rules_[node.value].regex : std::nullopt;
    }
    std::vector<RegexId> parts;
    bool all = true;
    for (const uint32_t part : node.parts) {
      const auto one = regular(part, depth + 1);
      all = all && one;
      if (one) parts.push_back(*one);
    }
    if (!all) return std::nullopt;
    RegexPool& pool = draft_.regex();
    const RegexId made = node.kind == Kind::kCat   ? pool.cat(std::move(parts))
                         : node.kind == Kind::kAlt ? pool.alt(std::move(parts))
                                                   : pool.repeat(parts[0], node.min, node.max);
    return pool.at(made).size <= kInlineSize ? std::optional(made) : std::nullopt;
  }

  ExprId reference(uint32_t rule) {
    RuleText& text = rules_[rule];
    if (text.looked == RuleText::Look::kNot) {
      text.looked = RuleText::Look::kNow;
      const auto found = regular(text.body, 0);
      rules_[rule].regex = found;
      rules_[rule].looked = RuleText::Look::kDone;
    }
    if (text.regex) return draft_.terminal(*text.regex);
    if (!text.draft) {
      text.draft = draft_.add_rule(text.name);
      open_.push_back(rule);
    }
    return draft_.rule(*text.draft);
  }
  // Neighbours that are regular are one terminal.
  ExprId expression(uint32_t id) {
    const Node node = nodes_[id];
    if (node.kind == Kind::kRule) return reference(node.value);
    if (const auto regex = regular(id, 0)) return draft_.terminal(*regex);
    if (node.kind == Kind::kRepeat) return draft_.repeat(expression(node.parts[0]), node.min, node.max);
    std::vector<ExprId> parts;
    std::vector<RegexId> run;
    const auto close = [&] {
      if (run.empty()) return;
      parts.push_back(draft_.terminal(node.kind == Kind::kCat ? draft_.regex().cat(run) : draft_.regex().alt(run)));
      run.clear();
    };
    for (const uint32_t part : node.parts) {
      if (const auto regex = regular(part, 0)) {
        run.push_back(*regex);
      } else {
        if (node.kind == Kind::kCat) close();
        parts.push_back(expression(part));
      }
    }
    close();
    return node.kind == Kind::kCat ? draft_.seq(std::move(parts)) : draft_.alt(std::move(parts));
  }

  std::string_view text_;
  Draft& draft_;
  size_t at_ = 0;
  std::vector<Node> nodes_;
  std::vector<RuleText> rules_;
  std::map<std::string, size_t, std::less<>> names_;
  std::vector<uint32_t> open_;  // rules without a body yet
};

}  // namespace

Result<ExprId> gbnf_root(std::string_view text, Draft* draft) { return GbnfReader(text, draft).root(); }

}  // namespace baton::grammar

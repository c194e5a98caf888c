// Values, lists and punctuation of JSON.
#include "baton/grammar/json_grammar.h"

#include <string>

#include "baton/grammar/regex.h"

namespace baton::grammar {
namespace {

constexpr int kDepthOfLiterals = 64;

}  // namespace

ByteDfa json_string_dfa(uint32_t* loop) {
  RegexPool pool;
  const RegexId quote = pool.text("\"");
  const RegexId run = pool.repeat(pool.characters({kAllCodes}, Spelling::kJsonString), 0, kUnbounded);
  Budget budget(1'000'000);
  auto dfa = determinise(pool, pool.cat({quote, run, quote}), 1000, &budget);
  BATON_CHECK(dfa.has_value());
  *loop = dfa->step(0, '"');
  return *std::move(dfa);
}

ExprId JsonPieces::pattern(std::string_view expression) {
  const auto parsed = parse_regex(expression, Spelling::kText, RegexReach::kWhole, &draft_.regex());
  BATON_CHECK(parsed.has_value());
  return draft_.terminal(*parsed);
}

ExprId JsonPieces::word(std::optional<ExprId>* made, std::string_view mark, bool space_before, bool space_behind) {
  if (!*made) {
    std::string expression;
    if (space_before) expression += kSpacePattern;
    expression += mark;
    if (space_behind) expression += kSpacePattern;
    *made = pattern(expression);
  }
  return **made;
}

ExprId JsonPieces::string() {
  if (!string_) {
    uint32_t loop = 0;
    string_ = draft_.terminal(json_string_dfa(&loop));
  }
  return *string_;
}

ExprId JsonPieces::string(uint32_t min, uint32_t max) {
  if (min == 0 && max == kUnbounded) return string();
  uint32_t loop = 0;
  ByteDfa dfa = json_string_dfa(&loop);
  return draft_.terminal(std::move(dfa), Counted{loop, min, max});
}

ExprId JsonPieces::key(std::string_view key) {
  const std::string quoted = nlohmann::ordered_json(key).dump();
  RegexPool& regex = draft_.regex();
  const auto space = parse_regex(kSpacePattern, Spelling::kText, RegexReach::kWhole, &regex);
  BATON_CHECK(space.has_value());
  return draft_.terminal(regex.cat({regex.text(quoted), regex.text(":"), *space}));
}

ExprId JsonPieces::list(ExprId open, ExprId member, ExprId close, bool object) {
  const ExprId more = draft_.repeat(draft_.seq({comma(), member}), 0, kUnbounded);
  return draft_.seq(
      {open, draft_.alt({draft_.terminal(std::string_view(object ? "}" : "]")), draft_.seq({member, more, close})})});
}

ExprId JsonPieces::any_object() {
  if (!object_) {
    object_ = draft_.add_rule("any object");
    const ExprId member = draft_.seq({string(), colon(), any_value()});
    draft_.define(*object_, list(open_object(), member, close_object(), true));
  }
  return draft_.rule(*object_);
}

ExprId JsonPieces::any_array() {
  if (!array_) {
    array_ = draft_.add_rule("any array");
    draft_.define(*array_, list(open_array(), any_value(), close_array(), false));
  }
  return draft_.rule(*array_);
}

ExprId JsonPieces::any_value() {
  if (!value_) {
    value_ = draft_.add_rule("any value");
    const ExprId plain = pattern("true|false|null|" + std::string(kNumberPattern));
    draft_.define(*value_, draft_.alt({any_object(), any_array(), string(), plain}));
  }
  return draft_.rule(*value_);
}

std::optional<ExprId> JsonPieces::value(const nlohmann::ordered_json& value, int depth) {
  if (depth > kDepthOfLiterals) return std::nullopt;
  if (!value.is_structured()) return draft_.terminal(value.dump());
  const bool object = value.is_object();
  if (value.empty()) return draft_.seq({object ? open_object() : open_array(), draft_.terminal(object ? "}" : "]")});
  std::vector<ExprId> parts = {object ? open_object() : open_array()};
  for (auto at = value.begin(); at != value.end(); ++at) {
    if (at != value.begin()) parts.push_back(comma());
    if (object) parts.push_back(key(at.key()));
    const auto inner = this->value(*at, depth + 1);
    if (!inner) return std::nullopt;
    parts.push_back(*inner);
  }
  parts.push_back(object ? close_object() : close_array());
  return draft_.seq(std::move(parts));
}

}  // namespace baton::grammar

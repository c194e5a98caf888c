// JSON as a grammar: any value, and the pieces that schemas put together.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "baton/grammar/grammar.h"

namespace baton::grammar {

// Between the parts of a value: nothing, one space, or a line end and up to 32 spaces; nothing before and behind the
// value, so that a model cannot go on with spaces for ever. Numbers are at most 18 digits, a fraction of 16 and an
// exponent of 2: what every reader holds.
inline constexpr std::string_view kSpacePattern = "( |\\n {0,32})?";
inline constexpr std::string_view kIntegerPattern = "-?(0|[1-9][0-9]{0,17})";
inline constexpr std::string_view kNumberPattern = "-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,16})?([eE][+-]?[0-9]{1,2})?";

// Makes each piece once for its draft.
class JsonPieces {
 public:
  explicit JsonPieces(Draft* draft) : draft_(*draft) {}

  ExprId any_value();   // a rule
  ExprId any_object();  // a rule
  ExprId any_array();   // a rule
  ExprId open_object() { return word(&open_object_, "\\{", false, true); }
  ExprId close_object() { return word(&close_object_, "\\}", true, false); }
  ExprId open_array() { return word(&open_array_, "\\[", false, true); }
  ExprId close_array() { return word(&close_array_, "\\]", true, false); }
  ExprId comma() { return word(&comma_, ",", false, true); }
  ExprId colon() { return word(&colon_, ":", false, true); }
  ExprId string();
  ExprId string(uint32_t min, uint32_t max);  // characters
  ExprId number() { return pattern(kNumberPattern); }
  ExprId integer() { return pattern(kIntegerPattern); }
  ExprId boolean() { return pattern("true|false"); }
  ExprId null() { return pattern("null"); }
  // `key` in quotes with its colon.
  ExprId key(std::string_view key);
  // Exactly this, with room for spaces. Depth at most 64, else null.
  std::optional<ExprId> value(const nlohmann::ordered_json& value, int depth = 0);
  // One of `members` parts, by commas, between brackets; or none.
  ExprId list(ExprId open, ExprId member, ExprId close, bool object);
  ExprId pattern(std::string_view expression);

 private:
  ExprId word(std::optional<ExprId>* made, std::string_view mark, bool space_before, bool space_behind);

  Draft& draft_;
  std::optional<ExprId> open_object_, close_object_, open_array_, close_array_, comma_, colon_, string_;
  std::optional<uint32_t> value_, object_, array_;
};

// The automaton of a JSON string of any length, in which each character is a way from `loop` to itself.
ByteDfa json_string_dfa(uint32_t* loop);

}  // namespace baton::grammar

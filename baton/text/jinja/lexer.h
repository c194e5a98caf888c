// Template source to tokens, with the white-space rules of trim_blocks and lstrip_blocks applied to the text between.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton::jinja {

enum class TokenType : uint8_t {
  kData,           // text: as it will be printed
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // text: unescaped
  kInteger,
  kFloat,
  kOperator,  // text: the operator
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  uint32_t line = 1;
  std::string text;
  int64_t integer = 0;
  double real = 0.0;
};

// Ends with one kEnd. `source` must be UTF-8. kInvalidInput with the line for what no rule matches.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace baton::jinja

// Words of MIL text: names, numbers, strings and single marks, with their places.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "baton/base/status.h"

namespace baton::apple {

struct MilToken {
  enum class Kind : uint8_t { kName, kNumber, kString, kMark, kArrow, kEnd };
  Kind kind = Kind::kEnd;
  std::string_view text;  // kString: without quotes, escapes as written; kMark: one character
  double number = 0;
  uint32_t line = 1, column = 1;
};

// One token of lookahead. Errors are rule `syntax`.
class MilLexer {
 public:
  explicit MilLexer(std::string_view text) : text_(text) {}

  const MilToken& token() const { return token_; }
  Status advance();
  tl::unexpected<Error> error(std::string_view expected) const;

 private:
  Status read_number(size_t begin);
  Status read_string();

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  size_t line_begin_ = 0;
  MilToken token_;
};

}  // namespace baton::apple

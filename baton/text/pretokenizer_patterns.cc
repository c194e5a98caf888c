// Patterns in the words of PCRE2.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "baton/text/pretokenizer.h"

namespace baton {
namespace {

// Unicode White_Space; PCRE2's \s under UCP also has U+180E.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Oniguruma's \w; PCRE2 10.42's leaves out marks.
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";

}  // namespace

Result<std::string> to_pcre2_pattern(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  const auto refuse = [&](std::string_view what, size_t at) {
    return fail(Code::kUnsupported, fmt::format("pre-tokenizer pattern: {} at byte {} is not supported", what, at));
  };
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      switch (next) {
        case 's':
        case 'w': {
          const std::string_view set = next == 's' ? kWhiteSpace : kWord;
          out.append(in_class ? "" : "[").append(set).append(in_class ? "" : "]");
          break;
        }
        case 'S':
        case 'W':
          if (in_class) return refuse("a negated set within a class", i);
          out.append("[^").append(next == 'S' ? kWhiteSpace : kWord).append("]");
          break;
        case 'b':
          if (in_class) return refuse("\\b in a class", i);
          out.append(fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord));
          break;
        case 'h':
        case 'H':
        case 'B':
        case 'C':
        case 'X':
        case 'R':
        case 'K':
        case 'G':
        case 'Q':
        case 'E':
          return refuse(fmt::format("\\{}", next), i - 1);
        default:
          out.append({'\\', next});
      }
    } else if (in_class) {
      if (c == '[') return refuse("a class within a class", i);
      if (c == '&' && pattern.substr(i, 2) == "&&") return refuse("class intersection", i);
      if (c == ']') in_class = false;
      out.push_back(c);
    } else if (c == '[') {
      in_class = true;
      out.push_back(c);
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out.push_back(pattern[++i]);
      // A bracket that is first in its class is a literal in PCRE2 and ends an empty class elsewhere.
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') return refuse("an empty class", i + 1);
    } else if (pattern.substr(i, 2) == "(*") {
      return refuse("(*", i);
    } else if (pattern.substr(i, 3) == "(?C" || pattern.substr(i, 3) == "(?R" || pattern.substr(i, 3) == "(?&" ||
               pattern.substr(i, 3) == "(?P") {
      return refuse(pattern.substr(i, 3), i);
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace baton

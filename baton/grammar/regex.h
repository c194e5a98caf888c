// Regular expressions as people write them: the part of ECMAScript's syntax that automata can follow.
#pragma once

#include <string_view>

#include "baton/base/status.h"
#include "baton/grammar/regex_tree.h"

namespace baton::grammar {

// How much of a text must match.
enum class RegexReach : uint8_t { kWhole, kSearch };  // kSearch: some part of it, where no ^ or $ says more

inline constexpr size_t kRegexBytesMax = 16 << 10;

// Literals, `.`, classes, \d \w \s \D \W \S (of ASCII), \n \r \t \f \v \0 \xHH \uHHHH \u{H}, groups (also (?:) and
// named ones),
// |, * + ? {m} {m,} {m,n} and their lazy forms, and ^ and $ at the ends. kInvalidInput and kUnsupported (look-around,
// back references, \b, \p, flags) name the character.
Result<RegexId> parse_regex(std::string_view pattern, Spelling spelling, RegexReach reach, RegexPool* pool);

}  // namespace baton::grammar

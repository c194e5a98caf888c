// Grammars in the notation of llama.cpp (GBNF).
#pragma once

#include <string_view>

#include "baton/base/status.h"
#include "baton/grammar/grammar.h"

namespace baton::grammar {

inline constexpr size_t kGbnfBytesMax = 256 << 10;

// `root` and what it needs, as rules of the draft: literals, classes, `.`, groups, |, * + ? {m} {m,} {m,n}, # comments.
// Rules without recursion become single automata as far as they are small. Errors name the line.
Result<ExprId> gbnf_root(std::string_view text, Draft* draft);

}  // namespace baton::grammar

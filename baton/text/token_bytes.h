// What tokens stand for in a text.
#pragma once

#include <string>
#include <string_view>

#include "baton/text/tokenizer_spec.h"

namespace baton {

// Appends the bytes of a token that is written `name` in the vocabulary.
void append_token_bytes(const TokenizerSpec& spec, std::string_view name, TokenKind kind, std::string* out);

}  // namespace baton

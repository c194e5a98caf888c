// A number over everything of a tokenizer that changes what it makes of text; the same on every platform.
#pragma once

#include <cstdint>
#include <span>

#include "baton/text/token_index.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {

uint64_t tokenizer_fingerprint(const TokenizerSpec& spec, const TokenIndex& index, std::span<const TokenKind> kinds);

}  // namespace baton

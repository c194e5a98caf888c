// Classes of characters that several tokenizers ask for.
#pragma once

#include <cstdint>

namespace baton {

bool is_white_space(uint32_t code);  // Unicode's White_Space
bool is_word_char(uint32_t code);    // as \w: letters, marks, digits, connectors
bool is_mark(uint32_t code);         // M*
bool is_punctuation(uint32_t code);  // ASCII's symbols too, and Unicode's P*

}  // namespace baton

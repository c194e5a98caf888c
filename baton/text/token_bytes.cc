// Token texts to bytes, by kind of tokenizer.
#include "baton/text/token_bytes.h"

#include <algorithm>

#include "baton/text/byte_alphabet.h"
#include "baton/text/piece_bpe.h"

namespace baton {
namespace {

// A piece with its marks as spaces.
void append_piece(std::string_view name, std::string* out) {
  for (size_t at = 0; at < name.size();) {
    const size_t found = std::min(name.find(kSpaceMark, at), name.size());
    out->append(name.substr(at, found - at));
    if (found == name.size()) break;
    out->push_back(' ');
    at = found + kSpaceMark.size();
  }
}

// A piece inside a word goes on where the one before ends, any other begins a word.
void append_word_piece(const WordPieceRules& rules, std::string_view name, std::string* out) {
  if (!rules.prefix.empty() && name.size() > rules.prefix.size() && name.starts_with(rules.prefix)) {
    out->append(name.substr(rules.prefix.size()));
  } else if (!name.empty()) {
    out->append(" ").append(name);
  }
}

}  // namespace

void append_token_bytes(const TokenizerSpec& spec, std::string_view name, TokenKind kind, std::string* out) {
  const bool is_plain = kind == TokenKind::kNormal || kind == TokenKind::kByte;
  if (spec.pieces) {
    const int byte = is_plain && spec.pieces->byte_fallback ? byte_of_token(name) : -1;
    if (byte >= 0) {
      out->push_back(static_cast<char>(byte));
    } else if (is_plain || kind == TokenKind::kUserDefined) {
      append_piece(name, out);
    } else {
      out->append(name);
    }
  } else if (is_plain && spec.word_piece) {
    append_word_piece(*spec.word_piece, name, out);
  } else if (!is_plain || !from_byte_alphabet(name, out)) {
    out->append(name);
  }
}

}  // namespace baton

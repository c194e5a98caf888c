// WordPiece, as BERT has it: text is cleaned, split into words, and each word into the longest pieces of the vocabulary
// that fit, from its start; pieces inside a word carry a prefix ("##"). Immutable; any thread may use it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/token_index.h"
#include "baton/text/token_model.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {

class WordPiece : public TokenModel {
 public:
  WordPiece() = default;
  // `index` holds all tokens and outlives this; `kinds` says which of them no text becomes. kInvalidInput for rules
  // that cannot hold.
  static Result<WordPiece> create(const WordPieceRules& rules, const TokenIndex& index,
                                  std::span<const TokenKind> kinds, int32_t unk_id);

  // Text as its words are looked up: cleaned, lower case, without accents, as the rules say. Bytes that are no UTF-8
  // count as U+FFFD.
  static std::string normalize(const BertRules& rules, std::string_view text);
  // Appends the words of normalised text, as views into it: what white space parts, and each mark of punctuation.
  static void split(std::string_view text, std::vector<std::string_view>* out);
  // Appends the ids of a word; the unknown token for one that has no pieces or too many characters.
  Status encode(std::string_view word, std::vector<int32_t>* out) const override;

 private:
  int32_t find(std::string_view piece) const;  // -1: no piece of a word

  WordPieceRules rules_;
  const TokenIndex* index_ = nullptr;
  std::span<const TokenKind> kinds_;
  size_t longest_ = 0;  // bytes of a token
  int32_t unk_id_ = -1;
};

// Appends the small form of a character.
void append_lower(uint32_t code, std::string* out);

}  // namespace baton

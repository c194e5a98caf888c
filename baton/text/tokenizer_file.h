// A tokenizer.json in pieces: the vocabulary and the merges, nearly all of the file, as they stand in it, and the rest
// as a document to be interpreted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "baton/text/tokenizer_spec.h"

namespace baton {

inline constexpr size_t kTokenizerDepthMax = 64;  // of objects and arrays in each other

struct VocabEntry {
  std::string_view text;
  int32_t id;
};

struct TokenizerFile {
  nlohmann::json rest;
  std::vector<VocabEntry> vocab;
  bool has_vocab = false, has_merges = false;
  bool vocab_is_list = false;  // of texts and scores, in the order of their ids
  std::vector<double> scores;  // then
};

// Texts of the vocabulary and of the merges go to the spec's arena, the merges to the spec. kInvalidInput names the
// byte or the field, without the file.
Result<TokenizerFile> read_tokenizer_file(std::string_view text, TokenizerSpec* spec);

}  // namespace baton

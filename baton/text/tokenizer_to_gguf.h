// A tokenizer as GGUF's tokenizer.ggml keys: the way back of tokenizer_spec_from_gguf.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {

// The views in `keys` point to the other members, and to the spec that it was made from, which must outlive it.
struct GgufTokenizer {
  GgufTokenizerKeys keys;
  std::vector<std::string> lost;  // what llama.cpp does not read in these keys, with what it does instead

  std::vector<std::string> padding, merges;
  std::vector<int32_t> kinds, lstrip, rstrip, single_word, normalized, kept;
  std::vector<double> scores;
};

// Byte-level BPE as "gpt2", BPE over characters as "llama" with scores, unigram as "t5"; `rows` of the embedding, those
// without a token are padding. `stop_ids`: up to three ends of an answer, for eos, eot and eom. What is made is read
// back and must give the ids of `spec` for each token's text and for odd strings. kUnsupported names the part that
// GGUF has no key for.
Result<GgufTokenizer> gguf_tokenizer_of(const TokenizerSpec& spec, size_t rows, std::span<const int32_t> stop_ids);

}  // namespace baton

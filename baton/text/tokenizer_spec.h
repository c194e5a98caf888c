// What a tokenizer is made of, as plain data, and the sources that fill it: tokenizer.json, vocab.txt and GGUF keys.
// Byte-level BPE (GPT-2, SmolLM2, Qwen, Llama 3) and WordPiece (BERT) are described here; other kinds are refused by
// name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton {

// Values as in GGUF's tokenizer.ggml.token_type.
enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // found in text only where the caller allows it; left out of decoded text on request
  kUserDefined = 4,  // always found in text, whoever wrote it
  kUnused = 5,       // padding rows: never produced by encoding; to be banned when sampling
  kByte = 6,
};

// One step that cuts text into pre-tokens; the steps run in order, each on the pieces of the one before.
struct PretokenizerStep {
  enum class Kind : uint8_t { kRegex, kLiteral };
  // What becomes of a match, as in Hugging Face tokenizers' Split.
  enum class Behavior : uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

  Kind kind = Kind::kRegex;
  Behavior behavior = Behavior::kIsolated;
  bool invert = false;  // matches and gaps change roles
  std::string pattern;  // kRegex: Unicode regular expression (Oniguruma syntax); kLiteral: bytes
};

struct AddedToken {
  int32_t id = -1;
  std::string text;      // raw UTF-8
  bool special = false;  // kControl, otherwise kUserDefined
  bool lstrip = false;   // takes the white space before it
  bool rstrip = false;   // takes the white space after it
  bool single_word = false;
  bool normalized = false;  // matched after normalisation (user-defined tokens only; control tokens match raw text)
};

// How BERT's tokenizer makes words of text and pieces of words (word_piece.h).
struct WordPieceRules {
  static constexpr size_t kWordCharsMax = 1'000, kPrefixBytesMax = 64;

  bool clean = true;             // control characters go, white space becomes a space
  bool split_ideographs = true;  // each CJK ideograph is a word
  bool strip_accents = true;
  bool lower_case = true;
  std::string prefix = "##";    // of pieces inside a word
  size_t word_chars_max = 100;  // longer words become the unknown token
};

// The views point into storage that must outlive the spec: `arena` when it is set, otherwise the caller's
// (the mapped GGUF file). A Tokenizer copies what it needs.
struct TokenizerSpec {
  struct Merge {
    std::string_view left, right;
  };

  std::vector<std::string_view>
      tokens;                     // by id, in the byte-level alphabet; raw UTF-8 for added tokens; empty: no token
  std::vector<TokenKind> kinds;   // as long as `tokens`, or empty: all normal
  std::vector<Merge> merges;      // by rank
  std::vector<AddedToken> added;  // may lie beyond tokens.size()
  std::vector<PretokenizerStep> pretokenizer;
  std::optional<WordPieceRules> word_piece;  // then there are no merges and no pre-tokenizer, and there is an unk_id
  bool normalize_nfc = false;
  bool add_prefix_space = false;  // each piece that does not begin with a space gets one (ByteLevel)
  bool ignore_merges = false;     // a pre-token that is in the vocabulary is emitted without merging
  bool merges_complete = true;    // refuse merges whose parts or result are no tokens (false for GGUF)
  bool add_bos = false;
  bool add_eos = false;
  int32_t bos_id = -1, eos_id = -1, pad_id = -1, unk_id = -1;  // -1: none. unk_id: what a byte without token becomes
  std::vector<int32_t> stop_ids;                               // further ends of generation (eot, eom)

  std::unique_ptr<char[]> arena;
};

inline constexpr int32_t kTokensMax = 1 << 21;  // ids are below this

// tokenizer.json, and tokenizer_config.json if there is one (bos/eos/pad, added_tokens_decoder; may be empty).
// kInvalidInput with the field for malformed files; kUnsupported naming the part for other kinds of tokenizers.
Result<TokenizerSpec> tokenizer_spec_from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json);

// vocab.txt, one token a line in the order of their ids: the WordPiece tokenizer of old BERT files. Lower case, accents
// and the names of special tokens are tokenizer_config.json's (may be empty: BERT's own). Views point into the arena.
Result<TokenizerSpec> tokenizer_spec_from_vocab_txt(std::string_view vocab_txt, std::string_view tokenizer_config_json);

// The keys under `tokenizer.ggml.`; the views are borrowed from the caller until the Tokenizer is made.
struct GgufTokenizerKeys {
  std::string_view model;  // tokenizer.ggml.model: "gpt2" is byte-level BPE
  std::string_view pre;    // tokenizer.ggml.pre; empty: "default"
  std::vector<std::string_view> tokens;
  std::span<const int32_t> token_types;  // empty: all normal
  std::vector<std::string_view> merges;  // "left right"
  std::optional<int64_t> bos_id, eos_id, eot_id, eom_id, unk_id, pad_id;
  std::optional<bool> add_bos, add_eos;
  // Our own keys, written by convert; absent: what the name in `pre` implies, and no space. (GGUF's add_space_prefix is
  // about SentencePiece: llama.cpp does not look at it for byte-level BPE, and files say both.)
  std::optional<bool> normalize_nfc, add_prefix_space;
};
Result<TokenizerSpec> tokenizer_spec_from_gguf(const GgufTokenizerKeys& keys);

// The split rule of a `tokenizer.ggml.pre` name with what else the name implies. kUnsupported names an unknown one.
struct PretokenizerPreset {
  std::vector<PretokenizerStep> steps;
  bool normalize_nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
};
Result<PretokenizerPreset> pretokenizer_preset(std::string_view name);

}  // namespace baton

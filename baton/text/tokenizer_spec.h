// What a tokenizer is made of, as plain data, and the sources that fill it: tokenizer.json, vocab.txt, SentencePiece's
// model files and GGUF keys. Byte-level BPE (GPT-2, SmolLM2, Qwen, Llama 3), BPE over characters (Llama 2, Mistral,
// Gemma, Phi-3), unigram (T5, XLM-R) and WordPiece (BERT) are described here; other kinds are refused by name.
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

// Where a mark for a space is put before text that has none.
enum class PrefixRule : uint8_t {
  kNever,
  kFirst,   // where a text begins
  kAlways,  // and behind each added token
};

// How BERT's tokenizer changes text.
struct BertRules {
  bool clean = true;             // control characters go, white space becomes a space
  bool split_ideographs = true;  // each CJK ideograph is a word
  bool strip_accents = true;
  bool lower_case = true;
};

// How text is changed before it is split; the steps run in order, each on what the one before made.
struct NormalizerStep {
  enum class Kind : uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStrip,         // white space: `left`, `right`
    kStripAccents,  // marks go
    kNmt,           // control characters go, other kinds of space become spaces
    kReplace,       // the string `pattern` by `content`
    kReplaceRegex,
    kPrepend,   // `content` in front of what is not empty; `prefix` says where
    kClusters,  // `content`: a charsmap (charsmap.h), asked of grapheme clusters, as Hugging Face tokenizers do
    kSentence,  // SentencePiece's own way: charsmap, spaces, a space in front
    kBert,      // as `bert` says
  };
  Kind kind = Kind::kNfc;
  std::string pattern, content;  // kSentence: `content` is its charsmap, empty for none
  bool left = false, right = false;
  PrefixRule prefix = PrefixRule::kNever;
  bool merge_spaces = false;      // kSentence: runs become one, those at the ends go
  bool escape_spaces = false;     // kSentence: a space becomes kSpaceMark
  bool space_as_suffix = false;   // kSentence: the space that is added comes last
  std::vector<std::string> kept;  // kSentence: texts that stay as they are
  BertRules bert;
};

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581

// One step that cuts text into pre-tokens; the steps run in order, each on the pieces of the one before.
struct PretokenizerStep {
  // kMetaspace: spaces become `pattern`, one is put in front by `prefix`, and pieces begin with it where `splits`.
  // kBertWords: what white space parts, and each mark of punctuation.
  // kDigitGroups: runs of digits in threes from the right; `pattern`: "N" of \p{N}, "Nd" of \p{Nd}, "Nd\b" of those
  // with no word behind them.
  enum class Kind : uint8_t { kRegex, kLiteral, kMetaspace, kBertWords, kDigitGroups };
  // What becomes of a match, as in Hugging Face tokenizers' Split.
  enum class Behavior : uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

  Kind kind = Kind::kRegex;
  Behavior behavior = Behavior::kIsolated;
  bool invert = false;  // matches and gaps change roles
  std::string pattern;  // kRegex: Unicode regular expression (Oniguruma syntax); kLiteral: bytes
  PrefixRule prefix = PrefixRule::kNever;
  bool splits = true;
};

struct AddedToken {
  int32_t id = -1;
  std::string text;      // raw UTF-8
  bool special = false;  // kControl, otherwise kUserDefined
  bool lstrip = false;   // takes the white space before it
  bool rstrip = false;   // takes the white space after it
  bool single_word = false;
  bool normalized = false;  // matched after normalisation (user-defined tokens only; control tokens match raw text)
  bool is_normal = false;   // `text` is what normalisation makes already
};

// What pieces of words look like in a WordPiece vocabulary (word_piece.h).
struct WordPieceRules {
  static constexpr size_t kWordCharsMax = 1'000, kPrefixBytesMax = 64;

  std::string prefix = "##";    // of pieces inside a word
  size_t word_chars_max = 100;  // longer words become the unknown token
};

// BPE over characters and unigram: what becomes of characters without a token, and of spaces.
struct PieceRules {
  enum class Model : uint8_t {
    kRankedBpe,  // by `merges`
    kScoredBpe,  // two pieces whose texts make a token together become it, the highest score first
    kUnigram,    // the pieces with the highest sum of scores
  };
  static constexpr size_t kPieceBytesMax = 4096;

  Model model = Model::kRankedBpe;
  bool byte_fallback = false;  // to tokens <0x00> ... <0xFF>
  bool fuse_unk = false;       // unknown characters in a row are one token
  bool float_sums = false;     // kUnigram: sums as SentencePiece rounds them, to f32
  // Spaces that decoding drops where a text begins, which encoding put there; SIZE_MAX: all of them.
  size_t leading_spaces = 0;
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
  std::optional<WordPieceRules> word_piece;  // then there are no merges, and there is an unk_id
  std::optional<PieceRules> pieces;          // not with word_piece; neither: byte-level BPE
  std::vector<double> scores;                // by id, for kScoredBpe and kUnigram
  std::vector<NormalizerStep> normalizer;    // before normalize_nfc
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

// tokenizer.json, and tokenizer_config.json if there is one (bos/eos/pad, added_tokens_decoder; may be empty). Of
// BERT's classes (named there, else `bert_model`) only the vocabulary and what is added to it is tokenizer.json's.
// kInvalidInput with the field for malformed files; kUnsupported naming the part for other kinds of tokenizers.
Result<TokenizerSpec> tokenizer_spec_from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json,
                                               bool bert_model = false);

// vocab.txt, one token a line in the order of their ids: the WordPiece tokenizer of old BERT files. Lower case, accents
// and the names of special tokens are tokenizer_config.json's (may be empty: BERT's own). Views point into the arena.
Result<TokenizerSpec> tokenizer_spec_from_vocab_txt(std::string_view vocab_txt, std::string_view tokenizer_config_json);

// SentencePiece's model file (a protobuf), of BPE or unigram. Control tokens are found where the caller allows it.
enum class SentencePieceLayout : uint8_t {
  kPlain,       // tokenizer.model: ids as in the file (Llama, Mistral, Gemma)
  kT5,          // spiece.model: and a hundred <extra_id_N> behind them
  kXlmRoberta,  // sentencepiece.bpe.model: <s> <pad> </s> <unk> in front, <mask> last
};
Result<TokenizerSpec> tokenizer_spec_from_sentencepiece(std::string_view model, std::string_view tokenizer_config_json,
                                                        SentencePieceLayout layout);

// The keys under `tokenizer.ggml.`; the views are borrowed from the caller until the Tokenizer is made.
struct GgufTokenizerKeys {
  // tokenizer.ggml.model: "gpt2" is byte-level BPE, "llama" BPE by scores, "gemma4" BPE over characters by merges,
  // "t5" unigram, "bert" WordPiece
  std::string_view model;
  std::string_view pre;  // tokenizer.ggml.pre; empty: "default"
  std::vector<std::string_view> tokens;
  std::span<const int32_t> token_types;  // empty: all normal
  std::vector<std::string_view> merges;  // "left right"
  std::span<const double> scores;
  std::string_view charsmap;  // precompiled_charsmap
  std::string_view name;      // general.name: what the flags of Phi-3's control tokens go by
  std::optional<int64_t> bos_id, eos_id, eot_id, eom_id, unk_id, pad_id, sep_id, cls_id;
  std::optional<bool> add_bos, add_eos, add_sep;
  std::optional<bool> add_space_prefix, remove_extra_whitespaces;  // of "llama" and "t5"
  std::optional<bool> lowercase, strip_accents;                    // of "bert"
  // Our own keys, written by convert; absent: what the name in `pre` implies, and no space. (GGUF's add_space_prefix is
  // about SentencePiece: llama.cpp does not look at it for byte-level BPE, and files say both.)
  std::optional<bool> normalize_nfc, add_prefix_space;
  // Likewise our own, under tokenizer.baton: what the keys above cannot say (docs/tokenizers.md).
  std::string_view source;  // "sentencepiece", "tokenizer.json"; empty: another writer's file
  std::string_view spaces;  // "first", "metaspace-first-split", ...
  std::optional<bool> ranked_merges;
  std::optional<int64_t> leading_spaces;
  // Of added tokens. kept_ids: what SentencePiece keeps as it is while it changes the text around.
  std::span<const int32_t> lstrip_ids, rstrip_ids, single_word_ids, normalized_ids, kept_ids;
};
Result<TokenizerSpec> tokenizer_spec_from_gguf(const GgufTokenizerKeys& keys);

inline constexpr std::string_view kSourceSentencePiece = "sentencepiece", kSourceTokenizerJson = "tokenizer.json";

// The split rule of a `tokenizer.ggml.pre` name with what else the name implies. kUnsupported names an unknown one.
struct PretokenizerPreset {
  std::vector<PretokenizerStep> steps;
  bool normalize_nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
  bool add_ends = false;    // <s> and </s>, as of RoBERTa
  bool characters = false;  // BPE over characters, spaces as kSpaceMark: no byte-level alphabet
};
Result<PretokenizerPreset> pretokenizer_preset(std::string_view name);
// All names, sorted.
std::vector<std::string> pretokenizer_preset_names();

}  // namespace baton

// Keys from a spec, and the proof that they mean the same.
#include "baton/text/tokenizer_to_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "baton/base/terminal.h"
#include "baton/text/merge_scores.h"
#include "baton/text/tokenizer.h"

namespace baton {
namespace {

constexpr double kPaddingScore = -10'000, kAddedScore = -1'000;  // as other writers have them
constexpr int64_t kNoToken = std::numeric_limits<uint32_t>::max();

tl::unexpected<Error> no_key(std::string_view part) {
  return fail(Code::kUnsupported, fmt::format("{}: GGUF has no key for it: other ids would come of the file", part));
}

bool same_steps(const std::vector<PretokenizerStep>& a, const std::vector<PretokenizerStep>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const PretokenizerStep& x, const PretokenizerStep& y) {
    return x.kind == y.kind && x.behavior == y.behavior && x.invert == y.invert && x.pattern == y.pattern;
  });
}

Result<std::string_view> pretokenizer_name(const TokenizerSpec& spec) {
  for (const char* name : {"qwen35", "qwen2", "llama-bpe", "smollm", "gpt-2"}) {
    const auto preset = pretokenizer_preset(name);
    if (preset && same_steps(preset->steps, spec.pretokenizer) && preset->ignore_merges == spec.ignore_merges) {
      return name;
    }
  }
  return fail(Code::kUnsupported,
              "tokenizer.json: its pre-tokenizer is none of those that GGUF has a name for (qwen35, qwen2, "
              "llama-bpe, smollm, gpt-2)");
}

// Texts, kinds and flags of all rows.
void fill_tokens(const TokenizerSpec& spec, size_t rows, GgufTokenizer* made) {
  made->padding.resize(rows);
  made->kinds.assign(rows, static_cast<int32_t>(TokenKind::kUnused));
  std::vector<std::string_view>& tokens = made->keys.tokens;
  tokens.resize(rows);
  for (size_t id = 0; id < std::min(rows, spec.tokens.size()); ++id) {
    if (spec.tokens[id].empty()) continue;
    tokens[id] = spec.tokens[id];
    made->kinds[id] = static_cast<int32_t>(spec.kinds.empty() ? TokenKind::kNormal : spec.kinds[id]);
  }
  for (const AddedToken& added : spec.added) {
    if (added.id < 0 || static_cast<size_t>(added.id) >= rows) continue;
    const auto id = static_cast<size_t>(added.id);
    tokens[id] = added.text;
    const bool unknown = spec.pieces && added.special && added.id == spec.unk_id;
    made->kinds[id] = static_cast<int32_t>(unknown         ? TokenKind::kUnknown
                                           : added.special ? TokenKind::kControl
                                                           : TokenKind::kUserDefined);
    if (added.lstrip) made->lstrip.push_back(added.id);
    if (added.rstrip) made->rstrip.push_back(added.id);
    if (added.single_word) made->single_word.push_back(added.id);
    if (added.special || !added.normalized) continue;
    (added.is_normal ? made->kept : made->normalized).push_back(added.id);
  }
  for (size_t id = 0; id < rows; ++id) {
    if (!tokens[id].empty()) continue;
    made->padding[id] = fmt::format("[PAD{}]", id);
    tokens[id] = made->padding[id];
  }
  made->keys.token_types = made->kinds;
  made->keys.lstrip_ids = made->lstrip;
  made->keys.rstrip_ids = made->rstrip;
  made->keys.single_word_ids = made->single_word;
  made->keys.normalized_ids = made->normalized;
  made->keys.kept_ids = made->kept;
}

Status fill_merges(const TokenizerSpec& spec, GgufTokenizer* made) {
  made->merges.clear();
  made->merges.reserve(spec.merges.size());
  for (const auto& [left, right] : spec.merges) {
    if (left.find(' ', 1) != std::string_view::npos || right.find(' ') != std::string_view::npos)
      return no_key(fmt::format("merge of '{}' and '{}', with a space in them", terminal_safe(left, 40),
                                terminal_safe(right, 40)));
    made->merges.push_back(fmt::format("{} {}", left, right));
  }
  made->keys.merges.assign(made->merges.begin(), made->merges.end());
  return {};
}

Status fill_ids(const TokenizerSpec& spec, std::span<const int32_t> stop_ids, GgufTokenizerKeys* keys) {
  // What is absent has a default in files of pieces; a number beyond all is none.
  const auto id_of = [&](int32_t id) {
    return id >= 0 ? std::optional<int64_t>(id) : spec.pieces ? std::optional<int64_t>(kNoToken) : std::nullopt;
  };
  const auto stop = [&](size_t at) {
    return at < stop_ids.size() ? std::optional<int64_t>(stop_ids[at]) : std::nullopt;
  };
  keys->bos_id = id_of(spec.bos_id);
  keys->eos_id = stop_ids.empty() ? id_of(-1) : stop(0);
  keys->eot_id = stop(1);
  keys->eom_id = stop(2);
  if (spec.pad_id >= 0 || keys->model == "t5") keys->pad_id = id_of(spec.pad_id);
  if (spec.pieces) keys->unk_id = id_of(spec.unk_id);
  keys->add_bos = spec.add_bos;
  keys->add_eos = spec.add_eos;
  return {};
}

// A SentencePiece model's own rule.
Status take_sentence(const TokenizerSpec& spec, GgufTokenizer* made) {
  const NormalizerStep& step = spec.normalizer[0];
  if (!spec.pretokenizer.empty()) return no_key("pre_tokenizer behind SentencePiece's own");
  if (step.space_as_suffix) return no_key("treat_whitespace_as_suffix");
  if (!step.escape_spaces) return no_key("escape_whitespaces: false");
  GgufTokenizerKeys& keys = made->keys;
  keys.source = kSourceSentencePiece;
  keys.add_space_prefix = step.prefix != PrefixRule::kNever;
  if (step.prefix == PrefixRule::kFirst) {
    keys.spaces = "first";
    made->lost.push_back("legacy: false: llama.cpp puts a space behind each control token too");
  }
  keys.remove_extra_whitespaces = step.merge_spaces;
  keys.charsmap = step.content;
  if (!made->kept.empty() && step.prefix != PrefixRule::kNever) {
    made->lost.push_back(
        fmt::format("{} user-defined tokens: llama.cpp finds them before a text is changed, and puts a "
                    "space behind each",
                    made->kept.size()));
  }
  if (keys.model != "llama") return {};
  if (step.merge_spaces) made->lost.push_back("remove_extra_whitespaces: llama.cpp keeps runs of spaces in BPE");
  if (!step.content.empty()) made->lost.push_back("precompiled_charsmap: llama.cpp normalizes no text in BPE");
  return {};
}

bool makes_marks(const NormalizerStep& step) {
  return step.kind == NormalizerStep::Kind::kReplace && step.pattern == " " && step.content == kSpaceMark;
}

std::string_view metaspace_name(const PretokenizerStep& step) {
  switch (step.prefix) {
    case PrefixRule::kFirst:
      return step.splits ? "metaspace-first-split" : "metaspace-first";
    case PrefixRule::kAlways:
      return step.splits ? "metaspace-always-split" : "metaspace-always";
    case PrefixRule::kNever:
      break;
  }
  return step.splits ? "metaspace-never-split" : "metaspace-never";
}

// What a tokenizer.json says of spaces: marks by its normalizer, or by its pre-tokenizer.
Status take_steps(const TokenizerSpec& spec, GgufTokenizer* made) {
  GgufTokenizerKeys& keys = made->keys;
  keys.source = kSourceTokenizerJson;
  PrefixRule prefix = PrefixRule::kNever;
  bool marks = false;
  if (spec.normalize_nfc) return no_key("normalizer NFC before pieces");
  for (const NormalizerStep& step : spec.normalizer) {
    if (makes_marks(step)) {
      marks = true;
    } else if (step.kind == NormalizerStep::Kind::kPrepend && step.content == kSpaceMark &&
               prefix == PrefixRule::kNever) {
      prefix = step.prefix;
    } else if (step.kind == NormalizerStep::Kind::kClusters) {
      return no_key("normalizer Precompiled of tokenizer.json; put the model's SentencePiece file in its place");
    } else {
      return no_key("a step of the normalizer other than Prepend and Replace of spaces");
    }
  }
  for (const PretokenizerStep& step : spec.pretokenizer) {
    // No space is left behind the marks.
    if (marks && step.kind == PretokenizerStep::Kind::kLiteral && step.pattern == " ") continue;
    if (marks || prefix != PrefixRule::kNever || step.kind != PretokenizerStep::Kind::kMetaspace ||
        step.pattern != kSpaceMark || &step != &spec.pretokenizer.front())
      return no_key("pre_tokenizer: other steps than one Metaspace");
    prefix = step.prefix;
    keys.spaces = metaspace_name(step);
  }
  if (!marks && keys.spaces.empty()) return no_key("a tokenizer whose pieces have no marks for spaces");
  keys.add_space_prefix = prefix != PrefixRule::kNever;
  if (prefix != PrefixRule::kNever && !keys.spaces.empty())
    made->lost.push_back("prepend_scheme: llama.cpp puts a space in front of text that begins with one too");
  if (prefix == PrefixRule::kFirst)
    made->lost.push_back("prepend_scheme 'first': llama.cpp puts a space behind each control token too");
  return {};
}

void fill_scores(const TokenizerSpec& spec, std::span<const double> scores, GgufTokenizer* made) {
  made->scores.assign(made->kinds.size(), kPaddingScore);
  for (size_t id = 0; id < made->kinds.size(); ++id) {
    if (made->kinds[id] == static_cast<int32_t>(TokenKind::kUnused) && id >= spec.tokens.size()) continue;
    // As they are stored.
    made->scores[id] = id < scores.size() ? static_cast<double>(static_cast<float>(scores[id])) : kAddedScore;
  }
  made->keys.scores = made->scores;
}

Status fill_pieces(const TokenizerSpec& spec, bool by_merges, GgufTokenizer* made) {
  GgufTokenizerKeys& keys = made->keys;
  const bool unigram = spec.pieces->model == PieceRules::Model::kUnigram;
  keys.model = unigram ? "t5" : "llama";
  keys.pre = "default";
  if (spec.ignore_merges) return no_key("ignore_merges of BPE over characters");
  const bool sentence = spec.normalizer.size() == 1 && spec.normalizer[0].kind == NormalizerStep::Kind::kSentence;
  BATON_OK(sentence ? take_sentence(spec, made) : take_steps(spec, made));
  const size_t implied = keys.add_space_prefix.value_or(false) ? 1 : 0;
  if (!sentence && spec.pieces->leading_spaces != implied)
    keys.leading_spaces = static_cast<int64_t>(std::min<uint64_t>(spec.pieces->leading_spaces, uint64_t{1} << 40));
  if (unigram && spec.pieces->byte_fallback)
    made->lost.push_back("byte_fallback: llama.cpp has none in unigram: characters without a token are unknown there");
  if (spec.pieces->model != PieceRules::Model::kRankedBpe) {
    fill_scores(spec, spec.scores, made);
    return {};
  }
  const MergeScores scores = merge_scores(spec);
  fill_scores(spec, scores.values, made);
  if (scores.same_order && !by_merges) return {};
  keys.ranked_merges = true;
  made->lost.push_back("merges: llama.cpp merges by the scores of what is made, and cuts some words otherwise");
  return fill_merges(spec, made);
}

Status fill_bytes(const TokenizerSpec& spec, GgufTokenizer* made) {
  GgufTokenizerKeys& keys = made->keys;
  keys.model = "gpt2";
  BATON_TRY(keys.pre, pretokenizer_name(spec));
  if (!spec.normalizer.empty()) return no_key("a normalizer other than NFC before bytes");
  BATON_OK(fill_merges(spec, made));
  // GGUF has no keys for these; readers that do not know ours do what the name in `pre` implies to them.
  keys.normalize_nfc = spec.normalize_nfc;
  keys.add_prefix_space = spec.add_prefix_space;
  if (spec.add_prefix_space)
    made->lost.push_back("add_prefix_space: llama.cpp puts no space before the first word, so its first token differs");
  return {};
}

constexpr std::string_view kOddTexts[] = {
    "",
    " ",
    "   ",
    "  two  spaces  ",
    "\n\n\n \n\t\t x",
    "Hello, world! It's 12345.678 o'clock",
    "\xc3\xa9t\xc3\xa9 e\xcc\x81t\xc3\xa9 \xef\xac\x81n \xc2\xbd",
    "\xe6\x9d\xb1\xe4\xba\xac \xed\x95\x9c\xea\xb5\xad \xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82",
    "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa9 \xf4\x8f\xbf\xbf\xee\x80\x80",
    "\xff\xfe x \xc3",
    "\xe2\x96\x81mark \xe2\x96\x81\xe2\x96\x81",
    "<s> </s><unk><0x41> <|end|> <pad>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa --------------- ................",
    "def f(x):\n        return x  # y\n",
};

// The ids of one text, both ways, or why there are none.
std::string ids_of(const Tokenizer& tokenizer, std::string_view text, bool special, bool begins) {
  const auto ids = tokenizer.encode(text, special, begins);
  if (!ids) return ids.error().message;
  return fmt::format("{}|{}", fmt::join(*ids, ","), tokenizer.decode(*ids, false).value_or("?"));
}

Status compare_text(const Tokenizer& before, const Tokenizer& after, std::string_view text) {
  for (const bool special : {true, false}) {
    for (const bool begins : {true, false}) {
      const std::string a = ids_of(before, text, special, begins), b = ids_of(after, text, special, begins);
      if (a == b) continue;
      return fail(Code::kUnsupported,
                  fmt::format("the tokenizer cannot be kept by GGUF's keys: of '{}' they make {}, and it makes {}",
                              terminal_safe(text, 60), terminal_safe(b, 60), terminal_safe(a, 60)));
    }
  }
  return {};
}

constexpr size_t kRunMax = 70;  // runs of one character: vocabularies have up to 31 in one token

// Every token's text, alone and behind others; and odd ones.
Status check_same(const Tokenizer& before, const GgufTokenizer& made) {
  BATON_TRY(const TokenizerSpec spec, tokenizer_spec_from_gguf(made.keys));
  BATON_TRY(const Tokenizer after, Tokenizer::create(spec));
  for (const std::string_view text : kOddTexts) BATON_OK(compare_text(before, after, text));
  for (size_t length = 1; length <= kRunMax; ++length) {
    for (const char c : {' ', '\n', '-'}) {
      BATON_OK(compare_text(before, after, std::string(length, c)));
      BATON_OK(compare_text(before, after, "a" + std::string(length, c) + "b\n"));
    }
  }
  if (before.add_bos() != after.add_bos() || before.add_eos() != after.add_eos() || before.bos_id() != after.bos_id())
    return fail(Code::kInternal, "the tokenizer's ends cannot be kept by GGUF's keys");
  constexpr int32_t kTogether = 24;
  std::string together;
  for (int32_t id = 0; id < before.vocab_size(); ++id) {
    const std::string text(before.token_bytes(id));
    together.append(text).append(id % 3 == 0 ? " " : "");
    if (before.kind(id) != TokenKind::kNormal) {
      BATON_OK(compare_text(before, after, "a  " + text + "  b"));
      BATON_OK(compare_text(before, after, text + text));
    } else if (ids_of(before, text, false, false) != ids_of(after, text, false, false)) {
      BATON_OK(compare_text(before, after, text));
    }
    if (id % kTogether != 0 && id + 1 < before.vocab_size()) continue;
    BATON_OK(compare_text(before, after, together));
    together.clear();
  }
  return {};
}

Result<GgufTokenizer> made_of(const TokenizerSpec& spec, size_t rows, std::span<const int32_t> stop_ids,
                              bool by_merges) {
  GgufTokenizer made;
  fill_tokens(spec, rows, &made);
  BATON_OK(spec.pieces ? fill_pieces(spec, by_merges, &made) : fill_bytes(spec, &made));
  BATON_OK(fill_ids(spec, stop_ids, &made.keys));
  const size_t stripping = made.lstrip.size() + made.rstrip.size() + made.single_word.size();
  if (stripping > 0) {
    made.lost.push_back(
        fmt::format("lstrip, rstrip or single_word of {} added tokens: llama.cpp makes white space "
                    "beside them tokens of its own",
                    stripping));
  }
  return made;
}

}  // namespace

Result<GgufTokenizer> gguf_tokenizer_of(const TokenizerSpec& spec, size_t rows, std::span<const int32_t> stop_ids) {
  if (spec.word_piece) return no_key("a WordPiece tokenizer in a decoder's file");
  BATON_TRY(const Tokenizer before, Tokenizer::create(spec));
  if (static_cast<size_t>(before.vocab_size()) > rows) {
    return fail(Code::kInvalidInput,
                fmt::format("the tokenizer has {} ids, the embedding only {} rows; the files do not "
                            "belong together",
                            before.vocab_size(), rows));
  }
  BATON_TRY(GgufTokenizer made, made_of(spec, rows, stop_ids, false));
  Status same = check_same(before, made);
  if (!same && spec.pieces && spec.pieces->model == PieceRules::Model::kRankedBpe && !made.keys.ranked_merges) {
    BATON_TRY(made, made_of(spec, rows, stop_ids, true));
    same = check_same(before, made);
  }
  if (!same) return fail(std::move(same).error());
  return made;
}

}  // namespace baton

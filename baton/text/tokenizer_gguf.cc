// A TokenizerSpec from GGUF's tokenizer.ggml keys.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <tuple>

#include "baton/text/tokenizer_spec.h"

namespace baton {
namespace {

Result<int32_t> to_id(std::optional<int64_t> id, std::string_view key, size_t count) {
  if (!id) return -1;
  // Writers without such a token leave -1, as 32 or 64 bits.
  if (*id == -1 || *id == std::numeric_limits<uint32_t>::max()) return -1;
  if (*id < 0 || static_cast<uint64_t>(*id) >= count) {
    return fail(Code::kInvalidInput,
                fmt::format("tokenizer.ggml.{} is {}: the vocabulary has {} tokens", key, *id, count));
  }
  return static_cast<int32_t>(*id);
}

Status fill_kinds(const GgufTokenizerKeys& keys, TokenizerSpec* spec) {
  if (keys.token_types.empty()) return {};
  if (keys.token_types.size() != keys.tokens.size()) {
    return fail(Code::kInvalidInput, fmt::format("tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens {}",
                                                 keys.token_types.size(), keys.tokens.size()));
  }
  spec->kinds.reserve(keys.token_types.size());
  for (size_t id = 0; id < keys.token_types.size(); ++id) {
    const int32_t type = keys.token_types[id];
    if (type < 0 || type > 6) {
      return fail(Code::kInvalidInput, fmt::format("tokenizer.ggml.token_type[{}] is {}: known are 1 to 6", id, type));
    }
    const TokenKind kind = type == 0 ? TokenKind::kNormal : static_cast<TokenKind>(type);
    spec->kinds.push_back(kind);
    const bool special = kind == TokenKind::kControl || (kind == TokenKind::kUnknown && keys.model != "gpt2");
    if ((!special && kind != TokenKind::kUserDefined) || keys.tokens[id].empty()) continue;
    AddedToken added;
    added.id = static_cast<int32_t>(id);
    added.text = keys.tokens[id];
    added.special = special;
    spec->added.push_back(std::move(added));
  }
  return {};
}

// Of two characters or more, each of which stands for a byte: only merges lead there.
bool has_long_tokens(const TokenizerSpec& spec) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.kinds.empty() && spec.kinds[id] != TokenKind::kNormal) continue;
    const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
    if (std::count_if(spec.tokens[id].begin(), spec.tokens[id].end(), begins) > 1) return true;
  }
  return false;
}

Status fill_merges(const GgufTokenizerKeys& keys, TokenizerSpec* spec) {
  spec->merges.reserve(keys.merges.size());
  for (size_t rank = 0; rank < keys.merges.size(); ++rank) {
    const std::string_view merge = keys.merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return fail(Code::kInvalidInput, fmt::format("tokenizer.ggml.merges[{}] is '{}': not two parts", rank, merge));
    }
    spec->merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  return {};
}

// What a file says where it is silent.
struct Defaults {
  int32_t bos = -1, eos = -1, unk = -1, pad = -1;
  bool add_bos = false, add_eos = false;
};

bool has_bytes(const TokenizerSpec& spec) {
  return std::find(spec.kinds.begin(), spec.kinds.end(), TokenKind::kByte) != spec.kinds.end();
}

Status fill_scores(const GgufTokenizerKeys& keys, TokenizerSpec* spec) {
  if (keys.scores.size() != keys.tokens.size()) {
    return fail(Code::kInvalidInput, fmt::format("tokenizer.ggml.scores has {} entries, tokenizer.ggml.tokens {}",
                                                 keys.scores.size(), keys.tokens.size()));
  }
  spec->scores.assign(keys.scores.begin(), keys.scores.end());
  return {};
}

// Where spaces become marks and where one is put in front: by add_space_prefix, or as our own key says more exactly.
// `charsmap`: whether the file's counts.
Status read_spaces(const GgufTokenizerKeys& keys, bool prefixes, bool charsmap, TokenizerSpec* spec) {
  constexpr std::string_view kMetaspace = "metaspace-", kSplit = "-split";
  const bool sentencepiece = keys.source == kSourceSentencePiece;
  const PrefixRule plain = keys.add_space_prefix.value_or(prefixes) ? PrefixRule::kAlways : PrefixRule::kNever;
  spec->pieces->leading_spaces = plain == PrefixRule::kNever ? 0 : 1;
  spec->pieces->float_sums = sentencepiece;
  if (keys.spaces.starts_with(kMetaspace)) {
    PretokenizerStep step;
    step.kind = PretokenizerStep::Kind::kMetaspace;
    step.pattern = kSpaceMark;
    std::string_view rule = keys.spaces.substr(kMetaspace.size());
    step.splits = rule.ends_with(kSplit);
    if (step.splits) rule.remove_suffix(kSplit.size());
    if (rule != "first" && rule != "always" && rule != "never") {
      return fail(Code::kInvalidInput, fmt::format("tokenizer.baton.spaces: '{}' is unknown", keys.spaces));
    }
    step.prefix = rule == "first" ? PrefixRule::kFirst : rule == "always" ? PrefixRule::kAlways : PrefixRule::kNever;
    spec->pretokenizer.push_back(std::move(step));
  } else {
    if (!keys.spaces.empty() && keys.spaces != "first") {
      return fail(Code::kInvalidInput, fmt::format("tokenizer.baton.spaces: '{}' is unknown", keys.spaces));
    }
    NormalizerStep step;
    step.kind = NormalizerStep::Kind::kSentence;
    step.escape_spaces = true;
    step.prefix = keys.spaces == "first" ? PrefixRule::kFirst : plain;
    if (charsmap || sentencepiece) {
      step.content = keys.charsmap;
      step.merge_spaces = keys.remove_extra_whitespaces.value_or(false);
    }
    std::vector<int32_t> kept(keys.kept_ids.begin(), keys.kept_ids.end());
    std::sort(kept.begin(), kept.end());
    for (AddedToken& token : spec->added) {
      if (!std::binary_search(kept.begin(), kept.end(), token.id)) continue;
      token.normalized = token.is_normal = true;
      step.kept.push_back(token.text);
    }
    if (sentencepiece && step.merge_spaces) spec->pieces->leading_spaces = std::numeric_limits<size_t>::max();
    spec->normalizer.push_back(std::move(step));
  }
  if (keys.leading_spaces)
    spec->pieces->leading_spaces = static_cast<size_t>(std::max<int64_t>(*keys.leading_spaces, 0));
  return {};
}

// "gpt2": byte-level BPE, or over characters where the name of the split rule says so.
Result<Defaults> read_merged(const GgufTokenizerKeys& keys, std::string_view pre, TokenizerSpec* spec) {
  BATON_TRY(PretokenizerPreset preset, pretokenizer_preset(pre));
  spec->pretokenizer = std::move(preset.steps);
  spec->ignore_merges = preset.ignore_merges;
  spec->merges_complete = false;
  if (preset.characters) {
    PieceRules& rules = spec->pieces.emplace();
    rules.byte_fallback = true;
    NormalizerStep escape;
    escape.kind = NormalizerStep::Kind::kReplace;
    escape.pattern = " ";
    escape.content = kSpaceMark;
    spec->normalizer.push_back(std::move(escape));
  } else {
    spec->normalize_nfc = keys.normalize_nfc.value_or(preset.normalize_nfc);
    spec->add_prefix_space = keys.add_prefix_space.value_or(false);
  }
  if (keys.merges.empty() && pre != "kimi-k2" && (preset.characters || has_long_tokens(*spec))) {
    return fail(Code::kInvalidInput,
                "tokenizer.ggml.merges is missing: without merges every text would become single bytes");
  }
  BATON_OK(fill_merges(keys, spec));
  Defaults defaults;
  defaults.add_bos = preset.add_bos || preset.add_ends;
  defaults.add_eos = preset.add_ends;
  return defaults;
}

// "llama": SentencePiece's BPE by scores, or by merges where our own key says so.
Result<Defaults> read_scored(const GgufTokenizerKeys& keys, TokenizerSpec* spec) {
  PieceRules& rules = spec->pieces.emplace();
  rules.byte_fallback = rules.fuse_unk = true;
  if (keys.ranked_merges.value_or(false)) {
    if (keys.merges.empty())
      return fail(Code::kInvalidInput, "tokenizer.ggml.merges is missing, and tokenizer.baton.ranked_merges is true");
    spec->merges_complete = false;
    BATON_OK(fill_merges(keys, spec));
  } else {
    rules.model = PieceRules::Model::kScoredBpe;
    BATON_OK(fill_scores(keys, spec));
  }
  BATON_OK(read_spaces(keys, true, false, spec));
  return Defaults{1, 2, 0, -1, true, false};
}

// "t5": unigram.
Result<Defaults> read_unigram(const GgufTokenizerKeys& keys, TokenizerSpec* spec) {
  BATON_OK(fill_scores(keys, spec));
  PieceRules& rules = spec->pieces.emplace();
  rules.model = PieceRules::Model::kUnigram;
  rules.byte_fallback = has_bytes(*spec);
  rules.fuse_unk = true;
  BATON_OK(read_spaces(keys, false, true, spec));
  return Defaults{-1, 1, 2, 0, false, true};
}

// "bert": WordPiece. Its words begin with kSpaceMark and pieces inside words have no prefix; names in brackets are as
// they are.
Result<Defaults> read_bert(const GgufTokenizerKeys& keys, TokenizerSpec* spec) {
  size_t bytes = 0;
  for (const std::string_view token : keys.tokens) bytes += token.size() + 2;
  spec->arena = std::make_unique_for_overwrite<char[]>(bytes + 1);
  char* next = spec->arena.get();
  for (std::string_view& token : spec->tokens) {
    if (token.starts_with('[') && token.ends_with(']') && token.size() > 1) continue;
    std::string made(token.starts_with(kSpaceMark) ? "" : "##");
    made.append(made.empty() ? token.substr(kSpaceMark.size()) : token);
    std::memcpy(next, made.data(), made.size());
    token = {next, made.size()};
    next += made.size();
  }
  spec->word_piece.emplace();
  NormalizerStep step;
  step.kind = NormalizerStep::Kind::kBert;
  step.bert.lower_case = keys.lowercase.value_or(true);
  step.bert.strip_accents = keys.strip_accents.value_or(step.bert.lower_case);
  spec->normalizer.push_back(std::move(step));
  PretokenizerStep words;
  words.kind = PretokenizerStep::Kind::kBertWords;
  spec->pretokenizer.push_back(std::move(words));
  return Defaults{101, 102, 100, 0, true, true};
}

Result<Defaults> read_model(const GgufTokenizerKeys& keys, TokenizerSpec* spec) {
  if (keys.model == "gpt2") return read_merged(keys, keys.pre, spec);
  if (keys.model == "gemma4") return read_merged(keys, "gemma4", spec);
  if (keys.model == "llama") return read_scored(keys, spec);
  if (keys.model == "t5") return read_unigram(keys, spec);
  if (keys.model == "bert") return read_bert(keys, spec);
  return fail(Code::kUnsupported,
              fmt::format("tokenizer.ggml.model '{}': there are bert, gemma4, gpt2, llama and t5", keys.model));
}

// Phi-3's control tokens take the white space behind them, which no key says: llama.cpp goes by the model's name.
void strip_as_phi3(const GgufTokenizerKeys& keys, TokenizerSpec* spec) {
  std::string name(keys.name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (keys.model != "llama" || !keys.source.empty() ||
      (name.find("phi-3") == std::string::npos && name.find("phi3") == std::string::npos))
    return;
  for (AddedToken& token : spec->added) {
    token.rstrip = token.text != "<unk>" && token.text != "<s>" && token.text != "<|endoftext|>";
  }
}

// Our own lists of ids.
Status read_flags(const GgufTokenizerKeys& keys, TokenizerSpec* spec) {
  const std::tuple<std::string_view, std::span<const int32_t>, bool AddedToken::*> lists[] = {
      {"lstrip_ids", keys.lstrip_ids, &AddedToken::lstrip},
      {"rstrip_ids", keys.rstrip_ids, &AddedToken::rstrip},
      {"single_word_ids", keys.single_word_ids, &AddedToken::single_word},
      {"normalized_ids", keys.normalized_ids, &AddedToken::normalized}};
  for (const auto& [key, ids, flag] : lists) {
    for (const int32_t id : ids) {
      // They come in the order of their ids.
      const auto found = std::lower_bound(spec->added.begin(), spec->added.end(), id,
                                          [](const AddedToken& token, int32_t value) { return token.id < value; });
      if (found == spec->added.end() || found->id != id) {
        return fail(Code::kInvalidInput,
                    fmt::format("tokenizer.baton.{}: {} is no control or user-defined token", key, id));
      }
      (*found).*flag = true;
    }
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> tokenizer_spec_from_gguf(const GgufTokenizerKeys& keys) {
  if (keys.tokens.empty()) return fail(Code::kInvalidInput, "tokenizer.ggml.tokens is missing or empty");
  if (keys.tokens.size() > static_cast<size_t>(kTokensMax)) {
    return fail(Code::kInvalidInput,
                fmt::format("tokenizer.ggml.tokens has {} entries: at most {}", keys.tokens.size(), kTokensMax));
  }
  TokenizerSpec spec;
  spec.tokens = keys.tokens;
  BATON_OK(fill_kinds(keys, &spec));
  BATON_TRY(const Defaults defaults, read_model(keys, &spec));
  strip_as_phi3(keys, &spec);
  BATON_OK(read_flags(keys, &spec));

  const size_t count = keys.tokens.size();
  // An id that the file does not give and the vocabulary does not reach is none.
  const auto id_of = [&](std::optional<int64_t> id, std::string_view key, int32_t otherwise) {
    return id || static_cast<size_t>(otherwise + 1) > count ? to_id(id, key, count) : Result<int32_t>(otherwise);
  };
  const bool bert = keys.model == "bert";
  BATON_TRY(spec.bos_id, id_of(bert && keys.cls_id ? keys.cls_id : keys.bos_id, "bos_token_id", defaults.bos));
  BATON_TRY(spec.eos_id,
            id_of(bert ? keys.sep_id : keys.eos_id, bert ? "seperator_token_id" : "eos_token_id", defaults.eos));
  BATON_TRY(spec.pad_id, id_of(keys.pad_id, "padding_token_id", defaults.pad));
  BATON_TRY(const int32_t unk_id, id_of(keys.unk_id, "unknown_token_id", defaults.unk));
  // Not used of bytes: a byte-level vocabulary that is whole has no unknown ones, and where it is not whole an error is
  // better than a wrong token.
  if (spec.pieces || spec.word_piece) spec.unk_id = unk_id;
  BATON_TRY(const int32_t eot_id, to_id(keys.eot_id, "eot_token_id", count));
  BATON_TRY(const int32_t eom_id, to_id(keys.eom_id, "eom_token_id", count));
  for (const int32_t id : {eot_id, eom_id}) {
    if (id >= 0) spec.stop_ids.push_back(id);
  }
  // The flag of the file wins over what the name of the split rule implies.
  spec.add_bos = keys.add_bos.value_or(defaults.add_bos && spec.bos_id >= 0);
  spec.add_eos = keys.add_eos.value_or(defaults.add_eos && spec.eos_id >= 0);
  if (bert) spec.add_eos = keys.add_sep.value_or(true) && spec.eos_id >= 0;
  return spec;
}

}  // namespace baton

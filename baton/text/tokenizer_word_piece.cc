// A TokenizerSpec of WordPiece, from tokenizer.json and from vocab.txt.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>

#include "baton/text/tokenizer_fields.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {
namespace tokenizer_fields {
namespace {

Result<size_t> read_word_chars_max(const json& model) {
  const json* value = member(model, "max_input_chars_per_word");
  if (value == nullptr) return WordPieceRules().word_chars_max;
  if (!value->is_number_unsigned()) return bad("model", "'max_input_chars_per_word' must be a whole number");
  return static_cast<size_t>(value->get<uint64_t>());
}

}  // namespace

Status read_word_piece(const json& model, const TokenizerFile& parts, TokenizerSpec* spec) {
  if (!parts.has_vocab || parts.vocab_is_list) return bad("model", "'vocab' must be an object of token texts and ids");
  if (parts.has_merges) return bad("model", "a WordPiece model has no 'merges'");
  WordPieceRules rules;
  if (member(model, "continuing_subword_prefix") != nullptr) {
    BATON_TRY(rules.prefix, text_of(model, "continuing_subword_prefix", "model"));
  }
  BATON_TRY(rules.word_chars_max, read_word_chars_max(model));
  if (member(model, "unk_token") == nullptr) return bad("model", "'unk_token' is missing");
  spec->word_piece = std::move(rules);
  return {};
}

namespace {

// The text of a special token, as tokenizer_config.json has it.
Result<std::string> special_text(const json& config, std::string_view key, std::string_view otherwise) {
  const json* value = member(config, key);
  if (value != nullptr && value->is_object()) value = member(*value, "content");
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_string()) return bad(fmt::format("tokenizer_config.json: {}", key), "must be a string");
  return value->get<std::string>();
}

// Lines of the file to tokens; an empty line is an id without a token.
Status read_lines(std::string_view text, TokenizerSpec* spec) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (spec->tokens.size() >= static_cast<size_t>(kTokensMax)) {
      return bad("vocab.txt", fmt::format("more than {} lines", kTokensMax));
    }
    spec->tokens.push_back(line);
  }
  return {};
}

// The id of a text among the added tokens and the others; -1: none.
int32_t find_token(const TokenizerSpec& spec, std::string_view text) {
  for (const AddedToken& token : spec.added) {
    if (token.text == text) return token.id;
  }
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  return found == spec.tokens.end() || text.empty() ? -1 : static_cast<int32_t>(found - spec.tokens.begin());
}

}  // namespace

bool is_bert_class(const json& config, bool bert_model) {
  const json* name = member(config, "tokenizer_class");
  if (name == nullptr) return bert_model;
  return *name == "BertTokenizer" || *name == "BertTokenizerFast" || *name == "DistilBertTokenizer" ||
         *name == "DistilBertTokenizerFast";
}

Status read_bert_class(const json& config, std::string_view vocab_file, TokenizerSpec* spec) {
  constexpr std::string_view kFile = "tokenizer_config.json";
  spec->word_piece = WordPieceRules();
  NormalizerStep bert;
  bert.kind = NormalizerStep::Kind::kBert;
  BATON_TRY(bert.bert.lower_case, flag_of(config, "do_lower_case", true, kFile));
  BATON_TRY(bert.bert.strip_accents, flag_of(config, "strip_accents", bert.bert.lower_case, kFile));
  BATON_TRY(bert.bert.split_ideographs, flag_of(config, "tokenize_chinese_chars", true, kFile));
  spec->normalizer.assign(1, std::move(bert));
  PretokenizerStep words;
  words.kind = PretokenizerStep::Kind::kBertWords;
  spec->pretokenizer.assign(1, std::move(words));
  const std::tuple<std::string_view, std::string_view, int32_t*> specials[] = {{"unk_token", "[UNK]", &spec->unk_id},
                                                                               {"cls_token", "[CLS]", &spec->bos_id},
                                                                               {"sep_token", "[SEP]", &spec->eos_id}};
  for (const auto& [key, otherwise, id] : specials) {
    BATON_TRY(const std::string text, special_text(config, key, otherwise));
    *id = find_token(*spec, text);
    if (*id < 0) return bad(vocab_file, fmt::format("the {} '{}' is no token of it", key, text));
  }
  spec->add_bos = spec->add_eos = true;
  return {};
}

namespace {

// In vocab.txt nothing else says which tokens are special.
Status add_specials(const json& config, TokenizerSpec* spec) {
  constexpr std::pair<std::string_view, std::string_view> kSpecials[] = {{"unk_token", "[UNK]"},
                                                                         {"cls_token", "[CLS]"},
                                                                         {"sep_token", "[SEP]"},
                                                                         {"pad_token", "[PAD]"},
                                                                         {"mask_token", "[MASK]"}};
  for (const auto& [key, otherwise] : kSpecials) {
    BATON_TRY(std::string text, special_text(config, key, otherwise));
    const int32_t at = find_token(*spec, text);
    if (at < 0) continue;
    if (key == "pad_token") spec->pad_id = at;
    const auto same = [at](const AddedToken& token) { return token.id == at; };
    if (std::any_of(spec->added.begin(), spec->added.end(), same)) continue;
    AddedToken token;
    token.id = at;
    token.text = std::move(text);
    token.special = true;
    spec->added.push_back(std::move(token));
  }
  return {};
}

}  // namespace
}  // namespace tokenizer_fields

Result<TokenizerSpec> tokenizer_spec_from_vocab_txt(std::string_view vocab_txt,
                                                    std::string_view tokenizer_config_json) {
  BATON_OK(tokenizer_fields::check_size(vocab_txt, "vocab.txt"));
  TokenizerSpec spec;
  spec.arena = std::make_unique_for_overwrite<char[]>(vocab_txt.size() + 1);
  std::memcpy(spec.arena.get(), vocab_txt.data(), vocab_txt.size());
  BATON_OK(tokenizer_fields::read_lines({spec.arena.get(), vocab_txt.size()}, &spec));
  nlohmann::json config = nlohmann::json::object();
  if (!tokenizer_config_json.empty()) {
    BATON_TRY(config, tokenizer_fields::parse_tokenizer_config(tokenizer_config_json));
    BATON_OK(tokenizer_fields::read_tokenizer_config(tokenizer_config_json, &spec));
  }
  BATON_OK(tokenizer_fields::read_bert_class(config, "vocab.txt", &spec));
  BATON_OK(tokenizer_fields::add_specials(config, &spec));
  return spec;
}

}  // namespace baton

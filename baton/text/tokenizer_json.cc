// A TokenizerSpec from Hugging Face's tokenizer.json and tokenizer_config.json: what their fields mean.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "baton/text/piece_bpe.h"
#include "baton/text/tokenizer_fields.h"
#include "baton/text/tokenizer_file.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {
namespace {

using nlohmann::json;
using tokenizer_fields::bad;
using tokenizer_fields::check_fields;
using tokenizer_fields::check_size;
using tokenizer_fields::flag_of;
using tokenizer_fields::id_of;
using tokenizer_fields::is_bert_class;
using tokenizer_fields::member;
using tokenizer_fields::parse_tokenizer_config;
using tokenizer_fields::read_added;
using tokenizer_fields::read_bert_class;
using tokenizer_fields::read_decoder;
using tokenizer_fields::read_normalizer;
using tokenizer_fields::read_post_processor;
using tokenizer_fields::read_pretokenizer;
using tokenizer_fields::read_tokenizer_config;
using tokenizer_fields::read_word_piece;
using tokenizer_fields::text_of;
using tokenizer_fields::unsupported;

// Truncation and padding are the caller's matter.
constexpr std::string_view kTopFields[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                           "pre_tokenizer", "post_processor", "decoder", "model"};
constexpr std::string_view kAddedFields[] = {"id",     "content", "single_word", "lstrip",
                                             "rstrip", "special", "normalized",  "__type"};
constexpr std::string_view kBpeFields[] = {"type",
                                           "dropout",
                                           "unk_token",
                                           "continuing_subword_prefix",
                                           "end_of_word_suffix",
                                           "fuse_unk",
                                           "byte_fallback",
                                           "ignore_merges",
                                           "vocab",
                                           "merges"};
constexpr std::string_view kUnigramFields[] = {"type", "unk_id", "unk_token", "byte_fallback", "fuse_unk", "vocab"};
constexpr std::string_view kWordPieceFields[] = {
    "type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab", "merges"};

Status check_whole(const json& rest, const json& model, std::string_view type) {
  BATON_OK(check_fields(rest, kTopFields, "tokenizer.json"));
  if (const json* version = member(rest, "version"); version != nullptr && *version != "1.0") {
    return fail(Code::kUnsupported, "tokenizer.json: 'version' is not \"1.0\", the only one that there is here");
  }
  if (type == "BPE") return check_fields(model, kBpeFields, "model");
  if (type == "Unigram") return check_fields(model, kUnigramFields, "model");
  return check_fields(model, kWordPieceFields, "model");
}

Status read_added_tokens(const json* list, TokenizerSpec* spec) {
  if (list == nullptr) return {};
  if (!list->is_array()) return bad("added_tokens", "must be a list");
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    const json& part = (*list)[i];
    BATON_TRY(AddedToken token, read_added(part, where));
    BATON_OK(check_fields(part, kAddedFields, where));
    const json* id = member(part, "id");
    if (id == nullptr) return bad(where, "'id' is missing");
    BATON_TRY(token.id, id_of(*id, where));
    spec->added.push_back(std::move(token));
  }
  return {};
}

Status check_bpe(const json& model, const TokenizerFile& file) {
  if (!file.has_vocab || file.vocab_is_list) return bad("model", "'vocab' must be an object of token texts and ids");
  if (!file.has_merges) return bad("model", "'merges' must be a list");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json* value = member(model, key);
    if (value != nullptr && *value != "") return unsupported(fmt::format("model.{}", key), value->dump());
  }
  if (const json* dropout = member(model, "dropout"); dropout != nullptr && *dropout != 0.0) {
    return unsupported("model.dropout", dropout->dump());
  }
  return {};
}

// Tokens that stand for bytes are made of no text.
void mark_bytes(TokenizerSpec* spec) {
  spec->kinds.assign(spec->tokens.size(), TokenKind::kNormal);
  for (size_t id = 0; id < spec->tokens.size(); ++id) {
    if (byte_of_token(spec->tokens[id]) >= 0) spec->kinds[id] = TokenKind::kByte;
  }
}

Status read_pieces(const json& model, PieceRules::Model kind, size_t leading_spaces, TokenizerSpec* spec) {
  PieceRules& rules = spec->pieces.emplace();
  rules.model = kind;
  rules.leading_spaces = leading_spaces;
  BATON_TRY(rules.byte_fallback, flag_of(model, "byte_fallback", false, "model"));
  BATON_TRY(rules.fuse_unk, flag_of(model, "fuse_unk", kind == PieceRules::Model::kUnigram, "model"));
  if (rules.byte_fallback) mark_bytes(spec);
  return {};
}

Status read_unigram(const json& model, TokenizerFile* file, TokenizerSpec* spec) {
  if (!file->has_vocab || !file->vocab_is_list) return bad("model", "'vocab' must be a list of token texts and scores");
  spec->scores = std::move(file->scores);
  const json* unk = member(model, "unk_id");
  if (unk == nullptr) return {};
  BATON_TRY(spec->unk_id, id_of(*unk, "model.unk_id"));
  return {};
}

Status read_unk_token(const json& model, TokenizerSpec* spec) {
  const json* unk = member(model, "unk_token");
  if (unk == nullptr) return {};
  if (!unk->is_string()) return bad("model", "'unk_token' must be a string");
  const auto found =
      std::find(spec->tokens.begin(), spec->tokens.end(), std::string_view(unk->get_ref<const std::string&>()));
  if (found == spec->tokens.end()) return bad("model", "'unk_token' is not in the vocabulary");
  spec->unk_id = static_cast<int32_t>(found - spec->tokens.begin());
  return {};
}

Status place_vocab(const std::vector<VocabEntry>& vocab, TokenizerSpec* spec) {
  int32_t id_max = -1;
  for (const VocabEntry& entry : vocab) id_max = std::max(id_max, entry.id);
  spec->tokens.assign(static_cast<size_t>(id_max + 1), {});
  for (const VocabEntry& entry : vocab) {
    std::string_view& slot = spec->tokens[static_cast<size_t>(entry.id)];
    if (!slot.empty()) {
      return bad("model.vocab", fmt::format("'{}' and '{}' have the same id {}", slot, entry.text, entry.id));
    }
    slot = entry.text;
  }
  return {};
}

Status read_bert_fields(std::string_view tokenizer_config_json, bool bert_model, TokenizerSpec* spec) {
  json config = json::object();
  if (!tokenizer_config_json.empty()) {
    BATON_TRY(config, parse_tokenizer_config(tokenizer_config_json));
  }
  return is_bert_class(config, bert_model) ? read_bert_class(config, "tokenizer.json", spec) : Status();
}

}  // namespace

Result<TokenizerSpec> tokenizer_spec_from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json,
                                               bool bert_model) {
  BATON_OK(check_size(tokenizer_json, "tokenizer.json"));
  TokenizerSpec spec;
  auto file = read_tokenizer_file(tokenizer_json, &spec);
  if (!file) return bad("tokenizer.json", file.error().message);
  const json& rest = file->rest;
  if (!rest.is_object()) return bad("tokenizer.json", "not a JSON object");
  const json* model = member(rest, "model");
  if (model == nullptr || !model->is_object()) return bad("tokenizer.json", "'model' must be an object");
  // Old files leave the type out; merges then say that it is BPE.
  std::string type = file->has_merges ? "BPE" : file->vocab_is_list ? "Unigram" : "BPE";
  if (member(*model, "type") != nullptr) {
    BATON_TRY(type, text_of(*model, "type", "model"));
  }
  if (type != "BPE" && type != "WordPiece" && type != "Unigram") return unsupported("model", type);
  BATON_OK(check_whole(rest, *model, type));
  if (type == "BPE") BATON_OK(check_bpe(*model, *file));
  BATON_OK(place_vocab(file->vocab, &spec));
  BATON_OK(read_normalizer(member(rest, "normalizer"), &spec));
  bool byte_level = false;
  BATON_OK(read_pretokenizer(member(rest, "pre_tokenizer"), &spec, &byte_level));
  size_t leading_spaces = 0;
  const std::string_view decodes = type != "BPE" ? std::string_view(type) : byte_level ? "ByteLevel" : "BPE";
  BATON_OK(read_decoder(member(rest, "decoder"), decodes, &leading_spaces));
  if (type == "WordPiece") {
    BATON_OK(read_word_piece(*model, *file, &spec));
  } else if (type == "Unigram") {
    BATON_OK(read_unigram(*model, &*file, &spec));
    BATON_OK(read_pieces(*model, PieceRules::Model::kUnigram, leading_spaces, &spec));
  } else {
    BATON_TRY(spec.ignore_merges, flag_of(*model, "ignore_merges", false, "model"));
    if (!byte_level) BATON_OK(read_pieces(*model, PieceRules::Model::kRankedBpe, leading_spaces, &spec));
  }
  if (byte_level && spec.pieces) return unsupported("pre_tokenizer", "ByteLevel of another model than BPE");
  int32_t first = -1, last = -1;
  BATON_OK(read_post_processor(member(rest, "post_processor"), &spec, &first, &last));
  BATON_OK(read_added_tokens(member(rest, "added_tokens"), &spec));
  BATON_OK(read_unk_token(*model, &spec));
  if (!tokenizer_config_json.empty()) BATON_OK(read_tokenizer_config(tokenizer_config_json, &spec));
  // What the post-processor puts around the text is what counts, whatever the config calls it.
  if (first >= 0) spec.bos_id = first;
  if (last >= 0) spec.eos_id = last;
  if (type == "WordPiece") BATON_OK(read_bert_fields(tokenizer_config_json, bert_model, &spec));
  return spec;
}

}  // namespace baton

// A TokenizerSpec from Hugging Face's tokenizer.json and tokenizer_config.json: what their fields mean.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "baton/text/tokenizer_fields.h"
#include "baton/text/tokenizer_file.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {
namespace {

using nlohmann::json;
using tokenizer_fields::bad;
using tokenizer_fields::check_size;
using tokenizer_fields::flag_of;
using tokenizer_fields::id_of;
using tokenizer_fields::member;
using tokenizer_fields::read_added;
using tokenizer_fields::read_tokenizer_config;
using tokenizer_fields::read_word_piece;
using tokenizer_fields::sequence_of;
using tokenizer_fields::text_of;
using tokenizer_fields::type_of;
using tokenizer_fields::unsupported;

Result<PretokenizerStep> read_split(const json& part) {
  constexpr std::string_view kWhere = "pre_tokenizer Split";
  PretokenizerStep step;
  const json* pattern = member(part, "pattern");
  if (pattern == nullptr || !pattern->is_object()) return bad(kWhere, "'pattern' must be an object");
  const bool is_regex = member(*pattern, "Regex") != nullptr;
  step.kind = is_regex ? PretokenizerStep::Kind::kRegex : PretokenizerStep::Kind::kLiteral;
  BATON_TRY(step.pattern, text_of(*pattern, is_regex ? "Regex" : "String", kWhere));
  BATON_TRY(step.invert, flag_of(part, "invert", false, kWhere));
  BATON_TRY(const std::string behavior, text_of(part, "behavior", kWhere));
  using Behavior = PretokenizerStep::Behavior;
  constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {{"Isolated", Behavior::kIsolated},
                                                                  {"Removed", Behavior::kRemoved},
                                                                  {"MergedWithPrevious", Behavior::kMergedWithPrevious},
                                                                  {"MergedWithNext", Behavior::kMergedWithNext},
                                                                  {"Contiguous", Behavior::kContiguous}};
  for (const auto& [name, value] : kBehaviors) {
    if (behavior != name) continue;
    step.behavior = value;
    return step;
  }
  return bad(kWhere, fmt::format("behavior '{}' is unknown", behavior));
}

Status read_pretokenizer(const json* part, TokenizerSpec* spec) {
  if (part == nullptr) return unsupported("pre_tokenizer", "null");
  BATON_TRY(const std::vector<const json*> parts, sequence_of(*part, "pretokenizers", "pre_tokenizer"));
  bool saw_byte_level = false;
  for (const json* one : parts) {
    BATON_TRY(const std::string type, type_of(*one, "pre_tokenizer"));
    if (saw_byte_level) {
      return fail(Code::kUnsupported, fmt::format("pre_tokenizer '{}' after ByteLevel is not supported", type));
    }
    if (type == "Split") {
      BATON_TRY(PretokenizerStep step, read_split(*one));
      spec->pretokenizer.push_back(std::move(step));
    } else if (type == "Digits") {
      BATON_TRY(const bool individual, flag_of(*one, "individual_digits", false, "pre_tokenizer Digits"));
      PretokenizerStep step;
      step.pattern = individual ? R"(\p{N})" : R"(\p{N}+)";
      spec->pretokenizer.push_back(std::move(step));
    } else if (type == "ByteLevel") {
      saw_byte_level = true;
      BATON_TRY(spec->add_prefix_space, flag_of(*one, "add_prefix_space", true, "pre_tokenizer ByteLevel"));
      BATON_TRY(const bool use_regex, flag_of(*one, "use_regex", true, "pre_tokenizer ByteLevel"));
      if (spec->add_prefix_space && !spec->pretokenizer.empty()) {
        return fail(Code::kUnsupported, "pre_tokenizer ByteLevel with add_prefix_space after another step");
      }
      if (use_regex) {
        BATON_TRY(PretokenizerPreset gpt2, pretokenizer_preset("gpt-2"));
        spec->pretokenizer.push_back(std::move(gpt2.steps[0]));
      }
    } else {
      return unsupported("pre_tokenizer", type);
    }
  }
  if (!saw_byte_level) return unsupported("pre_tokenizer", "without ByteLevel");
  return {};
}

Status read_normalizer(const json* part, TokenizerSpec* spec) {
  if (part == nullptr) return {};
  BATON_TRY(const std::vector<const json*> parts, sequence_of(*part, "normalizers", "normalizer"));
  for (const json* one : parts) {
    BATON_TRY(const std::string type, type_of(*one, "normalizer"));
    if (type != "NFC") return unsupported("normalizer", type);
    spec->normalize_nfc = true;
  }
  return {};
}

Status read_decoder(const json* part) {
  if (part == nullptr) return {};
  BATON_TRY(const std::vector<const json*> parts, sequence_of(*part, "decoders", "decoder"));
  for (const json* one : parts) {
    BATON_TRY(const std::string type, type_of(*one, "decoder"));
    if (type != "ByteLevel") return unsupported("decoder", type);
  }
  return {};
}

// The id of a TemplateProcessing special token: its entry under special_tokens lists exactly one.
Result<int32_t> template_token(const json& part, const std::string& name) {
  constexpr std::string_view kWhere = "post_processor TemplateProcessing";
  const json* tokens = member(part, "special_tokens");
  const json* token = tokens == nullptr ? nullptr : member(*tokens, name);
  const json* ids = token == nullptr ? nullptr : member(*token, "ids");
  if (ids == nullptr || !ids->is_array() || ids->size() != 1) {
    return bad(kWhere, fmt::format("special token '{}' must have one id", name));
  }
  return id_of((*ids)[0], kWhere);
}

Status read_template(const json& part, TokenizerSpec* spec, int32_t* first, int32_t* last) {
  constexpr std::string_view kWhere = "post_processor TemplateProcessing";
  const json* single = member(part, "single");
  if (single == nullptr || !single->is_array()) return bad(kWhere, "'single' must be a list");
  bool saw_text = false;
  for (const json& item : *single) {
    if (member(item, "Sequence") != nullptr) {
      if (saw_text) return bad(kWhere, "'single' names the text twice");
      saw_text = true;
      continue;
    }
    const json* special = member(item, "SpecialToken");
    if (special == nullptr) return bad(kWhere, "an item of 'single' is neither Sequence nor SpecialToken");
    BATON_TRY(const std::string name, text_of(*special, "id", kWhere));
    BATON_TRY(const int32_t id, template_token(part, name));
    int32_t* where = saw_text ? last : first;
    if (*where >= 0) {
      return fail(Code::kUnsupported,
                  fmt::format("{}: more than one token {} the text", kWhere, saw_text ? "after" : "before"));
    }
    *where = id;
  }
  spec->add_bos = *first >= 0;
  spec->add_eos = *last >= 0;
  return {};
}

// A token of BertProcessing: its text and its id.
Result<int32_t> named_id(const json& part, std::string_view key) {
  const json* token = member(part, key);
  if (token == nullptr || !token->is_array() || token->size() != 2) {
    return bad("post_processor BertProcessing", fmt::format("'{}' must be a text and an id", key));
  }
  return id_of((*token)[1], "post_processor BertProcessing");
}

Status read_post_processor(const json* part, TokenizerSpec* spec, int32_t* first, int32_t* last) {
  if (part == nullptr) return {};
  BATON_TRY(const std::vector<const json*> parts, sequence_of(*part, "processors", "post_processor"));
  for (const json* one : parts) {
    BATON_TRY(const std::string type, type_of(*one, "post_processor"));
    if (type == "ByteLevel") continue;
    if (type == "BertProcessing") {
      BATON_TRY(*first, named_id(*one, "cls"));
      BATON_TRY(*last, named_id(*one, "sep"));
      spec->add_bos = spec->add_eos = true;
      continue;
    }
    if (type != "TemplateProcessing") return unsupported("post_processor", type);
    BATON_OK(read_template(*one, spec, first, last));
  }
  return {};
}

Status read_added_tokens(const json* list, TokenizerSpec* spec) {
  if (list == nullptr) return {};
  if (!list->is_array()) return bad("added_tokens", "must be a list");
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    const json& part = (*list)[i];
    BATON_TRY(AddedToken token, read_added(part, where));
    const json* id = member(part, "id");
    if (id == nullptr) return bad(where, "'id' is missing");
    BATON_TRY(token.id, id_of(*id, where));
    spec->added.push_back(std::move(token));
  }
  return {};
}

Status read_model(const json& model, const TokenizerFile& file) {
  // Old files leave the type out; merges then say that it is BPE.
  std::string type = "BPE";
  if (member(model, "type") != nullptr) {
    BATON_TRY(type, text_of(model, "type", "model"));
  }
  if (type != "BPE") return unsupported("model", type);
  if (!file.has_vocab) return bad("model", "'vocab' must be an object of token texts and ids");
  if (!file.has_merges) return bad("model", "'merges' must be a list");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json* value = member(model, key);
    if (value != nullptr && *value != "") return unsupported(fmt::format("model.{}", key), value->dump());
  }
  BATON_TRY(const bool byte_fallback, flag_of(model, "byte_fallback", false, "model"));
  if (byte_fallback) return unsupported("model.byte_fallback", "true");
  if (const json* dropout = member(model, "dropout"); dropout != nullptr && *dropout != 0.0) {
    return unsupported("model.dropout", dropout->dump());
  }
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

}  // namespace

Result<TokenizerSpec> tokenizer_spec_from_json(std::string_view tokenizer_json,
                                               std::string_view tokenizer_config_json) {
  BATON_OK(check_size(tokenizer_json, "tokenizer.json"));
  TokenizerSpec spec;
  const auto file = read_tokenizer_file(tokenizer_json, &spec);
  if (!file) return bad("tokenizer.json", file.error().message);
  const json& rest = file->rest;
  if (!rest.is_object()) return bad("tokenizer.json", "not a JSON object");
  const json* model = member(rest, "model");
  if (model == nullptr || !model->is_object()) return bad("tokenizer.json", "'model' must be an object");
  if (member(*model, "type") != nullptr && *member(*model, "type") == "WordPiece") {
    BATON_OK(place_vocab(file->vocab, &spec));
    BATON_OK(read_word_piece(rest, *file, &spec));
  } else {
    BATON_OK(read_model(*model, *file));
    BATON_OK(place_vocab(file->vocab, &spec));
    BATON_OK(read_normalizer(member(rest, "normalizer"), &spec));
    BATON_OK(read_pretokenizer(member(rest, "pre_tokenizer"), &spec));
    BATON_OK(read_decoder(member(rest, "decoder")));
    BATON_TRY(spec.ignore_merges, flag_of(*model, "ignore_merges", false, "model"));
  }
  int32_t first = -1, last = -1;
  BATON_OK(read_post_processor(member(rest, "post_processor"), &spec, &first, &last));
  BATON_OK(read_added_tokens(member(rest, "added_tokens"), &spec));
  if (const json* unk = member(*model, "unk_token")) {
    if (!unk->is_string()) return bad("model", "'unk_token' must be a string");
    const auto found =
        std::find(spec.tokens.begin(), spec.tokens.end(), std::string_view(unk->get_ref<const std::string&>()));
    if (found == spec.tokens.end()) return bad("model", "'unk_token' is not in the vocabulary");
    spec.unk_id = static_cast<int32_t>(found - spec.tokens.begin());
  }
  if (!tokenizer_config_json.empty()) BATON_OK(read_tokenizer_config(tokenizer_config_json, &spec));
  // What the post-processor puts around the text is what counts, whatever the config calls it.
  if (first >= 0) spec.bos_id = first;
  if (last >= 0) spec.eos_id = last;
  return spec;
}

}  // namespace baton

// A TokenizerSpec from Hugging Face's tokenizer.json and tokenizer_config.json: what their fields mean.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "baton/text/tokenizer_file.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr size_t kFileBytesMax = size_t{256} << 20;

// ---- Typed access with the field in the error.

tl::unexpected<Error> bad(std::string_view where, std::string_view what) {
  return fail(Code::kInvalidInput, fmt::format("{}: {}", where, what));
}

// null and missing are the same here.
const json* member(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<std::string> text_of(const json& object, std::string_view key, std::string_view where) {
  const json* value = member(object, key);
  if (value == nullptr || !value->is_string()) return bad(where, fmt::format("'{}' must be a string", key));
  return value->get<std::string>();
}

Result<bool> flag_of(const json& object, std::string_view key, bool otherwise, std::string_view where) {
  const json* value = member(object, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return bad(where, fmt::format("'{}' must be true or false", key));
  return value->get<bool>();
}

Result<int32_t> id_of(const json& value, std::string_view where) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() >= kTokensMax ||
      (value.is_number_unsigned() && value.get<uint64_t>() >= static_cast<uint64_t>(kTokensMax))) {
    return bad(where, fmt::format("the id must be a whole number from 0 to {}", kTokensMax - 1));
  }
  return value.get<int32_t>();
}

Result<std::string> type_of(const json& part, std::string_view where) {
  if (!part.is_object()) return bad(where, "must be an object");
  return text_of(part, "type", where);
}

tl::unexpected<Error> unsupported(std::string_view where, std::string_view type) {
  return fail(Code::kUnsupported, fmt::format("{} '{}' is not supported: only byte-level BPE tokenizers can be read "
                                              "(as of GPT-2, SmolLM2, Qwen, Llama 3)",
                                              where, type));
}

// A part that may be a Sequence: its members in order.
Result<std::vector<const json*>> sequence_of(const json& part, std::string_view list_key, std::string_view where) {
  std::vector<const json*> flat;
  std::vector<const json*> left{&part};
  while (!left.empty()) {
    const json* one = left.back();
    left.pop_back();
    BATON_TRY(const std::string type, type_of(*one, where));
    if (type != "Sequence") {
      flat.push_back(one);
      continue;
    }
    const json* list = member(*one, list_key);
    if (list == nullptr || !list->is_array()) return bad(where, fmt::format("'{}' must be a list", list_key));
    for (auto it = list->rbegin(); it != list->rend(); ++it) left.push_back(&*it);
  }
  return flat;
}

// ---- The parts.

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

Status read_post_processor(const json* part, TokenizerSpec* spec, int32_t* first, int32_t* last) {
  if (part == nullptr) return {};
  BATON_TRY(const std::vector<const json*> parts, sequence_of(*part, "processors", "post_processor"));
  for (const json* one : parts) {
    BATON_TRY(const std::string type, type_of(*one, "post_processor"));
    if (type == "ByteLevel") continue;
    if (type != "TemplateProcessing") return unsupported("post_processor", type);
    BATON_OK(read_template(*one, spec, first, last));
  }
  return {};
}

Result<AddedToken> read_added(const json& part, std::string_view where) {
  if (!part.is_object()) return bad(where, "must be an object");
  AddedToken token;
  BATON_TRY(token.text, text_of(part, "content", where));
  BATON_TRY(token.special, flag_of(part, "special", false, where));
  BATON_TRY(token.lstrip, flag_of(part, "lstrip", false, where));
  BATON_TRY(token.rstrip, flag_of(part, "rstrip", false, where));
  BATON_TRY(token.single_word, flag_of(part, "single_word", false, where));
  BATON_TRY(token.normalized, flag_of(part, "normalized", !token.special, where));
  return token;
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

// Tokens that only tokenizer_config.json names; those of tokenizer.json stay as they are there.
Status read_added_tokens_decoder(const json& config, TokenizerSpec* spec) {
  const json* decoder = member(config, "added_tokens_decoder");
  if (decoder == nullptr) return {};
  constexpr std::string_view kFile = "tokenizer_config.json: added_tokens_decoder";
  if (!decoder->is_object()) return bad(kFile, "must be an object");
  std::vector<int32_t> known;
  for (const AddedToken& token : spec->added) known.push_back(token.id);
  std::sort(known.begin(), known.end());
  for (const auto& [key, part] : decoder->items()) {
    const std::string where = fmt::format("{}['{}']", kFile, key);
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= kTokensMax)
      return bad(where, fmt::format("not an id from 0 to {}", kTokensMax - 1));
    if (std::binary_search(known.begin(), known.end(), static_cast<int32_t>(id))) continue;
    BATON_TRY(AddedToken token, read_added(part, where));
    token.id = static_cast<int32_t>(id);
    spec->added.push_back(std::move(token));
  }
  return {};
}

Status read_model(const json* model, const TokenizerFile& file) {
  if (model == nullptr || !model->is_object()) return bad("tokenizer.json", "'model' must be an object");
  // Old files leave the type out; merges then say that it is BPE.
  std::string type = "BPE";
  if (member(*model, "type") != nullptr) {
    BATON_TRY(type, text_of(*model, "type", "model"));
  }
  if (type != "BPE") return unsupported("model", type);
  if (!file.has_vocab) return bad("model", "'vocab' must be an object of token texts and ids");
  if (!file.has_merges) return bad("model", "'merges' must be a list");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json* value = member(*model, key);
    if (value != nullptr && *value != "") return unsupported(fmt::format("model.{}", key), value->dump());
  }
  BATON_TRY(const bool byte_fallback, flag_of(*model, "byte_fallback", false, "model"));
  if (byte_fallback) return unsupported("model.byte_fallback", "true");
  if (const json* dropout = member(*model, "dropout"); dropout != nullptr && *dropout != 0.0) {
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

// A special token of tokenizer_config.json: a string, or an object with 'content'. -1: none.
Result<int32_t> config_token(const json& config, std::string_view key, const TokenizerSpec& spec) {
  const json* value = member(config, key);
  if (value == nullptr) return -1;
  const std::string where = fmt::format("tokenizer_config.json: {}", key);
  if (value->is_object()) value = member(*value, "content");
  if (value == nullptr || !value->is_string()) return bad(where, "must be a string or an object with 'content'");
  const std::string& text = value->get_ref<const std::string&>();
  for (const AddedToken& token : spec.added) {
    if (token.text == text) return token.id;
  }
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), std::string_view(text));
  if (found != spec.tokens.end() && !text.empty()) return static_cast<int32_t>(found - spec.tokens.begin());
  return bad(where, fmt::format("'{}' is not in the vocabulary", text));
}

Status read_config(std::string_view text, TokenizerSpec* spec) {
  const json config = json::parse(text, nullptr, false);
  if (config.is_discarded() || !config.is_object()) return bad("tokenizer_config.json", "not a JSON object");
  BATON_OK(read_added_tokens_decoder(config, spec));
  BATON_TRY(spec->bos_id, config_token(config, "bos_token", *spec));
  BATON_TRY(spec->eos_id, config_token(config, "eos_token", *spec));
  BATON_TRY(spec->pad_id, config_token(config, "pad_token", *spec));
  BATON_TRY(const bool add_bos, flag_of(config, "add_bos_token", false, "tokenizer_config.json"));
  BATON_TRY(const bool add_eos, flag_of(config, "add_eos_token", false, "tokenizer_config.json"));
  spec->add_bos = spec->add_bos || (add_bos && spec->bos_id >= 0);
  spec->add_eos = spec->add_eos || (add_eos && spec->eos_id >= 0);
  return {};
}

// nlohmann's parser recurses when a document is destroyed and our SAX reader bounds only its own: refuse before.
bool is_deeper_than(std::string_view text, size_t depth_max) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > depth_max) return true;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<TokenizerSpec> tokenizer_spec_from_json(std::string_view tokenizer_json,
                                               std::string_view tokenizer_config_json) {
  for (const auto& [text, name] :
       {std::pair{tokenizer_json, "tokenizer.json"}, std::pair{tokenizer_config_json, "tokenizer_config.json"}}) {
    if (text.size() > kFileBytesMax) {
      return bad(name, fmt::format("{} bytes: at most {}", text.size(), kFileBytesMax));
    }
  }
  if (is_deeper_than(tokenizer_config_json, kTokenizerDepthMax)) {
    return bad("tokenizer_config.json", fmt::format("nested deeper than {}", kTokenizerDepthMax));
  }
  TokenizerSpec spec;
  const auto file = read_tokenizer_file(tokenizer_json, &spec);
  if (!file) return bad("tokenizer.json", file.error().message);
  const json& rest = file->rest;
  if (!rest.is_object()) return bad("tokenizer.json", "not a JSON object");
  const json* model = member(rest, "model");
  BATON_OK(read_model(model, *file));
  BATON_OK(place_vocab(file->vocab, &spec));
  BATON_OK(read_normalizer(member(rest, "normalizer"), &spec));
  BATON_OK(read_pretokenizer(member(rest, "pre_tokenizer"), &spec));
  BATON_OK(read_decoder(member(rest, "decoder")));
  int32_t first = -1, last = -1;
  BATON_OK(read_post_processor(member(rest, "post_processor"), &spec, &first, &last));
  BATON_TRY(spec.ignore_merges, flag_of(*model, "ignore_merges", false, "model"));
  BATON_OK(read_added_tokens(member(rest, "added_tokens"), &spec));
  if (const json* unk = member(*model, "unk_token")) {
    if (!unk->is_string()) return bad("model", "'unk_token' must be a string");
    const auto found =
        std::find(spec.tokens.begin(), spec.tokens.end(), std::string_view(unk->get_ref<const std::string&>()));
    if (found == spec.tokens.end()) return bad("model", "'unk_token' is not in the vocabulary");
    spec.unk_id = static_cast<int32_t>(found - spec.tokens.begin());
  }
  if (!tokenizer_config_json.empty()) BATON_OK(read_config(tokenizer_config_json, &spec));
  // What the post-processor puts around the text is what counts, whatever the config calls it.
  if (first >= 0) spec.bos_id = first;
  if (last >= 0) spec.eos_id = last;
  return spec;
}

}  // namespace baton

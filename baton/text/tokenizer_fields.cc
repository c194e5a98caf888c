// Fields of tokenizer files, and what tokenizer_config.json says.
#include "baton/text/tokenizer_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "baton/base/terminal.h"

namespace baton::tokenizer_fields {

constexpr size_t kFieldShownMax = 80;
constexpr size_t kFileBytesMax = size_t{256} << 20;

tl::unexpected<Error> bad(std::string_view where, std::string_view what) {
  return fail(Code::kInvalidInput, fmt::format("{}: {}", where, what));
}

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
  return fail(
      Code::kUnsupported,
      fmt::format("{} '{}' is not supported: byte-level BPE (GPT-2, SmolLM2, Qwen, Llama 3), BPE over characters "
                  "(Llama 2, Mistral, Gemma), unigram (T5, XLM-R) and WordPiece (BERT) tokenizers can be read",
                  where, type));
}

Status check_fields(const json& object, std::span<const std::string_view> known, std::string_view where) {
  if (!object.is_object()) return {};
  for (const auto& [key, value] : object.items()) {
    if (value.is_null() || std::find(known.begin(), known.end(), key) != known.end()) continue;
    return fail(Code::kUnsupported,
                fmt::format("{}: nothing here reads the field '{}': the ids could be others than the file's author's",
                            where, terminal_safe(key, kFieldShownMax)));
  }
  return {};
}

namespace {

struct PartFields {
  std::string_view part;  // empty: any
  std::string_view type;
  std::vector<std::string_view> fields;  // beside the type
};

// Fields of published files; trim_offsets, pair, str_rep and those of decoders change no ids.
const std::vector<PartFields>& part_fields() {
  static const std::vector<PartFields> kAll = {
      {"", "ByteLevel", {"add_prefix_space", "trim_offsets", "use_regex"}},
      {"", "Metaspace", {"replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"}},
      {"", "Replace", {"pattern", "content"}},
      {"normalizer", "Sequence", {"normalizers"}},
      {"normalizer", "BertNormalizer", {"clean_text", "handle_chinese_chars", "lowercase", "strip_accents"}},
      {"normalizer", "Strip", {"strip_left", "strip_right"}},
      {"normalizer", "Prepend", {"prepend"}},
      {"normalizer", "Precompiled", {"precompiled_charsmap"}},
      {"pre_tokenizer", "Sequence", {"pretokenizers"}},
      {"pre_tokenizer", "Split", {"pattern", "behavior", "invert"}},
      {"pre_tokenizer", "Digits", {"individual_digits"}},
      {"pre_tokenizer", "Punctuation", {"behavior"}},
      {"pre_tokenizer", "CharDelimiterSplit", {"delimiter"}},
      {"decoder", "Sequence", {"decoders"}},
      {"decoder", "Strip", {"content", "start", "stop"}},
      {"decoder", "WordPiece", {"prefix", "cleanup"}},
      {"post_processor", "Sequence", {"processors"}},
      {"post_processor", "BertProcessing", {"sep", "cls"}},
      {"post_processor", "RobertaProcessing", {"sep", "cls", "trim_offsets", "add_prefix_space"}},
      {"post_processor", "TemplateProcessing", {"single", "pair", "special_tokens"}}};
  return kAll;
}
constexpr std::string_view kTypesAlone[] = {"NFC",          "NFD",
                                            "NFKC",         "NFKD",
                                            "Nmt",          "Lowercase",
                                            "StripAccents", "WhitespaceSplit",
                                            "Whitespace",   "BertPreTokenizer",
                                            "ByteFallback", "Fuse"};

// Other types are refused by whoever reads the part.
Status check_part(const json& part, const std::string& type, std::string_view where) {
  std::vector<std::string_view> known{"type"};
  bool found = std::find(std::begin(kTypesAlone), std::end(kTypesAlone), type) != std::end(kTypesAlone);
  for (const PartFields& one : part_fields()) {
    if (one.type != type || (!one.part.empty() && one.part != where)) continue;
    found = true;
    known.insert(known.end(), one.fields.begin(), one.fields.end());
  }
  return found ? check_fields(part, known, fmt::format("{} {}", where, type)) : Status();
}

}  // namespace

// A part that may be a Sequence: its members in order.
Result<std::vector<const json*>> sequence_of(const json& part, std::string_view list_key, std::string_view where) {
  std::vector<const json*> flat;
  std::vector<const json*> left{&part};
  while (!left.empty()) {
    const json* one = left.back();
    left.pop_back();
    BATON_TRY(const std::string type, type_of(*one, where));
    BATON_OK(check_part(*one, type, where));
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

Status check_size(std::string_view text, std::string_view file) {
  if (text.size() <= kFileBytesMax) return {};
  return bad(file, fmt::format("{} bytes: at most {}", text.size(), kFileBytesMax));
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

namespace {

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

Result<json> parse_tokenizer_config(std::string_view text) {
  BATON_OK(check_size(text, "tokenizer_config.json"));
  if (is_deeper_than(text, kTokenizerDepthMax)) {
    return bad("tokenizer_config.json", fmt::format("nested deeper than {}", kTokenizerDepthMax));
  }
  json config = json::parse(text, nullptr, false);
  if (config.is_discarded() || !config.is_object()) return bad("tokenizer_config.json", "not a JSON object");
  return config;
}

Status read_tokenizer_config(std::string_view text, TokenizerSpec* spec) {
  BATON_TRY(const json config, parse_tokenizer_config(text));
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

}  // namespace baton::tokenizer_fields

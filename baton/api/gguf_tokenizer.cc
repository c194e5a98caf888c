// Keys under tokenizer.ggml to a tokenizer.
#include "baton/api/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace baton {
namespace {

Result<std::vector<std::string_view>> strings_of(const GgufMetadata& metadata, const char* key) {
  BATON_TRY(const GgufArray* array, metadata.array(key));
  if (array == nullptr) return std::vector<std::string_view>();
  if (const auto* strings = std::get_if<std::vector<std::string_view>>(&array->items)) return *strings;
  return fail(Code::kInvalidInput, fmt::format("key '{}' is not an array of strings", key));
}

Result<std::vector<int32_t>> integers_of(const GgufMetadata& metadata, const char* key) {
  BATON_TRY(const GgufArray* array, metadata.array(key));
  std::vector<int32_t> out;
  if (array == nullptr) return out;
  const auto convert = [&](const auto& items) -> Status {
    out.reserve(items.size());
    for (const auto item : items) {
      if (item < 0 || static_cast<uint64_t>(item) > std::numeric_limits<int32_t>::max()) {
        return fail(Code::kInvalidInput, fmt::format("key '{}' holds {} at index {}", key, item, out.size()));
      }
      out.push_back(static_cast<int32_t>(item));
    }
    return {};
  };
  if (const auto* items = std::get_if<std::vector<int64_t>>(&array->items)) {
    BATON_OK(convert(*items));
  } else if (const auto* unsigned_items = std::get_if<std::vector<uint64_t>>(&array->items)) {
    BATON_OK(convert(*unsigned_items));
  } else {
    return fail(Code::kInvalidInput, fmt::format("key '{}' is not an array of integers", key));
  }
  return out;
}

Result<std::vector<double>> reals_of(const GgufMetadata& metadata, const char* key) {
  BATON_TRY(const GgufArray* array, metadata.array(key));
  std::vector<double> out;
  if (array == nullptr) return out;
  if (const auto* items = std::get_if<std::vector<double>>(&array->items)) return *items;
  if (const auto* items = std::get_if<std::vector<int64_t>>(&array->items)) {
    out.assign(items->begin(), items->end());
    return out;
  }
  return fail(Code::kInvalidInput, fmt::format("key '{}' is not an array of numbers", key));
}

Result<std::string> bytes_of(const GgufMetadata& metadata, const char* key) {
  BATON_TRY(const GgufArray* array, metadata.array(key));
  std::string out;
  if (array == nullptr) return out;
  const auto convert = [&](const auto& items) {
    out.reserve(items.size());
    for (const auto item : items) out.push_back(static_cast<char>(item));
  };
  if (const auto* items = std::get_if<std::vector<int64_t>>(&array->items)) {
    convert(*items);
  } else if (const auto* unsigned_items = std::get_if<std::vector<uint64_t>>(&array->items)) {
    convert(*unsigned_items);
  } else {
    return fail(Code::kInvalidInput, fmt::format("key '{}' is not an array of bytes", key));
  }
  return out;
}

// Two spellings of one id: what files say, and what the format's description says.
Status read_ids(const GgufMetadata& metadata, GgufTokenizerKeys* keys) {
  const std::pair<const char*, std::optional<int64_t>*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &keys->bos_id},       {"tokenizer.ggml.eos_token_id", &keys->eos_id},
      {"tokenizer.ggml.eot_token_id", &keys->eot_id},       {"tokenizer.ggml.eom_token_id", &keys->eom_id},
      {"tokenizer.ggml.unknown_token_id", &keys->unk_id},   {"tokenizer.ggml.padding_token_id", &keys->pad_id},
      {"tokenizer.ggml.separator_token_id", &keys->sep_id}, {"tokenizer.ggml.seperator_token_id", &keys->sep_id},
      {"tokenizer.ggml.cls_token_id", &keys->cls_id}};
  for (const auto& [key, into] : ids) {
    BATON_TRY(const auto value, metadata.unsigned_integer(key));
    if (value) *into = static_cast<int64_t>(std::min<uint64_t>(*value, uint64_t{1} << 40));
  }
  return {};
}

}  // namespace

Result<Tokenizer> tokenizer_from_gguf(const GgufMetadata& metadata) {
  GgufTokenizerKeys keys;
  const auto text = [&](const char* key, std::string_view* into) -> Status {
    BATON_TRY(const auto value, metadata.text(key));
    if (value) *into = *value;
    return {};
  };
  BATON_OK(text("tokenizer.ggml.model", &keys.model));
  if (keys.model.empty())
    return fail(Code::kInvalidInput, "key 'tokenizer.ggml.model' is missing: the file has no tokenizer");
  BATON_OK(text("tokenizer.ggml.pre", &keys.pre));
  BATON_TRY(keys.tokens, strings_of(metadata, "tokenizer.ggml.tokens"));
  BATON_TRY(keys.merges, strings_of(metadata, "tokenizer.ggml.merges"));
  BATON_TRY(const std::vector<int32_t> types, integers_of(metadata, "tokenizer.ggml.token_type"));
  keys.token_types = types;
  BATON_TRY(const std::vector<double> scores, reals_of(metadata, "tokenizer.ggml.scores"));
  keys.scores = scores;
  BATON_TRY(const std::string charsmap, bytes_of(metadata, "tokenizer.ggml.precompiled_charsmap"));
  keys.charsmap = charsmap;
  BATON_OK(text("general.name", &keys.name));
  BATON_OK(text("tokenizer.baton.source", &keys.source));
  BATON_OK(text("tokenizer.baton.spaces", &keys.spaces));
  BATON_TRY(const auto leading, metadata.unsigned_integer("tokenizer.baton.leading_spaces"));
  if (leading) keys.leading_spaces = static_cast<int64_t>(std::min<uint64_t>(*leading, uint64_t{1} << 40));
  const std::pair<const char*, std::span<const int32_t>*> lists[] = {
      {"tokenizer.baton.lstrip_ids", &keys.lstrip_ids},
      {"tokenizer.baton.rstrip_ids", &keys.rstrip_ids},
      {"tokenizer.baton.single_word_ids", &keys.single_word_ids},
      {"tokenizer.baton.normalized_ids", &keys.normalized_ids},
      {"tokenizer.baton.kept_ids", &keys.kept_ids}};
  std::vector<int32_t> ids[std::size(lists)];
  for (size_t i = 0; i < std::size(lists); ++i) {
    BATON_TRY(ids[i], integers_of(metadata, lists[i].first));
    *lists[i].second = ids[i];
  }
  BATON_OK(read_ids(metadata, &keys));
  const std::pair<const char*, std::optional<bool>*> flags[] = {
      {"tokenizer.ggml.add_bos_token", &keys.add_bos},
      {"tokenizer.ggml.add_eos_token", &keys.add_eos},
      {"tokenizer.ggml.add_sep_token", &keys.add_sep},
      {"tokenizer.ggml.add_space_prefix", &keys.add_space_prefix},
      {"tokenizer.ggml.remove_extra_whitespaces", &keys.remove_extra_whitespaces},
      {"tokenizer.ggml.normalizer.lowercase", &keys.lowercase},
      {"tokenizer.ggml.normalizer.strip_accents", &keys.strip_accents},
      {"tokenizer.baton.add_prefix_space", &keys.add_prefix_space},
      {"tokenizer.baton.ranked_merges", &keys.ranked_merges},
      {"tokenizer.baton.normalize_nfc", &keys.normalize_nfc}};
  for (const auto& [key, into] : flags) {
    BATON_TRY(*into, metadata.boolean(key));
  }
  BATON_TRY(const TokenizerSpec spec, tokenizer_spec_from_gguf(keys));
  return Tokenizer::create(spec);
}

void put_tokenizer(const GgufTokenizer& tokenizer, GgufWriter& writer) {
  const GgufTokenizerKeys& keys = tokenizer.keys;
  const auto key = [](std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); };
  const auto own = [](std::string_view name) { return fmt::format("tokenizer.baton.{}", name); };
  const auto put_flag = [&](const std::string& name, std::optional<bool> flag) {
    if (flag) writer.put_bool(name, *flag);
  };
  const auto put_id = [&](std::string_view name, std::optional<int64_t> id) {
    if (id) writer.put_u32(key(name), static_cast<uint32_t>(*id));
  };
  const auto put_list = [&](std::string_view name, std::span<const int32_t> ids) {
    if (!ids.empty()) writer.put_i32s(own(name), {ids.begin(), ids.end()});
  };
  writer.put_string(key("model"), keys.model);
  writer.put_string(key("pre"), keys.pre);
  writer.put_strings(key("tokens"), keys.tokens);
  if (!keys.scores.empty()) writer.put_f32s(key("scores"), {keys.scores.begin(), keys.scores.end()});
  writer.put_i32s(key("token_type"), {keys.token_types.begin(), keys.token_types.end()});
  if (!keys.merges.empty()) writer.put_strings(key("merges"), keys.merges);
  put_id("bos_token_id", keys.bos_id);
  put_id("eos_token_id", keys.eos_id);
  put_id("eot_token_id", keys.eot_id);
  put_id("eom_token_id", keys.eom_id);
  put_id("unknown_token_id", keys.unk_id);
  put_id("padding_token_id", keys.pad_id);
  put_flag(key("add_bos_token"), keys.add_bos);
  put_flag(key("add_eos_token"), keys.add_eos);
  put_flag(key("add_space_prefix"), keys.add_space_prefix);
  put_flag(key("remove_extra_whitespaces"), keys.remove_extra_whitespaces);
  if (!keys.charsmap.empty()) writer.put_bytes(key("precompiled_charsmap"), keys.charsmap);
  put_flag(own("normalize_nfc"), keys.normalize_nfc);
  put_flag(own("add_prefix_space"), keys.add_prefix_space);
  if (!keys.source.empty()) writer.put_string(own("source"), keys.source);
  if (!keys.spaces.empty()) writer.put_string(own("spaces"), keys.spaces);
  put_flag(own("ranked_merges"), keys.ranked_merges);
  if (keys.leading_spaces) writer.put_u32(own("leading_spaces"), static_cast<uint32_t>(*keys.leading_spaces));
  put_list("lstrip_ids", keys.lstrip_ids);
  put_list("rstrip_ids", keys.rstrip_ids);
  put_list("single_word_ids", keys.single_word_ids);
  put_list("normalized_ids", keys.normalized_ids);
  put_list("kept_ids", keys.kept_ids);
}

}  // namespace baton

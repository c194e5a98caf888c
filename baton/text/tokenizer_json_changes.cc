// The normalizer and the decoder of a tokenizer.json.
#include <fmt/format.h>

#include <limits>

#include "baton/text/base64.h"
#include "baton/text/tokenizer_fields.h"

namespace baton::tokenizer_fields {
namespace {

using Kind = NormalizerStep::Kind;

Result<NormalizerStep> read_replace(const json& part) {
  constexpr std::string_view kWhere = "normalizer Replace";
  NormalizerStep step;
  const json* pattern = member(part, "pattern");
  if (pattern == nullptr || !pattern->is_object()) return bad(kWhere, "'pattern' must be an object");
  const bool is_regex = member(*pattern, "Regex") != nullptr;
  step.kind = is_regex ? Kind::kReplaceRegex : Kind::kReplace;
  BATON_TRY(step.pattern, text_of(*pattern, is_regex ? "Regex" : "String", kWhere));
  BATON_TRY(step.content, text_of(part, "content", kWhere));
  return step;
}

Result<NormalizerStep> read_bert(const json& part) {
  constexpr std::string_view kWhere = "normalizer BertNormalizer";
  NormalizerStep step;
  step.kind = Kind::kBert;
  BATON_TRY(step.bert.clean, flag_of(part, "clean_text", true, kWhere));
  BATON_TRY(step.bert.split_ideographs, flag_of(part, "handle_chinese_chars", true, kWhere));
  BATON_TRY(step.bert.lower_case, flag_of(part, "lowercase", true, kWhere));
  BATON_TRY(step.bert.strip_accents, flag_of(part, "strip_accents", step.bert.lower_case, kWhere));
  return step;
}

Result<NormalizerStep> read_changes_step(const json& part, const std::string& type) {
  NormalizerStep step;
  constexpr std::pair<std::string_view, Kind> kPlain[] = {{"NFC", Kind::kNfc},
                                                          {"NFD", Kind::kNfd},
                                                          {"NFKC", Kind::kNfkc},
                                                          {"NFKD", Kind::kNfkd},
                                                          {"Nmt", Kind::kNmt},
                                                          {"Lowercase", Kind::kLowercase},
                                                          {"StripAccents", Kind::kStripAccents}};
  for (const auto& [name, kind] : kPlain) {
    if (type != name) continue;
    step.kind = kind;
    return step;
  }
  if (type == "Replace") return read_replace(part);
  if (type == "BertNormalizer") return read_bert(part);
  if (type == "Strip") {
    step.kind = Kind::kStrip;
    BATON_TRY(step.left, flag_of(part, "strip_left", true, "normalizer Strip"));
    BATON_TRY(step.right, flag_of(part, "strip_right", true, "normalizer Strip"));
    return step;
  }
  if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    step.prefix = PrefixRule::kAlways;
    BATON_TRY(step.content, text_of(part, "prepend", "normalizer Prepend"));
    return step;
  }
  if (type == "Precompiled") {
    step.kind = Kind::kClusters;
    BATON_TRY(const std::string text, text_of(part, "precompiled_charsmap", "normalizer Precompiled"));
    if (!from_base64(text, &step.content)) return bad("normalizer Precompiled", "'precompiled_charsmap' is no base64");
    return step;
  }
  return unsupported("normalizer", type);
}

// How many spaces a Strip takes from the front.
Result<size_t> read_strip(const json& part) {
  constexpr std::string_view kWhere = "decoder Strip";
  BATON_TRY(const std::string content, text_of(part, "content", kWhere));
  const json* start = member(part, "start");
  const json* stop = member(part, "stop");
  if (start == nullptr || !start->is_number_unsigned() || stop == nullptr || !stop->is_number_unsigned()) {
    return bad(kWhere, "'start' and 'stop' must be whole numbers");
  }
  if (content != " " || *stop != 0) return unsupported("decoder Strip of another thing than spaces in front", content);
  return start->get<size_t>();
}

bool marks_become_spaces(const json& part) {
  const json* pattern = member(part, "pattern");
  const json* text = pattern == nullptr ? nullptr : member(*pattern, "String");
  const json* content = member(part, "content");
  return text != nullptr && *text == std::string(kSpaceMark) && content != nullptr && *content == " ";
}

}  // namespace

Status read_normalizer(const json* part, TokenizerSpec* spec) {
  if (part == nullptr) return {};
  BATON_TRY(const std::vector<const json*> parts, sequence_of(*part, "normalizers", "normalizer"));
  for (const json* one : parts) {
    BATON_TRY(const std::string type, type_of(*one, "normalizer"));
    BATON_TRY(NormalizerStep step, read_changes_step(*one, type));
    spec->normalizer.push_back(std::move(step));
  }
  if (spec->normalizer.size() == 1 && spec->normalizer[0].kind == Kind::kNfc) {
    spec->normalizer.clear();
    spec->normalize_nfc = true;
  }
  return {};
}

Status read_decoder(const json* part, std::string_view model, size_t* leading_spaces) {
  *leading_spaces = 0;
  const bool pieces = model == "BPE" || model == "Unigram";
  if (part == nullptr) {
    if (pieces) return unsupported("decoder", "null");
    return {};
  }
  BATON_TRY(const std::vector<const json*> parts, sequence_of(*part, "decoders", "decoder"));
  bool marks = false;
  for (const json* one : parts) {
    BATON_TRY(const std::string type, type_of(*one, "decoder"));
    if (pieces && type == "Metaspace") {
      BATON_TRY(const PrefixRule rule, prefix_rule_of(*one, "decoder Metaspace"));
      *leading_spaces = rule == PrefixRule::kNever ? 0 : 1;
      marks = true;
    } else if (pieces && type == "Replace" && marks_become_spaces(*one)) {
      marks = true;
    } else if (pieces && type == "Strip") {
      BATON_TRY(*leading_spaces, read_strip(*one));
    } else if (!(pieces && (type == "ByteFallback" || type == "Fuse")) && type != model) {
      return unsupported("decoder", type);
    }
  }
  if (pieces && !marks) return unsupported("decoder", "without Metaspace or Replace of its marks");
  return {};
}

}  // namespace baton::tokenizer_fields

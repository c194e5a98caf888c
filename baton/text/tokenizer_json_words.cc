// The pre_tokenizer of a tokenizer.json, as steps.
#include <fmt/format.h>

#include "baton/text/tokenizer_fields.h"

namespace baton::tokenizer_fields {
namespace {

using Behavior = PretokenizerStep::Behavior;

// As the regex of the reference takes \w.
constexpr std::string_view kWordOrMarks =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";
constexpr std::string_view kPunctuation = R"([!-/:-@\[-`{-~\p{P}])";

Result<Behavior> behavior_of(const json& part, std::string_view where, Behavior otherwise) {
  if (member(part, "behavior") == nullptr) return otherwise;
  BATON_TRY(const std::string behavior, text_of(part, "behavior", where));
  constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {{"Isolated", Behavior::kIsolated},
                                                                  {"Removed", Behavior::kRemoved},
                                                                  {"MergedWithPrevious", Behavior::kMergedWithPrevious},
                                                                  {"MergedWithNext", Behavior::kMergedWithNext},
                                                                  {"Contiguous", Behavior::kContiguous}};
  for (const auto& [name, value] : kBehaviors) {
    if (behavior == name) return value;
  }
  return bad(where, fmt::format("behavior '{}' is unknown", behavior));
}

Result<PretokenizerStep> read_split(const json& part) {
  constexpr std::string_view kWhere = "pre_tokenizer Split";
  PretokenizerStep step;
  const json* pattern = member(part, "pattern");
  if (pattern == nullptr || !pattern->is_object()) return bad(kWhere, "'pattern' must be an object");
  const bool is_regex = member(*pattern, "Regex") != nullptr;
  step.kind = is_regex ? PretokenizerStep::Kind::kRegex : PretokenizerStep::Kind::kLiteral;
  BATON_TRY(step.pattern, text_of(*pattern, is_regex ? "Regex" : "String", kWhere));
  BATON_TRY(step.invert, flag_of(part, "invert", false, kWhere));
  if (member(part, "behavior") == nullptr) return bad(kWhere, "'behavior' is missing");
  BATON_TRY(step.behavior, behavior_of(part, kWhere, Behavior::kIsolated));
  return step;
}

Result<PretokenizerStep> read_metaspace(const json& part) {
  constexpr std::string_view kWhere = "pre_tokenizer Metaspace";
  PretokenizerStep step;
  step.kind = PretokenizerStep::Kind::kMetaspace;
  BATON_TRY(step.pattern, text_of(part, "replacement", kWhere));
  if (step.pattern != kSpaceMark) return unsupported("pre_tokenizer Metaspace with replacement", step.pattern);
  BATON_TRY(step.prefix, prefix_rule_of(part, kWhere));
  BATON_TRY(step.splits, flag_of(part, "split", true, kWhere));
  return step;
}

PretokenizerStep by_pattern(std::string_view pattern, Behavior behavior) {
  PretokenizerStep step;
  step.pattern = pattern;
  step.behavior = behavior;
  return step;
}

Status read_byte_level(const json& part, TokenizerSpec* spec) {
  constexpr std::string_view kWhere = "pre_tokenizer ByteLevel";
  BATON_TRY(spec->add_prefix_space, flag_of(part, "add_prefix_space", true, kWhere));
  BATON_TRY(const bool use_regex, flag_of(part, "use_regex", true, kWhere));
  if (spec->add_prefix_space && !spec->pretokenizer.empty()) {
    return fail(Code::kUnsupported, "pre_tokenizer ByteLevel with add_prefix_space after another step");
  }
  if (!use_regex) return {};
  BATON_TRY(PretokenizerPreset gpt2, pretokenizer_preset("gpt-2"));
  spec->pretokenizer.push_back(std::move(gpt2.steps[0]));
  return {};
}

// Every kind but ByteLevel.
Result<PretokenizerStep> read_words_step(const json& part, const std::string& type) {
  if (type == "Split") return read_split(part);
  if (type == "Metaspace") return read_metaspace(part);
  if (type == "Digits") {
    BATON_TRY(const bool individual, flag_of(part, "individual_digits", false, "pre_tokenizer Digits"));
    return by_pattern(individual ? R"(\p{N})" : R"(\p{N}+)", Behavior::kIsolated);
  }
  if (type == "WhitespaceSplit") return by_pattern(R"(\s+)", Behavior::kRemoved);
  if (type == "Whitespace") {
    PretokenizerStep step = by_pattern(kWordOrMarks, Behavior::kRemoved);
    step.invert = true;
    return step;
  }
  if (type == "Punctuation") {
    BATON_TRY(const Behavior behavior, behavior_of(part, "pre_tokenizer Punctuation", Behavior::kIsolated));
    return by_pattern(kPunctuation, behavior);
  }
  if (type == "BertPreTokenizer") {
    PretokenizerStep step;
    step.kind = PretokenizerStep::Kind::kBertWords;
    return step;
  }
  if (type == "CharDelimiterSplit") {
    PretokenizerStep step;
    step.kind = PretokenizerStep::Kind::kLiteral;
    step.behavior = Behavior::kRemoved;
    BATON_TRY(step.pattern, text_of(part, "delimiter", "pre_tokenizer CharDelimiterSplit"));
    return step;
  }
  return unsupported("pre_tokenizer", type);
}

}  // namespace

Result<PrefixRule> prefix_rule_of(const json& part, std::string_view where) {
  BATON_TRY(const bool adds, flag_of(part, "add_prefix_space", true, where));
  if (!adds) return PrefixRule::kNever;
  if (member(part, "prepend_scheme") == nullptr) return PrefixRule::kAlways;
  BATON_TRY(const std::string scheme, text_of(part, "prepend_scheme", where));
  if (scheme == "always") return PrefixRule::kAlways;
  if (scheme == "first") return PrefixRule::kFirst;
  if (scheme == "never") return PrefixRule::kNever;
  return bad(where, fmt::format("prepend_scheme '{}' is unknown", scheme));
}

Status read_pretokenizer(const json* part, TokenizerSpec* spec, bool* byte_level) {
  *byte_level = false;
  if (part == nullptr) return {};
  BATON_TRY(const std::vector<const json*> parts, sequence_of(*part, "pretokenizers", "pre_tokenizer"));
  for (const json* one : parts) {
    BATON_TRY(const std::string type, type_of(*one, "pre_tokenizer"));
    if (*byte_level) {
      return fail(Code::kUnsupported, fmt::format("pre_tokenizer '{}' after ByteLevel is not supported", type));
    }
    if (type == "ByteLevel") {
      *byte_level = true;
      BATON_OK(read_byte_level(*one, spec));
      continue;
    }
    BATON_TRY(PretokenizerStep step, read_words_step(*one, type));
    spec->pretokenizer.push_back(std::move(step));
  }
  return {};
}

}  // namespace baton::tokenizer_fields

// The split rules known by name, and patterns in the words of PCRE2.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "baton/text/pretokenizer.h"

namespace baton {
namespace {

// The rules by name. Alternatives are tried left to right; \s+(?!\S) gives the last space of a run to the next word.
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                                     R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlamaBpe = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                                       R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kOneDigit = R"(\p{N})";

// Unicode White_Space; PCRE2's \s under UCP also has U+180E.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Oniguruma's \w; PCRE2 10.42's leaves out marks.
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";

}  // namespace

bool is_own_pattern(std::string_view pattern) {
  return pattern == kGpt2 || pattern == kQwen2 || pattern == kQwen35 || pattern == kLlamaBpe || pattern == kOneDigit;
}

Result<std::string> to_pcre2_pattern(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  const auto refuse = [&](std::string_view what, size_t at) {
    return fail(Code::kUnsupported, fmt::format("pre-tokenizer pattern: {} at byte {} is not supported", what, at));
  };
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      switch (next) {
        case 's':
        case 'w': {
          const std::string_view set = next == 's' ? kWhiteSpace : kWord;
          out.append(in_class ? "" : "[").append(set).append(in_class ? "" : "]");
          break;
        }
        case 'S':
        case 'W':
          if (in_class) return refuse("a negated set within a class", i);
          out.append("[^").append(next == 'S' ? kWhiteSpace : kWord).append("]");
          break;
        case 'h':
        case 'H':
        case 'b':
        case 'B':
        case 'C':
        case 'X':
        case 'R':
        case 'K':
        case 'G':
        case 'Q':
        case 'E':
          return refuse(fmt::format("\\{}", next), i - 1);
        default:
          out.append({'\\', next});
      }
    } else if (in_class) {
      if (c == '[') return refuse("a class within a class", i);
      if (c == '&' && pattern.substr(i, 2) == "&&") return refuse("class intersection", i);
      if (c == ']') in_class = false;
      out.push_back(c);
    } else if (c == '[') {
      in_class = true;
      out.push_back(c);
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out.push_back(pattern[++i]);
      // A bracket that is first in its class is a literal in PCRE2 and ends an empty class elsewhere.
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') return refuse("an empty class", i + 1);
    } else if (pattern.substr(i, 2) == "(*") {
      return refuse("(*", i);
    } else if (pattern.substr(i, 3) == "(?C" || pattern.substr(i, 3) == "(?R" || pattern.substr(i, 3) == "(?&" ||
               pattern.substr(i, 3) == "(?P") {
      return refuse(pattern.substr(i, 3), i);
    } else {
      out.push_back(c);
    }
  }
  return out;
}

Result<PretokenizerPreset> pretokenizer_preset(std::string_view name) {
  const auto regex = [](std::string_view pattern) {
    PretokenizerStep step;
    step.pattern = pattern;
    return step;
  };
  PretokenizerPreset preset;
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (is_one_of({"gpt-2", "gpt2", "default", ""})) {
    preset.steps = {regex(kGpt2)};
  } else if (is_one_of({"smollm", "smollm2"})) {
    preset.steps = {regex(kOneDigit), regex(kGpt2)};
  } else if (is_one_of({"qwen2", "deepseek-r1-qwen"})) {
    preset.steps = {regex(kQwen2)};
    preset.normalize_nfc = true;
  } else if (is_one_of({"qwen35", "qwen3.5"})) {
    preset.steps = {regex(kQwen35)};
    preset.normalize_nfc = true;
  } else if (is_one_of({"llama-bpe", "llama3", "llama-v3"})) {
    preset.steps = {regex(kLlamaBpe)};
    preset.ignore_merges = true;
    preset.add_bos = true;
  } else {
    return fail(Code::kUnsupported,
                fmt::format("tokenizer.ggml.pre '{}': no such split rule here (there are gpt-2, smollm, qwen2, qwen35, "
                            "llama-bpe)",
                            name));
  }
  return preset;
}

}  // namespace baton

// Words of options, and their errors.
#include "baton/unit/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "baton/base/affinity.h"
#include "baton/state/rows.h"

namespace baton {
namespace {

constexpr std::string_view kKvInName = "-kv-";

std::string list_of(std::span<const UnitOption> known) {
  if (known.empty()) return "it has no options";
  std::string text = "it has";
  for (const UnitOption& option : known) text += fmt::format(" {}={}", option.key, option.range());
  return text;
}

// One way to write each number: an option is told from another by its text.
bool read_number(std::string_view text, uint64_t& value) {
  if (text.size() > 1 && text.front() == '0') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_one_of(std::string_view value, std::string_view values) {
  while (!values.empty()) {
    const size_t bar = std::min(values.find('|'), values.size());
    if (values.substr(0, bar) == value) return true;
    values.remove_prefix(std::min(bar + 1, values.size()));
  }
  return false;
}

bool takes(const UnitOption& option, std::string_view value) {
  if (option.accepts != nullptr) return option.accepts(value);
  if (option.most == 0) return is_one_of(value, option.values);
  uint64_t number = 0;
  return read_number(value, number) && number >= option.least && number <= option.most;
}

}  // namespace

UnitOption UnitOption::one_of(std::string_view key, std::string values, std::string_view meaning,
                              std::string otherwise) {
  return {.key = key, .values = std::move(values), .meaning = meaning, .otherwise = std::move(otherwise)};
}

UnitOption UnitOption::number(std::string_view key, uint64_t least, uint64_t most, std::string_view meaning,
                              std::string otherwise) {
  return {.key = key, .least = least, .most = most, .meaning = meaning, .otherwise = std::move(otherwise)};
}

UnitOption UnitOption::text(std::string_view key, std::string what, std::string_view meaning, std::string otherwise,
                            bool (*accepts)(std::string_view)) {
  return {
      .key = key, .values = std::move(what), .meaning = meaning, .otherwise = std::move(otherwise), .accepts = accepts};
}

std::string UnitOption::range() const {
  if (most == 0) return values;
  return most < UINT32_MAX ? fmt::format("{}..{}", least, most) : fmt::format("{}..", least);
}

UnitOption threads_option() {
  return UnitOption::number("threads", 1, 1024, "threads of its own", "those of the program, or physical cores");
}

UnitOption cores_option() {
  UnitOption option = UnitOption::text(
      "cores", "LIST, as 0-3,8",
      "cores that its threads are kept on, ascending; without threads= one thread each; Linux only",
      "wherever the system puts them", [](std::string_view text) { return !parse_cores(text).empty(); });
  option.lists = true;
  return option;
}

Result<UnitOptions> UnitOptions::parse(std::string_view unit, std::string_view words,
                                       std::span<const UnitOption> known) {
  UnitOptions options;
  for (size_t begin = 0; !words.empty() && begin <= words.size();) {
    std::string_view word = words.substr(begin, words.find(',', begin) - begin);
    begin += word.size() + 1;
    if (word.empty()) {
      return fail(Code::kInvalidInput,
                  fmt::format("unit {}: '{}' has a comma with no option on one side; {}", unit, words, list_of(known)));
    }
    const size_t equals = std::min(word.find('='), word.size());
    std::string_view key = word.substr(0, equals);
    const auto alone = std::find_if(known.begin(), known.end(), [](const UnitOption& o) { return o.bare; });
    const bool bare = alone != known.end() && equals == word.size() && takes(*alone, word);
    if (bare) key = alone->key;
    const auto option = std::find_if(known.begin(), known.end(), [&](const UnitOption& o) { return o.key == key; });
    if (option == known.end()) {
      if (alone != known.end() && equals == word.size() && word.find_first_not_of("-0123456789") == word.npos)
        return fail(Code::kInvalidInput,
                    fmt::format("unit {}: {}: write {}={}", unit, word, alone->key, alone->range()));
      return fail(Code::kInvalidInput, fmt::format("unit {} has no option '{}'; {}", unit, key, list_of(known)));
    }
    // "cores=0,2-3": what follows without a "=" is the list's.
    while (option->lists && begin < words.size()) {
      const std::string_view next = words.substr(begin, words.find(',', begin) - begin);
      if (next.empty() || next.find('=') != std::string_view::npos) break;
      word = words.substr(static_cast<size_t>(word.data() - words.data()), word.size() + 1 + next.size());
      begin += next.size() + 1;
    }
    const std::string_view value = bare ? word : word.substr(std::min(equals + 1, word.size()));
    if (!bare && (equals == word.size() || !takes(*option, value))) {
      return fail(Code::kInvalidInput, fmt::format("unit {}: {}: write {}={}", unit, word, key, option->range()));
    }
    if (!options.values_.emplace(key, value).second) {
      return fail(Code::kInvalidInput, fmt::format("unit {}: {} is given twice", unit, key));
    }
    if (option->bare) options.bare_ = option->key;
  }
  return options;
}

UnitOption kv_option(std::string otherwise) {
  return UnitOption::one_of(kKvOption, kv_type_words(), "type of keys and values", std::move(otherwise));
}

Result<DType> kv_of(const UnitOptions& given, DType otherwise) {
  const std::string_view word = given.text(kKvOption);
  if (word.empty()) return otherwise;
  return kv_type(word);
}

std::string with_kv_word(std::string what, DType kv, DType own) {
  if (kv != own) what.append(kKvInName).append(kv_word(kv));
  return what;
}

std::string_view kv_word_of(std::string_view arithmetic) {
  const size_t at = arithmetic.find(kKvInName);
  if (at == std::string_view::npos) return {};
  arithmetic.remove_prefix(at + kKvInName.size());
  return arithmetic.substr(0, arithmetic.find('/'));
}

float kv_logit_tolerance(DType kv) {
  switch (kv) {
    case DType::kBF16:
      return 0.1f;
    case DType::kQ8_0:
      return 0.2f;
    case DType::kQ4_0:
      return 4.0f;
    default:
      return 0.0f;
  }
}

std::string_view UnitOptions::text(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::string_view() : found->second;
}

uint64_t UnitOptions::number(std::string_view key) const {
  uint64_t value = 0;
  read_number(text(key), value);
  return value;
}

std::string UnitOptions::words() const {
  std::string all;
  for (const auto& [key, value] : values_) {
    const std::string name = key == bare_ ? "" : key + "=";
    all += fmt::format("{}{}{}", all.empty() ? "" : ",", name, value);
  }
  return all;
}

}  // namespace baton

// Parsing of commands and settings.
#include "baton/cli/chat_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdlib>
#include <string>

namespace baton::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

constexpr ChatCommand kCommands[] = {
    {"/help", "[COMMAND]", "this list, or one command"},
    {"/bye", "", "leave (also /exit, /quit, Ctrl-D)"},
    {"/clear", "", "forget the conversation; the system prompt stays"},
    {"/drop", "[N]",
     "forget the oldest question and its answer (or N of them); asks a question again that did not fit"},
    {"/history", "", "show the conversation"},
    {"/load", "FILE", "go on with a saved conversation"},
    {"/retry", "", "ask the last question again, with other draws"},
    {"/save", "FILE", "save the conversation: its state in FILE, its messages in FILE.json"},
    {"/set", "NAME VALUE", "change a setting; without arguments show them"},
    {"/show", "", "model, units, context used and left, settings"},
    {"/system", "[TEXT]", "set the system prompt; \"\"\" takes several lines; none: show it; \"\" takes it away"},
    {"/think", "on|off|auto", "thinking before the answer, where the model's template knows it"},
    {"/undo", "", "take back the last question and its answer"},
};
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"/exit", "/bye"}, {"/quit", "/bye"}, {"/?", "/help"}, {"/regenerate", "/retry"}};

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Of inserting, deleting, replacing a character and swapping two neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const size_t same = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + same});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

// The whole text as a number: true when it is one.
template <std::integral T>
bool number_of(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}
// libc++ has no from_chars for these.
bool number_of(std::string_view text, float* value) {
  if (text.empty() || text.find_first_not_of("-.0123456789eE") != std::string_view::npos) return false;
  const std::string ended(text);
  char* end = nullptr;
  *value = std::strtof(ended.c_str(), &end);
  return end == ended.c_str() + ended.size();
}

// A number within the bounds.
template <class T>
Status read_number(std::string_view name, std::string_view text, T least, T most, T* into) {
  T value{};
  if (!number_of(text, &value) || !(value >= least && value <= most)) {
    return fail(Code::kInvalidInput, fmt::format("{} takes a number from {} to {}, not '{}'", name, least, most, text));
  }
  *into = value;
  return {};
}

struct Setting {
  std::string_view name;
  Status (*set)(SamplingFlags&, std::string_view name, std::string_view value);
  std::string (*show)(const SamplingFlags&);
};

#define BATON_SETTING(name, field, least, most)                                                          \
  Setting {                                                                                              \
    name,                                                                                                \
        [](SamplingFlags& flags, std::string_view setting, std::string_view value) {                     \
          return read_number<decltype(flags.field)>(setting, value, least, most, &flags.field);          \
        },                                                                                               \
        [](const SamplingFlags& flags) { return fmt::format("{:g}", static_cast<double>(flags.field)); } \
  }
constexpr Setting kSettings[] = {
    BATON_SETTING("temp", temperature, 0, 100),
    BATON_SETTING("top_k", top_k, 0, 1 << 30),
    BATON_SETTING("top_p", top_p, 0.0001f, 1),
    BATON_SETTING("min_p", min_p, 0, 1),
    BATON_SETTING("repeat_penalty", repeat_penalty, 0.01f, 100),
    BATON_SETTING("repeat_last_n", repeat_last_n, -1, 1 << 20),
    BATON_SETTING("presence_penalty", presence_penalty, -100, 100),
    BATON_SETTING("frequency_penalty", frequency_penalty, -100, 100),
    Setting{"seed",
            [](SamplingFlags& flags, std::string_view setting, std::string_view value) {
              return read_number<int64_t>(setting, value, 0, INT64_MAX, &flags.seed);
            },
            [](const SamplingFlags& flags) { return fmt::format("{}", flags.seed); }},
    BATON_SETTING("n", predict, -1, 1 << 30),
};
#undef BATON_SETTING

}  // namespace

std::span<const ChatCommand> chat_commands() { return kCommands; }

std::string nearest_word(std::string_view word, std::span<const std::string_view> words) {
  std::string_view best;
  size_t least = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string_view each : words) {
    const size_t distance = word.size() > 2 && each.starts_with(word) ? 1 : edit_distance(word, each);
    if (distance >= least) continue;
    least = distance;
    best = each;
  }
  return std::string(best);
}

std::optional<ParsedCommand> parse_command(std::string_view text) {
  const std::string_view line = trimmed(text);
  if (line.size() < 2 || line[0] != '/') return std::nullopt;
  const size_t end = std::min(line.find_first_of(kBlanks), line.size());
  const std::string_view word = line.substr(0, end);
  const bool is_word = word == "/?" || std::all_of(word.begin() + 1, word.end(), [](unsigned char c) {
                         return std::isalpha(c) != 0 || c == '-' || c == '_';
                       });
  if (!is_word) return std::nullopt;
  ParsedCommand parsed;
  parsed.word = word;
  parsed.argument = trimmed(line.substr(end));
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto& [alias, name] : kAliases) {
    if (lower == alias) lower = name;
  }
  std::vector<std::string_view> names;
  for (const ChatCommand& command : kCommands) {
    names.push_back(command.name);
    if (lower == command.name) parsed.name = lower;
  }
  if (parsed.name != "/system" && line.find('\n') != std::string::npos) return std::nullopt;
  if (parsed.name.empty()) parsed.nearest = nearest_word(lower, names);
  return parsed;
}

Status set_sampling(SamplingFlags& flags, std::string_view name, std::string_view value) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  if (wanted == "temperature") wanted = "temp";
  if (wanted == "predict") wanted = "n";
  std::vector<std::string_view> names;
  for (const Setting& setting : kSettings) {
    names.push_back(setting.name);
    if (wanted == setting.name) return setting.set(flags, setting.name, value);
  }
  const std::string nearest = nearest_word(wanted, names);
  return fail(Code::kInvalidInput,
              fmt::format("no setting '{}'{}; there are: {}", name,
                          nearest.empty() ? "" : fmt::format(", did you mean {}?", nearest), setting_names()));
}

std::string sampling_text(const SamplingFlags& flags) {
  std::string text;
  for (const Setting& setting : kSettings)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", setting.name, setting.show(flags));
  return text;
}

std::string setting_names() {
  std::string text;
  for (const Setting& setting : kSettings) text += fmt::format("{}{}", text.empty() ? "" : ", ", setting.name);
  return text;
}

}  // namespace baton::cli

// Parsing of commands and settings.
#include "baton/cli/chat_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "baton/base/terminal.h"

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
  std::string_view name, meaning;
  std::string (*range)();
  Status (*set)(SamplingFlags&, std::string_view name, std::string_view value);
  std::string (*show)(const SamplingFlags&);
};

#define BATON_SETTING(name, field, least, most, meaning)                                                 \
  Setting {                                                                                              \
    name, meaning, [] { return fmt::format("{} to {}", least, most); },                                  \
        [](SamplingFlags& flags, std::string_view setting, std::string_view value) {                     \
          return read_number<decltype(flags.field)>(setting, value, least, most, &flags.field);          \
        },                                                                                               \
        [](const SamplingFlags& flags) { return fmt::format("{:g}", static_cast<double>(flags.field)); } \
  }
constexpr Setting kSettings[] = {
    BATON_SETTING("temp", temperature, 0, 100, "0 takes the likeliest token; higher draws more freely"),
    BATON_SETTING("top_k", top_k, 0, 1 << 30, "draw among the k likeliest; 0: all"),
    BATON_SETTING("top_p", top_p, 0.0001f, 1, "draw among the likeliest up to this sum; 1: all"),
    BATON_SETTING("min_p", min_p, 0, 1, "draw among those at least this likely, relative to the likeliest; 0: all"),
    BATON_SETTING("repeat_penalty", repeat_penalty, 0.01f, 100,
                  "logits of tokens drawn lately are divided by it; 1: off"),
    BATON_SETTING("repeat_last_n", repeat_last_n, -1, 1 << 20, "tokens that the penalties look at; 0: none, -1: all"),
    BATON_SETTING("presence_penalty", presence_penalty, -100, 100, "taken off logits of tokens drawn lately; 0: off"),
    BATON_SETTING("frequency_penalty", frequency_penalty, -100, 100, "the same, for each time it was drawn; 0: off"),
    Setting{"seed", "of the draws", [] { return fmt::format("{} to {}", 0, INT64_MAX); },
            [](SamplingFlags& flags, std::string_view setting, std::string_view value) {
              return read_number<int64_t>(setting, value, 0, INT64_MAX, &flags.seed);
            },
            [](const SamplingFlags& flags) { return fmt::format("{}", flags.seed); }},
    BATON_SETTING("n", predict, -1, 1 << 30, "tokens of an answer at most; -1: until its end"),
};
#undef BATON_SETTING

// Files and folders whose path begins with `typed`; a folder's ends in a slash.
void offer_files(std::string_view typed, std::vector<std::string>& words) {
  const size_t slash = typed.rfind('/');
  const std::string folder(slash == std::string_view::npos ? "" : typed.substr(0, slash + 1));
  const std::string_view begun = typed.substr(folder.size());
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(begun) || (begun.empty() && name.starts_with('.'))) continue;
    // Not to be shown, nor typed; an argument has no blanks at its ends.
    if (terminal_safe(name, name.size()) != name || name.find_first_of("\n\t") != std::string::npos) continue;
    if (name.ends_with(' ') || (folder.empty() && name.starts_with(' '))) continue;
    std::error_code ignored;
    words.push_back(folder + name + (entry->is_directory(ignored) ? "/" : ""));
  }
  std::sort(words.begin(), words.end());
}

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

std::string settings_help() {
  std::string text;
  for (const Setting& setting : kSettings)
    text += fmt::format("  {:<20} {} ({})\n", setting.name, setting.meaning, setting.range());
  return text;
}

std::string setting_names() {
  std::string text;
  for (const Setting& setting : kSettings) text += fmt::format("{}{}", text.empty() ? "" : ", ", setting.name);
  return text;
}

Completions complete_chat(std::string_view before) {
  Completions found;
  const size_t blank = before.find(' ');
  if (!before.starts_with('/')) return found;
  const auto offer = [&](std::string_view word) {
    if (word.starts_with(before.substr(found.from))) found.words.emplace_back(word);
  };
  if (blank == std::string_view::npos) {
    for (const ChatCommand& command : kCommands) offer(command.name);
    return found;
  }
  const std::string_view name = before.substr(0, blank);
  found.from = std::min(before.find_first_not_of(' ', blank), before.size());
  if (name == "/save" || name == "/load") {
    offer_files(before.substr(found.from), found.words);
  } else if (before.find(' ', found.from) != std::string_view::npos) {
    return found;
  } else if (name == "/set") {
    for (const Setting& setting : kSettings) offer(setting.name);
  } else if (name == "/help") {
    for (const ChatCommand& command : kCommands) offer(command.name);
  } else if (name == "/think") {
    for (const char* word : {"on", "off", "auto"}) offer(word);
  }
  return found;
}

}  // namespace baton::cli

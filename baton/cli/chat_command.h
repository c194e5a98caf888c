// The commands of a chat: lines that begin with a slash and a word, and what they may set.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/cli/command.h"
#include "baton/cli/sampling_flags.h"

namespace baton::cli {

struct ChatCommand {
  std::string_view name;   // with its slash
  std::string_view usage;  // of the arguments
  std::string_view help;
};

// In the order of /help.
std::span<const ChatCommand> chat_commands();

struct ParsedCommand {
  std::string name;           // of the list; empty: unknown
  std::string argument;       // what follows the name, without blanks around it
  std::string word, nearest;  // as typed, and the command it may have meant (empty: none is near)
};

// Empty when `text` is no command but something to say: it does not begin with a slash and a word (leading blanks
// allowed), has several lines (but for a quoted argument of /system), or its first word is a path.
std::optional<ParsedCommand> parse_command(std::string_view text);

// The one of `words` that `word` is a misspelling or a beginning of; empty: none.
std::string nearest_word(std::string_view word, std::span<const std::string_view> words);

// `/set NAME VALUE`; the error says what is wrong and what there is.
Status set_sampling(SamplingFlags& flags, std::string_view name, std::string_view value);
// "temp 0.8, top_k 40, ..."
std::string sampling_text(const SamplingFlags& flags);
std::string setting_names();
// A line each: what it does, and its range.
std::string settings_help();

// What Tab offers behind `before`, the text in front of the cursor: each word may stand there from `from` on, in the
// place of what was typed. Commands, their settings, and the files of /save and /load.
struct Completions {
  size_t from = 0;
  std::vector<std::string> words;
};
Completions complete_chat(std::string_view before);

}  // namespace baton::cli

// Suggestions by edit distance and by the tables of words that other programs use.
#include "baton/cli/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "baton/base/near_name.h"
#include "baton/cli/other_words.h"
#include "baton/cli/prompt.h"

namespace baton::cli {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App* find_command(const CLI::App& app, std::string_view word) {
  for (const CLI::App* command : commands_of(app)) {
    if (command->get_name() == word) return command;
  }
  return nullptr;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

const CLI::Option* find_long(const CLI::App& app, std::string_view name) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& one : option->get_lnames()) {
      if (one == name) return option;
    }
  }
  return nullptr;
}

const CLI::Option* find_short(const CLI::App& app, char letter) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& one : option->get_snames()) {
      if (one.size() == 1 && one[0] == letter) return option;
    }
  }
  return nullptr;
}

bool takes_value(const CLI::Option& option) { return option.get_expected_max() > 0 && option.get_type_size_max() > 0; }
bool takes_number(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
}

bool begins_number(std::string_view text) {
  const size_t at = !text.empty() && text[0] == '-' ? 1 : 0;
  return text.size() > at && (std::isdigit(static_cast<unsigned char>(text[at])) != 0 || text[at] == '.');
}

// The commands that have the flag, where this one does not.
std::string commands_with(const CLI::App& app, std::string_view flag) {
  constexpr size_t kNamedMax = 3;
  const CLI::App* program = &app;
  while (program->get_parent() != nullptr) program = program->get_parent();
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(*program)) {
    if (command != &app && flag.starts_with("--") && find_long(*command, flag.substr(2)) != nullptr)
      names.push_back(fmt::format("`baton {}`", command->get_name()));
  }
  if (names.empty()) return {};
  const bool one = names.size() == 1;
  if (names.size() > kNamedMax) names.resize(kNamedMax);
  return fmt::format("{} {} it", fmt::join(names, ", "), one ? "has" : "have");
}

std::string no_flag(const CLI::App& app, const std::string& flag) {
  std::string text = fmt::format("no flag '{}'", flag);
  if (const std::string_view meaning = meaning_of_flag(app, flag); !meaning.empty())
    return text + fmt::format(" here: {}", meaning);
  if (const std::string others = commands_with(app, flag); !others.empty())
    return text + fmt::format(" here: {}", others);
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  // Two letters of five are another word: --keep is no --help.
  constexpr size_t kShort = 5;
  const std::string word = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  const std::string near = near_name(word, names, word.size() <= kShort ? 1 : word.size());
  if (!near.empty()) text += fmt::format("; did you mean --{}?", near);
  return text;
}

// What a word of the command line gives: an option with its value, which may be the next word.
struct GivenFlag {
  const CLI::Option* option = nullptr;  // that takes a value
  std::string name;                     // as it is spoken of: "-n (--predict)" where -n was typed
  std::string_view value;
  bool value_follows = false;
};

// Letters behind one dash: flags, of which the last may take what follows as its value.
std::optional<std::string> cluster_problem(const CLI::App& app, const std::string& word, GivenFlag* given) {
  for (size_t i = 1; i < word.size(); ++i) {
    const CLI::Option* option = find_short(app, word[i]);
    if (option == nullptr) return no_flag(app, word);
    if (!takes_value(*option)) {
      // -h among others would end in the help, and exit with 0.
      if (word[i] == 'h' && word.size() > 2) return no_flag(app, word);
      continue;
    }
    const std::string_view rest = std::string_view(word).substr(i + 1);
    if (!rest.empty() && !meaning_of_flag(app, word).empty()) return no_flag(app, word);
    if (!rest.empty() && takes_number(*option) && !begins_number(rest)) return no_flag(app, word);
    *given = {option, fmt::format("-{} ({})", word[i], option->get_name()), rest, rest.empty()};
    return std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::string> long_flag_problem(const CLI::App& app, const std::string& word, GivenFlag* given) {
  const size_t equals = word.find('=');
  const std::string flag = word.substr(0, equals);
  const CLI::Option* option = find_long(app, flag.substr(2));
  if (option == nullptr) return no_flag(app, flag);
  if (!takes_value(*option)) return std::nullopt;
  // The parser would take the next word for the value.
  if (equals == word.size() - 1) return fmt::format("{} has no value; an empty one is written {} \"\"", word, flag);
  *given = {option, flag, {}, equals == std::string::npos};
  if (!given->value_follows) given->value = std::string_view(word).substr(equals + 1);
  return std::nullopt;
}

// "8,,9": the parser takes an empty item for none.
std::optional<std::string> list_problem(const GivenFlag& given) {
  if (given.option == nullptr || given.option->get_delimiter() == '\0') return std::nullopt;
  const std::string_view list = given.value;
  const char delimiter = given.option->get_delimiter();
  const bool empty_item = list.find(std::string(2, delimiter)) != std::string_view::npos ||
                          (!list.empty() && (list.front() == delimiter || list.back() == delimiter));
  if (!empty_item) return std::nullopt;
  return fmt::format("{}: '{}' has an item with nothing in it", given.name, list);
}

// "010": the parser takes it for 8, and "08" for no number.
std::optional<std::string> octal_problem(const GivenFlag& given) {
  if (given.option == nullptr || !takes_number(*given.option)) return std::nullopt;
  for (size_t at = 0; at < given.value.size();) {
    const size_t end = std::min(given.value.find(',', at), given.value.size());
    std::string_view item = given.value.substr(at, end - at);
    if (item.starts_with('-') || item.starts_with('+')) item.remove_prefix(1);
    const bool digits = item.find_first_not_of("0123456789") == std::string_view::npos;
    if (item.size() > 1 && item[0] == '0' && digits)
      return fmt::format("{}: '{}' begins with 0; write it without", given.name, given.value);
    at = end + 1;
  }
  return std::nullopt;
}

std::optional<std::string> command_problem(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = command_names(app);
  if (word.find(' ') != std::string::npos || word.ends_with('?'))
    return fmt::format("'{}' is not a command; to ask it: baton run \"{}\"", word, word);
  std::string text = fmt::format("no command '{}'", word);
  if (const std::string_view meaning = meaning_of_command(word); !meaning.empty())
    return text + fmt::format("; see {}", meaning);
  if (const std::string near = near_name(word, names); !near.empty())
    return text + fmt::format("; did you mean {}?", near);
  return text + fmt::format("; there are: {}", fmt::join(names, ", "));
}

// What was meant by a word too many.
std::string unexpected_hint(const CLI::App& program, const std::string& word) {
  const CLI::App* run = find_command(program, "run");
  const bool prompt = run->parsed();
  if (!prompt && !find_command(program, "chat")->parsed()) return "";
  std::vector<std::string> words = prompt ? run->get_option("prompt")->results() : std::vector<std::string>();
  words.push_back(word);
  for (const std::string& each : words) {
    if (const std::string hint = model_hint(each); !hint.empty()) return ": " + hint;
  }
  return prompt ? ": put a prompt of several words in quotes" : ": a first question is given with -p";
}

std::string upper_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

bool is_number(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

// "0.000000" as the parser prints bounds.
std::string short_number(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// "--temp: Value abc not in range 0.000000 to 100.000000".
std::optional<std::string> range_text(const std::string& what) {
  const size_t value_at = what.find(": Value "), range_at = what.find(" not in range ");
  const size_t to_at = what.rfind(" to ");
  if (value_at == std::string::npos || range_at == std::string::npos || to_at == std::string::npos) return std::nullopt;
  const std::string flag = what.substr(0, value_at), value = what.substr(value_at + 8, range_at - value_at - 8);
  const std::string low = short_number(what.substr(range_at + 14, to_at - range_at - 14));
  const std::string high = short_number(what.substr(to_at + 4));
  if (!is_number(value)) return fmt::format("{}: '{}' is not a number; give one from {} to {}", flag, value, low, high);
  return fmt::format("{}: {} is not from {} to {}", flag, value, low, high);
}

// "--predict: ..." as "-n (--predict): ..." where only the letter was typed.
std::string as_typed(const CLI::App& program, const std::string& what, const std::vector<std::string>& words) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  const size_t end = what.find(':');
  const CLI::Option* option = what.starts_with("--") && end != std::string::npos
                                  ? find_long(*app, std::string_view(what).substr(2, end - 2))
                                  : nullptr;
  if (option == nullptr) return what;
  for (const std::string& word : words) {
    for (const std::string& letter : option->get_snames()) {
      if (word.starts_with("-" + letter))
        return fmt::format("-{} ({}){}", letter, what.substr(0, end), what.substr(end));
    }
  }
  return what;
}

}  // namespace

std::optional<std::string> usage_problem(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* app = &program;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") return std::nullopt;
    if (word.size() < 2 || word[0] != '-' || begins_number(word)) {
      const CLI::App* command = find_command(*app, word);
      if (command != nullptr) {
        app = command;
      } else if (!commands_of(*app).empty()) {
        return command_problem(*app, word);
      }
      continue;
    }
    GivenFlag given;
    if (auto problem =
            word.starts_with("--") ? long_flag_problem(*app, word, &given) : cluster_problem(*app, word, &given)) {
      return problem;
    }
    if (given.value_follows && ++i < words.size()) given.value = words[i];
    if (auto problem = list_problem(given)) return problem;
    if (auto problem = octal_problem(given)) return problem;
  }
  if (words.empty()) return fmt::format("no command; there are: {}", fmt::join(command_names(program), ", "));
  return std::nullopt;
}

std::string usage_text(const CLI::App& program, const CLI::Error& error, const std::vector<std::string>& words) {
  const std::string what = as_typed(program, error.what(), words);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    const auto left = program.remaining(true);
    // What is left over stands in the parser's order: the last word first.
    const std::string word = left.empty() ? what : left.back();
    return fmt::format("unexpected '{}'{}", word, unexpected_hint(program, word));
  }
  // "--to: foo not in {a,b}".
  if (const size_t at = what.find(" not in {"); at != std::string::npos && what.ends_with('}')) {
    std::string names = what.substr(at + 9, what.size() - at - 10);
    std::replace(names.begin(), names.end(), ',', '|');
    return fmt::format("{}; there are: {}", what.substr(0, at) + " is none of its values", names);
  }
  // "--ab: At least 2 required but received 1".
  if (const size_t at = what.find(": At least "); at != std::string::npos) {
    const size_t number = at + 11, end = what.find(' ', number), got = what.rfind(' ');
    return fmt::format("{}: takes at least {} values, not {}", what.substr(0, at), what.substr(number, end - number),
                       what.substr(got + 1));
  }
  // Of an argument; a flag's name says itself what is missing.
  constexpr std::string_view kRequired = " is required";
  if (what.ends_with(kRequired) && !what.starts_with('-') && what.find(' ') == what.size() - kRequired.size())
    return fmt::format("missing: {}; see --help", upper_case(what.substr(0, what.find(' '))));
  if (auto text = range_text(what)) return *std::move(text);
  constexpr std::string_view kConversion = "Could not convert: ";
  if (what.starts_with(kConversion)) {
    const size_t at = what.find(" = ");
    if (at != std::string::npos) {
      return fmt::format("{}: '{}' is not what it takes (a number)",
                         what.substr(kConversion.size(), at - kConversion.size()), what.substr(at + 3));
    }
  }
  return what;
}

}  // namespace baton::cli

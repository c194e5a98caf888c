// Suggestions by edit distance and by a table of words that other programs use.
#include "baton/cli/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "baton/cli/prompt.h"

namespace baton::cli {
namespace {

// Words of llama.cpp, Ollama and their like, and what to do here.
constexpr std::pair<std::string_view, std::string_view> kOtherFlags[] = {
    {"-hf", "models are not fetched by name: give a GGUF file or a folder with -m"},
    {"-hfr", "models are not fetched by name: give a GGUF file or a folder with -m"},
    {"--hf-repo", "models are not fetched by name: give a GGUF file or a folder with -m"},
    {"-mu", "models are not fetched: give a GGUF file or a folder with -m"},
    {"-ngl", "--prefill and --decode choose the units; `baton units` lists them"},
    {"--n-gpu-layers", "--prefill and --decode choose the units; `baton units` lists them"},
    {"--gpu-layers", "--prefill and --decode choose the units; `baton units` lists them"},
    {"-dev", "--prefill and --decode choose the units; `baton units` lists them"},
    {"--device", "--prefill and --decode choose the units; `baton units` lists them"},
    {"--num-predict", "-n, --predict"},
    {"--max-tokens", "-n, --predict"},
    {"--temperature", "--temp"},
    {"--num-ctx", "-c, --ctx-size"},
    {"--ctx", "-c, --ctx-size"},
    {"--context", "-c, --ctx-size"},
    {"-tb", "-t, for both phases"},
    {"--threads-batch", "-t, for both phases"},
    {"-sys", "--system"},
    {"--system-prompt", "--system"},
    {"-cnv", "the command `baton chat`"},
    {"--conversation", "the command `baton chat`"},
    {"-i", "the command `baton chat`"},
    {"--interactive", "the command `baton chat`"},
    {"--prompt-cache", "--save-state and --load-state"},
    {"-r", "--stop"},
    {"--reverse-prompt", "--stop"},
    {"--jinja", "the model's own chat template is always used"},
    {"--no-mmap", "weights are always mapped"},
    {"--mlock", "weights are always mapped"},
    {"-fa", "attention has one form here"},
    {"--flash-attn", "attention has one form here"},
    {"-ctk", "each unit chooses the type of its cache"},
    {"-ctv", "each unit chooses the type of its cache"},
};
constexpr std::pair<std::string_view, std::string_view> kOtherCommands[] = {
    {"serve", "run or chat: there is no server"},
    {"server", "run or chat: there is no server"},
    {"generate", "run"},
    {"ask", "run"},
    {"cli", "run or chat"},
    {"pull", "-m: models are not fetched by name, a GGUF file or a folder is given"},
    {"show", "inspect"},
    {"list", "units, or inspect for a model"},
    {"ps", "units"},
    {"ppl", "perplexity"},
    {"help", "--help"},
    {"version", "--version"},
};

template <class Table>
std::string_view look_up(const Table& table, std::string_view word) {
  for (const auto& [name, meaning] : table) {
    if (name == word) return meaning;
  }
  return {};
}

// Insertions, deletions, replacements and exchanged neighbours between two short words.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost.back().back();
}

// The nearest name, when it is near: a third of the letters may differ, or the word begins it.
std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  constexpr size_t kWordMax = 40;
  std::string best;
  size_t least = word.size() / 3 + 1;
  if (word.size() > kWordMax) return best;
  for (const std::string& name : names) {
    const bool begins = word.size() >= 4 && name.starts_with(word);
    const size_t apart = begins ? 1 : distance(word, name);
    if (apart >= least && !(best.empty() && apart == least && apart <= 2 && word.size() > 3)) continue;
    least = apart;
    best = name;
  }
  return best;
}

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

std::string no_flag(const CLI::App& app, const std::string& flag) {
  std::string text = fmt::format("no flag '{}'", flag);
  if (const std::string_view meaning = look_up(kOtherFlags, flag); !meaning.empty())
    return text + fmt::format(" here: {}", meaning);
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  if (const std::string near = nearest(flag, names); !near.empty()) text += fmt::format("; did you mean {}?", near);
  return text;
}

// Letters behind one dash: flags, of which the last may take what follows as its value.
std::optional<std::string> cluster_problem(const CLI::App& app, const std::string& word, bool* value_follows) {
  for (size_t i = 1; i < word.size(); ++i) {
    const CLI::Option* option = find_short(app, word[i]);
    if (option == nullptr) return no_flag(app, word);
    if (!takes_value(*option)) {
      // -h among others would end in the help, and exit with 0.
      if (word[i] == 'h' && word.size() > 2) return no_flag(app, word);
      continue;
    }
    const std::string_view rest = std::string_view(word).substr(i + 1);
    *value_follows = rest.empty();
    if (!rest.empty() && !look_up(kOtherFlags, word).empty()) return no_flag(app, word);
    if (!rest.empty() && takes_number(*option) && !begins_number(rest)) return no_flag(app, word);
    return std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::string> command_problem(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = command_names(app);
  if (word.find(' ') != std::string::npos || word.ends_with('?'))
    return fmt::format("'{}' is not a command; to ask it: baton run \"{}\"", word, word);
  std::string text = fmt::format("no command '{}'", word);
  if (const std::string_view meaning = look_up(kOtherCommands, word); !meaning.empty())
    return text + fmt::format("; see {}", meaning);
  if (const std::string near = nearest(word, names); !near.empty())
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

// "INT:INT in [1 - 1024]" as "N (1 to 1024)".
std::string readable_type(const std::string& type) {
  const auto kind = [](std::string_view name) -> std::string {
    return name.starts_with("INT") || name.starts_with("UINT") ? "N"
           : name.starts_with("FLOAT")                         ? "X"
                                                               : std::string(name);
  };
  const size_t at = type.find(" in [");
  const size_t dash = type.rfind(" - ");
  if (at != std::string::npos && dash != std::string::npos && dash > at && type.ends_with(']')) {
    const std::string low = type.substr(at + 5, dash - at - 5), high = type.substr(dash + 3, type.size() - dash - 4);
    const bool bound = std::strtod(high.c_str(), nullptr) < 1e9;
    return fmt::format("{} ({} {})", kind(type), low, bound ? "to " + high : "or more");
  }
  if (const size_t set = type.find(":{"); set != std::string::npos && type.ends_with('}')) {
    std::string names = type.substr(set + 2, type.size() - set - 3);
    std::replace(names.begin(), names.end(), ',', '|');
    return names;
  }
  return kind(type);
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_option_text().empty() || option->get_type_size() == 0)
      return CLI::Formatter::make_option_opts(option);
    std::string text = " " + readable_type(option->get_type_name());
    if (!option->get_default_str().empty()) text += fmt::format(" [{}]", option->get_default_str());
    return text;
  }
};

constexpr std::pair<const char*, const char*> kExamples[] = {
    {"run", R"(examples:
  baton run "What is a compiler?"
  baton run -m model.gguf --prefill ref --decode cpu --verify-bridge all "Hello"
  baton run -m model.gguf -f letter.txt --json > answer.json
  echo "What is a tree?" | baton run -m model.gguf -n 100 --temp 0.7
  git diff | baton run -m model.gguf "Summarize this change." -f -
  baton run --raw "A long document" -n 0 --save-state document.state
  baton run --load-state document.state " And a question about it"
an answer that goes round in a circle: --repeat-penalty 1.1, as chat has it (run has none unless asked)
a prompt and -f together: the prompt, an empty line, the file (-f -: what is piped in))"},
    {"chat", R"(examples:
  baton chat -m model.gguf
  baton chat -m model.gguf --system "Answer in one sentence." -c 8192)"},
    {"inspect", R"(examples:
  baton inspect model.gguf
  baton inspect --all model.gguf
  baton inspect -m model.gguf --unit ane --json)"},
    {"convert", R"(example:
  baton convert a-hugging-face-folder model.gguf --type BF16)"},
    {"quantize", R"(example:
  baton quantize model.gguf small.gguf Q4_K_M)"},
    {"bench", R"(examples:
  baton bench
  baton bench -m model.gguf -p 512 -n 128 -r 6
  baton bench -m model.gguf --ab "-t 1" "-t 2")"},
    {"perplexity", R"(example:
  baton perplexity -m model.gguf --text text.txt --reference source.gguf)"},
    {"state", R"(examples:
  baton state show document.state
  baton state convert --help)"},
};

constexpr const char* kFooter = R"(environment:
  BATON_MODELS        folder of the bundled model
  BATON_CPU_KERNELS   kernels of unit cpu: scalar, avx2, avx512, ... (default: the best)
  BATON_ANE           of unit ane: docs/ane.md
  BATON_COREML, BATON_COREML_UNITS, _SEQ, _TIMEOUT, _CACHE
                      of unit coreml: docs/coreml.md
exit codes:
  0 done   1 failed, or the output could not be written   2 wrong usage
  130 interrupted   141 who read the output left
`baton COMMAND --help` shows the flags of a command, with examples.)";

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
    bool value_follows = false;
    if (word.starts_with("--")) {
      const size_t equals = word.find('=');
      const std::string flag = word.substr(0, equals);
      const CLI::Option* option = find_long(*app, flag.substr(2));
      if (option == nullptr) return no_flag(*app, flag);
      // The parser would take the next word for the value.
      if (equals == word.size() - 1 && takes_value(*option)) {
        return fmt::format("{} has no value; an empty one is written {} \"\"", word, flag);
      }
      value_follows = equals == std::string::npos && takes_value(*option);
    } else if (auto problem = cluster_problem(*app, word, &value_follows)) {
      return problem;
    }
    if (value_follows) ++i;
  }
  if (words.empty()) return fmt::format("no command; there are: {}", fmt::join(command_names(program), ", "));
  return std::nullopt;
}

std::string usage_text(const CLI::App& program, const CLI::Error& error) {
  const std::string what = error.what();
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

void decorate_help(CLI::App& program) {
  HelpFormatter formatter;
  formatter.column_width(38);
  const auto help = [formatter](const CLI::App* app, const std::string& name, CLI::AppFormatMode mode) {
    return formatter.make_help(app, name, mode);
  };
  const auto set = [&](const auto& self, CLI::App& app) -> void {
    app.formatter_fn(help);
    for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) self(self, *command);
  };
  set(set, program);
  program.footer(kFooter);
  for (const auto& [name, examples] : kExamples) program.get_subcommand(name)->footer(examples);
}

}  // namespace baton::cli

// Help for people: readable ranges, examples, environment and exit codes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "baton/cli/paths.h"
#include "baton/cli/usage.h"

namespace baton::cli {
namespace {

// "INT:INT in [1 - 1024]" as "N (1 to 1024)".
std::string readable_type(const std::string& type) {
  const auto kind = [](std::string_view name) -> std::string {
    return name.starts_with("INT") || name.starts_with("UINT") ? "N"
           : name.starts_with("FLOAT")                         ? "X"
           : name == "MODEL-FILE" || name == kNamedType        ? "MODEL"
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
    {"batch", R"(example:
  baton batch -m model.gguf requests.jsonl answers.jsonl
  a line of requests.jsonl, as OpenAI's batch files have it:
  {"custom_id": "a1", "method": "POST", "url": "/v1/chat/completions",
   "body": {"model": "any", "messages": [{"role": "user", "content": "What is a fern?"}], "max_tokens": 100}}
the same command again goes on where the last one ended; exit code 0: every line has an answer (docs/batch.md))"},
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
    {"imatrix", R"(example:
  baton imatrix -m model.gguf --text text.txt --out model.imatrix)"},
    {"embed", R"(examples:
  baton embed -m all-MiniLM-L6-v2 "a first text" "a second one"
  baton embed -m model.gguf --json < texts.txt
  baton embed -m model.gguf --query "What is a tree?" "A tree is a plant." "Cats sleep."
  baton embed -m model.gguf --cosines "good morning" "guten Morgen" "a stone")"},
    {"ladder", R"(example:
  baton ladder -m model.gguf --text text.txt --types Q8_0,Q4_K_M --html ladder.html)"},
    {"export", R"(example:
  baton export coreml model.gguf packages --seq 64,256)"},
    {"state", R"(examples:
  baton state show document.state
  baton state convert --help)"},
};

constexpr const char* kFooter = R"(environment:
  BATON_MODELS        folder of the bundled model
                      (what a unit does is chosen behind its name: baton units --help-options)
exit codes:
  0 done   1 failed, or the output could not be written   2 wrong usage
  130 interrupted   143, 129 asked to end (SIGTERM, SIGHUP)   141 who read the output left
`baton COMMAND --help` shows the flags of a command, with examples.)";

}  // namespace

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

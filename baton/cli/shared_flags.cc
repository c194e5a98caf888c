// One way to give a model, threads and files.
#include "baton/cli/shared_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "baton/api/units.h"
#include "baton/cli/paths.h"
#include "baton/state/rows.h"

namespace baton::cli {

void add_model(CLI::App& app, std::string& model, const std::string& text) {
  CLI::Option* positional = takes_path(app.add_option("model", model, text), PathKind::kBundledModel);
  takes_path(app.add_option("-m,--model", model, "the same"), PathKind::kBundledModel)->excludes(positional);
}

void add_threads(CLI::App& app, uint32_t& threads) {
  app.add_option("-t,--threads", threads, "threads; 0: physical cores")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
}

CLI::Option* add_kv(CLI::App& app, std::string& kv, const std::string& name, const std::string& text) {
  std::vector<std::string> words;
  for (const KvType& type : kKvTypes) words.emplace_back(type.word);
  const std::string own =
      fmt::format("type of keys and values, of units whose options do not say: {} (default: the unit's; f16 on cpu)",
                  fmt::join(words, ", "));
  const CLI::IsMember member(words, CLI::ignore_case);
  const auto check = [member](std::string& word) {
    std::string problem = member(word);
    if (problem.empty()) return problem;
    // A type that some units alone have, and that --kv therefore does not take.
    std::string small = CLI::detail::to_lower(word);
    const std::vector<std::string> units = units_with_kv(small);
    if (units.empty()) return problem;
    return fmt::format("{} is an option of the unit: {}:{}={}", word, units.front(), kKvOption, small);
  };
  return app.add_option(name, kv, text.empty() ? own : text)
      ->transform(CLI::Validator(check, member.get_description()));
}

CLI::Option* add_lora(CLI::App& app, std::vector<std::string>& lora, const std::string& more) {
  return app
      .add_option(
          "--lora", lora,
          fmt::format("LoRA adapter{}, a PEFT folder or a GGUF file, with its strength: PATH[=SCALE]; repeatable",
                      more))
      ->allow_extra_args(false);
}

Result<std::vector<AdapterChoice>> settle_lora(const std::vector<std::string>& lora) {
  std::vector<AdapterChoice> adapters;
  for (const std::string& text : lora) {
    auto choice = parse_adapter(text);
    if (!choice) return fail(std::move(choice).error().in("--lora"));
    adapters.push_back(*std::move(choice));
  }
  return adapters;
}

CLI::Validator real_range(double least, double most) {
  const auto check = [least, most](std::string& text) {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return std::string();
    return fmt::format("Value {} not in range {} to {}", text, least, most);
  };
  return CLI::Validator(check, fmt::format("FLOAT in [{} - {}]", least, most));
}

bool settle_arguments(const std::string& model, std::vector<std::string*> arguments,
                      const std::vector<std::string>& names) {
  if (!model.empty()) {
    if (!arguments.back()->empty()) {
      fmt::print(stderr, "baton: {} is given twice: as an argument and with -m\n", names.front());
      return false;
    }
    for (size_t i = arguments.size() - 1; i > 0; --i) *arguments[i] = *arguments[i - 1];
    *arguments.front() = model;
  }
  std::vector<std::string> missing;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i]->empty()) missing.push_back(names[i]);
  }
  if (missing.empty()) return true;
  fmt::print(stderr, "baton: missing: {}; see --help\n", fmt::join(missing, ", "));
  return false;
}

}  // namespace baton::cli

// `baton ladder MODEL`: quantized copies of a model, compared and measured.
#include "baton/bench/ladder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "baton/api/units.h"
#include "baton/base/machine.h"
#include "baton/base/output_file.h"
#include "baton/bench/ladder_report.h"
#include "baton/cli/child_memory.h"
#include "baton/cli/command.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/page_info.h"
#include "baton/cli/paths.h"
#include "baton/cli/shared_flags.h"
#include "baton/hub/resolve.h"

namespace baton::cli {
namespace {

struct LadderFlags {
  LadderOptions options;
  std::string model, text, keep, html, output = "md";
};

// A line on a terminal; elsewhere only the steps, not each tensor or window.
void show_progress(const std::string& text, std::string& last_step) {
  if (::isatty(2) != 0) return progress(text);
  const std::string step = text.substr(0, text.find(": "));
  if (step != last_step) fmt::print(stderr, "baton: {}\n", step);
  last_step = step;
}

std::optional<uint64_t> memory_of_run(const LadderFlags& flags, const std::filesystem::path& model) {
  std::string ids;
  for (uint32_t i = 0; i < flags.options.prefill_tokens; ++i) ids += fmt::format("{}{}", i == 0 ? "" : ",", i % 97);
  std::vector<std::string> arguments = {"run",
                                        "-m",
                                        model.string(),
                                        "--decode",
                                        flags.options.unit,
                                        "--ids",
                                        ids,
                                        "-n",
                                        "8",
                                        "--ignore-eos",
                                        "--temp",
                                        "0",
                                        "-c",
                                        fmt::format("{}", flags.options.prefill_tokens + 16)};
  if (flags.options.threads > 0) {
    arguments.push_back("-t");
    arguments.push_back(fmt::format("{}", flags.options.threads));
  }
  return peak_memory_of(program_file(), arguments);
}

int run_ladder(LadderFlags& flags) {
  if (flags.model.empty()) {
    fmt::print(stderr, "baton: no model; give it as an argument or with -m\n");
    return kUsage;
  }
  LadderOptions& options = flags.options;
  const auto unit = create_unit(options.unit);
  if (!unit) return report_unit(unit.error());
  if (const Status types = check_ladder_types(options.types); !types) {
    report(types.error());
    return kUsage;
  }
  if (const Status there = hub::check_model(flags.model); !there) return report(there.error());
  options.model = flags.model;
  options.text = flags.text;
  options.keep = flags.keep;
  options.memory_budget_bytes = this_machine().memory_available_bytes / 2;
  options.peak_memory = [&](const std::filesystem::path& model) { return memory_of_run(flags, model); };
  std::string last_step;
  options.progress = [&](const std::string& text) { show_progress(text, last_step); };
  const InterruptScope interrupt(InterruptScope::kTerminateToo);
  options.stop = [&] { return interrupt.interrupted(); };
  const auto ladder = measure_ladder(options);
  progress("");
  if (!ladder) return report(ladder.error());
  if (!flags.html.empty()) {
    const std::string page = ladder_html(*ladder, page_info());
    if (const Status written = write_output(flags.html, std::as_bytes(std::span(page)), kModeShared); !written)
      return report(written.error());
  }
  if (flags.output == "json") {
    print_json(ladder_json(*ladder));
  } else {
    print(ladder_text(*ladder));
  }
  return kOk;
}

}  // namespace

std::unique_ptr<Command> add_ladder(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "ladder", "quantize a model to each type of a list, and compare quality, speed, size, memory and energy");
  auto command = std::make_unique<FlagsCommand<LadderFlags, run_ladder>>(app);
  LadderFlags* flags = &command->flags;
  LadderOptions* options = &flags->options;
  add_model(*app, flags->model, fmt::format("GGUF file, Hugging Face folder, best in BF16, F16 or F32, {}", kOrName));
  takes_path(app->add_option("-f,--text,--file", flags->text, "text that the types are compared on"), PathKind::kFile)
      ->required();
  app->add_option("--types", options->types, fmt::format("default: {}", fmt::join(ladder_types(), ",")))
      ->delimiter(',')
      ->allow_extra_args(false);
  app->add_option("-w,--window,-c,--ctx-size", options->window, "tokens of a window")
      ->capture_default_str()
      ->check(CLI::Range(4, 1 << 20));
  app->add_option("--chunks", options->windows_max, "windows at most (default: all)")->check(CLI::Range(1, 1 << 30));
  app->add_option("--unit", options->unit, "the unit to run on")->capture_default_str();
  add_threads(*app, options->threads);
  app->add_option("-p,--n-prompt", options->prefill_tokens, "tokens of the prefill that is timed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("-n,--n-gen", options->decode_tokens, "tokens of the decode that is timed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("-r,--repetitions", options->rounds,
                  "rounds over all types; fewer than 6 say nothing at 95 %; 0: no speeds")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  app->add_flag("--allow-requantize", options->allow_requantize, "take a source that is quantized already");
  takes_path(app->add_option("--keep", flags->keep, "keep the files in this folder (default: they are removed)"),
             PathKind::kFolder);
  takes_path(app->add_option("--html", flags->html, "write a page with plots to this file"), PathKind::kOutput);
  app->add_option("-o,--output", flags->output, "md or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"md", "json"}));
  app->add_flag_callback(
      "--json", [flags] { flags->output = "json"; }, "the same as -o json: one array");
  return command;
}

}  // namespace baton::cli

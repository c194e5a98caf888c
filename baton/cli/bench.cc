// `baton bench`: flags, and which way of measuring they ask for.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>

#include "baton/api/units.h"
#include "baton/cli/bench_flags.h"
#include "baton/cli/command.h"
#include "baton/cli/paths.h"
#include "baton/cli/shared_flags.h"

namespace baton::cli {
namespace {

constexpr uint32_t kTokensMax = 1 << 20;

int usage(std::string_view message) {
  fmt::print(stderr, "baton: {}\n", message);
  return kUsage;
}

// Measurements are not asked in between whether to stop, and leave nothing behind: a word, and the end.
extern "C" void on_bench_interrupt(int) {
  constexpr char kWord[] = "\nbaton: interrupted\n";
  [[maybe_unused]] const auto written = ::write(2, kWord, sizeof(kWord) - 1);
  ::_exit(kInterrupted);
}

void end_with_a_word_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = on_bench_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

PipelineRun pipeline_run(const BenchFlags& flags) {
  PipelineRun run{flags.model, flags.output, {}, 0, 0, flags.threads};
  if (flags.given("--n-prompt")) run.prompt_tokens = flags.prefill;
  if (flags.given("--n-gen")) run.decode_tokens = flags.decode.front();
  if (flags.given("--repetitions")) run.runs = flags.repetitions;
  return run;
}

Status put_kv(BenchFlags& flags) {
  for (std::string* unit : {&flags.unit, &flags.prefill_unit, &flags.decode_unit}) {
    if (unit->empty()) continue;
    BATON_TRY(*unit, with_kv(*unit, flags.kv));
  }
  return {};
}

// Flags that pipelines would ignore; nothing runs with --emulate.
std::optional<std::string> ignored_by_pipelines(const BenchFlags& flags) {
  for (const char* name :
       {"--unit",          "--prefill",    "--decode",    "--kv",        "--lora",         "--pg",    "--n-depth",
        "--sequences",     "--load",       "--no-warmup", "--no-limits", "--no-check",     "--ab",    "--ab-first",
        "--rounds",        "--confidence", "--rest",      "--seed",      "--conversation", "--turns", "--input-tokens",
        "--answer-tokens", "--pause"}) {
    if (flags.given(name))
      return fmt::format("{} does not go with --pipelines", name == std::string_view("--ab-first") ? "--ab" : name);
  }
  if (flags.given("--emulate") && flags.pipelines.emulate.empty()) return "--emulate: names a chip";
  if (flags.pipelines.emulate.empty()) {
    if (flags.decode.size() > 1) return "-n: pipelines take one count of tokens to decode";
    if (flags.decode.front() == 0) return "-n 0: a pipeline decodes";
    return std::nullopt;
  }
  for (const char* name : {"--n-gen", "--repetitions", "--threads", "--pipelines-file"}) {
    if (flags.given(name)) return fmt::format("{} does not go with --emulate, which runs nothing", name);
  }
  return std::nullopt;
}

std::optional<std::string> ignored_by_conversation(const BenchFlags& flags) {
  for (const char* name :
       {"--n-prompt", "--n-gen", "--pg", "--n-depth", "--sequences", "--load", "--no-warmup", "--no-limits",
        "--no-check", "--ab", "--ab-first", "--rounds", "--confidence", "--rest", "--seed"}) {
    if (flags.given(name))
      return fmt::format("{} does not go with --conversation", name == std::string_view("--ab-first") ? "--ab" : name);
  }
  if (flags.pipelines.any()) return "--pipelines-file, --only, --emulate, --html and --published go with --pipelines";
  return flags.output == "csv" ? std::optional<std::string>("-o csv: conversations are printed as md, json or jsonl")
                               : std::nullopt;
}

std::optional<std::string> ignored_by_interference(const BenchFlags& flags) {
  for (const char* name : {"--pg", "--n-depth", "--sequences", "--load", "--no-warmup", "--no-limits", "--no-check",
                           "--ab", "--ab-first", "--rounds", "--confidence", "--rest", "--seed", "--conversation",
                           "--turns", "--input-tokens", "--answer-tokens", "--pause", "--pipelines"}) {
    if (flags.given(name))
      return fmt::format("{} does not go with --interference", name == std::string_view("--ab-first") ? "--ab" : name);
  }
  if (flags.pipelines.any()) return "--pipelines-file, --only, --emulate, --html and --published go with --pipelines";
  if (flags.prefill.size() > 1 || flags.prefill.front() < 2)
    return "-p: --interference takes one prompt of 2 tokens or more";
  if (flags.decode.size() > 1 || flags.decode.front() < 2)
    return "-n: --interference takes one answer of 2 tokens or more";
  return flags.output == "csv" ? std::optional<std::string>("-o csv: --interference is printed as md, json or jsonl")
                               : std::nullopt;
}

int run_bench(BenchFlags& flags) {
  end_with_a_word_on_interrupt();
  if (!flags.given("--ab-first")) {
    if (const Status put = put_kv(flags); !put) return report_unit(put.error());
  }
  if (flags.pipelines.chosen && !flags.interference) {
    const auto& prompts = flags.prefill;
    if (const auto problem = ignored_by_pipelines(flags)) return usage(*problem);
    if (std::find(prompts.begin(), prompts.end(), 0u) != prompts.end()) return usage("-p 0: a pipeline needs a prompt");
    if (flags.output == "csv") return usage("-o csv: pipelines are printed as md, json or jsonl");
    return bench_pipelines(flags.pipelines, pipeline_run(flags));
  }
  if (flags.interference) {
    if (const auto problem = ignored_by_interference(flags)) return usage(*problem);
    return bench_interference(flags);
  }
  if (flags.conversation) {
    if (const auto problem = ignored_by_conversation(flags)) return usage(*problem);
    return bench_conversation(flags);
  }
  for (const char* name : {"--turns", "--input-tokens", "--answer-tokens", "--pause"}) {
    if (flags.given(name)) return usage(fmt::format("{} goes with --conversation", name));
  }
  if (flags.pipelines.any())
    return usage("--pipelines-file, --only, --emulate, --html and --published go with --pipelines");
  if (flags.load_child) return bench_load_child(flags);
  if (flags.given("--ab-first")) {
    flags.ab = {flags.ab_first.substr(1), flags.ab_second.substr(1)};
    return bench_ab(flags);
  }
  if (flags.given("--ab")) return usage("--ab is given once, with A and B");
  for (const char* name : {"--rounds", "--confidence", "--rest", "--seed"}) {
    if (flags.given(name)) return usage(fmt::format("{} goes with --ab", name));
  }
  bool tests = flags.load || !flags.model.empty();
  for (const char* name : {"--n-prompt", "--n-gen", "--pg", "--n-depth", "--sequences", "--lora"})
    tests = tests || flags.given(name);
  return tests ? bench_speed(flags) : bench_canonical(flags);
}

void add_conversation(CLI::App& app, BenchFlags& flags) {
  app.add_flag("--interference", flags.interference,
               "what --prefill and --decode cost each other while both work, and the time between an answer's tokens "
               "while a prompt (-p, default 2000) is prefilled, against --unit (or --decode) doing both");
  app.add_flag("--conversation", flags.conversation,
               "turns of a conversation with each way to use --prefill and --decode: what each turn waits for");
  app.add_option("--turns", flags.turns, "--conversation: questions and answers")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--input-tokens", flags.input_tokens, "--conversation: of each question")
      ->capture_default_str()
      ->check(CLI::Range(1u, kTokensMax));
  app.add_option("--answer-tokens", flags.answer_tokens, "--conversation: of each answer")
      ->capture_default_str()
      ->check(CLI::Range(1u, kTokensMax));
  app.add_option("--pause", flags.pause_ms, "--conversation: ms to read an answer and type the next question")
      ->capture_default_str()
      ->check(CLI::Range(0, 600000));
}

}  // namespace

std::vector<std::string> bench_words(std::vector<std::string> words) {
  if (words.empty() || words[0] != "bench") return words;
  std::vector<std::string> readable;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--ab" && i + 2 < words.size()) {
      // With a colon before it: the parser takes an empty value for none.
      readable.push_back("--ab-first=:" + words[i + 1]);
      readable.push_back("--ab-second=:" + words[i + 2]);
      i += 2;
    } else {
      readable.push_back(words[i] == "-pg" ? "--pg" : words[i]);
    }
  }
  return readable;
}

std::unique_ptr<Command> add_bench(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "bench", "measure speed: three numbers of the bundled model, tests of a model, or two configurations in turns");
  auto command = std::make_unique<FlagsCommand<BenchFlags, run_bench>>(app);
  BenchFlags* flags = &command->flags;
  flags->app = app;
  const auto counts = [&](const char* name, std::vector<uint32_t>& to, const char* text) {
    return app->add_option(name, to, text)
        ->delimiter(',')
        ->allow_extra_args(false)  // the next word may be the model
        ->check(CLI::Range(0u, kTokensMax));
  };
  add_model(*app, flags->model,
            fmt::format("a Hugging Face folder, a GGUF file, {} (default: the bundled model)", kOrName));
  app->add_option("--unit", flags->unit, "the unit to measure")->capture_default_str();
  app->add_option("--prefill,--prefill-unit", flags->prefill_unit, "the unit that prefills (default: --unit)");
  app->add_option("--decode,--decode-unit", flags->decode_unit, "the unit that decodes (default: --unit)");
  add_kv(*app, flags->kv);
  add_lora(*app, flags->lora, " of the model");
  counts("-p,--n-prompt", flags->prefill,
         "prompt lengths to prefill; 0: none (default: 512; --pipelines: 6 to 410; --ab: 128)");
  counts("-n,--n-gen", flags->decode, "token counts to decode; 0: none (default: 128; --pipelines and --ab: 32)");
  app->add_option("--pg", flags->both, "N,M: prefill N tokens, then decode M (repeatable; -pg too)")
      ->allow_extra_args(false);
  counts("-d,--n-depth", flags->depth, "tokens already in the context (default: 0)");
  app->add_option(
         "--sequences", flags->sequences,
         "sequences prefilled in one call and decoded together in each step; their speeds are summed (default: 1)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1024));
  app->add_option("-r,--repetitions", flags->repetitions,
                  "timed runs of each test (default: 5; --pipelines: 10; --ab: 3)")
      ->check(CLI::Range(1, 1000));
  add_threads(*app, flags->threads);
  app->add_flag("--load", flags->load,
                "also time from the start of a process of its own to the first token of 13, and its peak memory");
  app->add_flag("--load-child", flags->load_child)->group("");
  app->add_flag("--no-warmup", flags->no_warmup,
                "no run before the timed ones, and no preparations: what a first request meets");
  app->add_flag("--no-limits", flags->no_limits, "do not measure this machine's limits: no % columns");
  app->add_flag("--no-check", flags->no_check, "do not check the generated tokens against ref");
  app->add_option("-o,--output", flags->output, "md, csv, json or jsonl")
      ->capture_default_str()
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}));
  app->add_flag_callback(
      "--json", [flags] { flags->output = "json"; }, "the same as -o json: one array");
  app->add_option("--ab", flags->ab,
                  "A B: which is faster? Each is flags of this command (\"--threads 1\"), or cmd: and a peer's command "
                  "line that prints llama-bench's JSON; other flags go to both")
      ->expected(2);
  app->add_option("--ab-first", flags->ab_first)->group("");
  app->add_option("--ab-second", flags->ab_second)->group("");
  app->add_option("--rounds", flags->rounds,
                  "--ab: rounds of four runs, A B B A or B A A B; one test at 99.9 % needs 11, two 12")
      ->capture_default_str()
      ->check(CLI::Range(5, 200));
  app->add_option("--confidence", flags->confidence, "--ab: percent, for all tests together")
      ->capture_default_str()
      ->check(real_range(50.0, 99.9999));
  app->add_option("--rest", flags->rest, "--ab: seconds of rest before each run")
      ->capture_default_str()
      ->check(real_range(0.0, 3600.0));
  app->add_option("--seed", flags->seed, "--ab: of the order of runs; -1: a new one each time")->capture_default_str();
  add_conversation(*app, *flags);
  flags->pipelines.add_to(*app);
  return command;
}

}  // namespace baton::cli

// `baton bench`: prefill and decode speed of one unit, in the columns of llama-bench.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "baton/api/units.h"
#include "baton/bench/runner.h"
#include "baton/bench/stats.h"
#include "baton/cli/bench_pipelines.h"
#include "baton/cli/command.h"

namespace baton::cli {
namespace {

struct BenchFlags {
  std::string model, unit = "cpu", output = "md";
  std::vector<uint32_t> prefill = {512}, decode = {128}, depth = {0};
  uint32_t repetitions = 5, threads = 0;
  PipelineFlags pipelines;
  // Whether given: the defaults of pipelines are others.
  const CLI::Option *prefill_option = nullptr, *decode_option = nullptr, *repetitions_option = nullptr;
};

struct Row {
  SpeedTest test;
  SpeedResult result;
  Summary speed;
};

OrderedJson row_json(const Row& row, const Model& model, const Placement& placement, const BenchFlags& flags) {
  OrderedJson json;
  json["model"] = model.spec.name;
  json["model_bytes"] = model.weight_bytes();
  json["parameters"] = model.parameter_count();
  json["unit"] = flags.unit;
  json["ran"] = placement.ran;
  json["evidence"] = placement.evidence;
  json["warning"] = placement.warning.empty() ? OrderedJson(nullptr) : OrderedJson(placement.warning);
  json["test"] = row.test.name();
  json["prefill_tokens"] = row.test.prefill_tokens;
  json["decode_tokens"] = row.test.decode_tokens;
  json["depth"] = row.test.depth;
  json["repetitions"] = flags.repetitions;
  json["tps_median"] = row.speed.median;
  json["tps_low"] = row.speed.low;
  json["tps_high"] = row.speed.high;
  json["tps_deviation"] = row.speed.deviation;
  json["tokens_hash"] = fmt::format("{:016x}", row.result.tokens_hash);
  json["samples_tps"] = row.result.tokens_per_second;
  return json;
}

std::string row_text(const Row& row, const Model& model, const Placement& placement) {
  return fmt::format(
      "| {:<24} | {:>10.2f} MiB | {:>8.2f} M | {:<6} | {:<30} | {:>14} | {:>9.2f} | {:.2f} .. {:.2f} |\n",
      model.spec.name, static_cast<double>(model.weight_bytes()) / (1 << 20),
      static_cast<double>(model.parameter_count()) / 1e6, placement.ran, placement.evidence, row.test.name(),
      row.speed.median, row.speed.low, row.speed.high);
}

std::vector<SpeedTest> tests_of(const BenchFlags& flags) {
  std::vector<SpeedTest> tests;
  for (const uint32_t depth : flags.depth) {
    for (const uint32_t tokens : flags.prefill) {
      if (tokens > 0) tests.push_back({.prefill_tokens = tokens, .depth = depth});
    }
    for (const uint32_t tokens : flags.decode) {
      if (tokens > 0) tests.push_back({.decode_tokens = tokens, .depth = depth});
    }
  }
  return tests;
}

PipelineRun pipeline_run(const BenchFlags& flags) {
  PipelineRun run{flags.model, flags.output, {}, 0, 0, flags.threads};
  if (flags.prefill_option->count() > 0) run.prompt_tokens = flags.prefill;
  if (flags.decode_option->count() > 0) run.decode_tokens = flags.decode.front();
  if (flags.repetitions_option->count() > 0) run.runs = flags.repetitions;
  return run;
}

int run(BenchFlags& flags) {
  if (flags.pipelines.chosen) {
    const auto& prompts = flags.prefill;
    if (std::find(prompts.begin(), prompts.end(), 0u) != prompts.end()) {
      fmt::print(stderr, "baton: -p 0: a pipeline needs a prompt\n");
      return kUsage;
    }
    return bench_pipelines(flags.pipelines, pipeline_run(flags));
  }
  if (flags.pipelines.any()) {
    fmt::print(stderr, "baton: --pipelines-file, --only, --emulate, --html and --published go with --pipelines\n");
    return kUsage;
  }
  if (flags.model.empty()) {
    const auto bundled = bundled_model();
    if (!bundled) return report(bundled.error());
    flags.model = bundled->string();
  }
  auto unit = create_unit(flags.unit);
  if (!unit) {
    fmt::print(stderr, "baton: {}\n", unit.error().message);
    return unit.error().code == Code::kNotFound ? kUsage : kFailed;
  }
  const auto model = load_model(flags.model);
  if (!model) return report(model.error());
  auto executor = (*unit)->load(*model, flags.threads);
  if (!executor) return report(executor.error());

  OrderedJson rows = OrderedJson::array();
  if (flags.output == "md") {
    print(
        "| model                    |           size |     params | unit   | evidence                       |          "
        " test |"
        " t/s median | low .. high |\n|---|---:|---:|---|---|---:|---:|---|\n");
  }
  for (const SpeedTest& test : tests_of(flags)) {
    auto result = measure_speed(**executor, test, flags.repetitions, [&](uint32_t done) {
      progress(fmt::format("{} {}/{}", test.name(), done, flags.repetitions));
    });
    progress("");
    if (!result) return report(result.error());
    const Row row{test, *result, summarize(result->tokens_per_second)};
    const OrderedJson json = row_json(row, **model, (*executor)->placement(), flags);
    if (flags.output == "md") print(row_text(row, **model, (*executor)->placement()));
    if (flags.output == "jsonl") print_json(json);
    rows.push_back(json);
  }
  if (flags.output == "json") print_json(rows);
  if (const std::string warning = (*executor)->placement().warning; !warning.empty())
    fmt::print(stderr, "baton: warning: {}\n", warning);
  return kOk;
}

}  // namespace

std::unique_ptr<Command> add_bench(CLI::App& program) {
  CLI::App* app = program.add_subcommand("bench", "measure prefill and decode speed of a unit");
  auto command = std::make_unique<FlagsCommand<BenchFlags, run>>(app);
  BenchFlags* flags = &command->flags;
  app->add_option("-m,--model", flags->model, "a Hugging Face folder or a GGUF file (default: the bundled model)");
  app->add_option("--unit", flags->unit, "the unit to measure")->capture_default_str();
  flags->prefill_option = app->add_option("-p,--n-prompt", flags->prefill, "prompt lengths to prefill; 0: none")
                              ->delimiter(',')
                              ->check(CLI::Range(0, 1 << 20));
  flags->decode_option = app->add_option("-n,--n-gen", flags->decode, "token counts to decode; 0: none")
                             ->delimiter(',')
                             ->check(CLI::Range(0, 1 << 20));
  app->add_option("-d,--n-depth", flags->depth, "tokens already in the context")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 20));
  flags->repetitions_option = app->add_option("-r,--repetitions", flags->repetitions, "timed runs of each test")
                                  ->capture_default_str()
                                  ->check(CLI::Range(1, 1000));
  app->add_option("-t,--threads", flags->threads, "threads (default: physical cores)")->check(CLI::Range(1, 1024));
  app->add_option("-o,--output", flags->output, "md, json or jsonl")
      ->capture_default_str()
      ->check(CLI::IsMember({"md", "json", "jsonl"}));
  app->add_flag_callback(
      "--json", [flags] { flags->output = "json"; }, "the same as -o json");
  flags->pipelines.add_to(*app);
  return command;
}

}  // namespace baton::cli

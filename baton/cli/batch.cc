// `baton batch`: a file of requests, a file of answers.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "baton/base/terminal.h"
#include "baton/cli/batch_run.h"
#include "baton/cli/command.h"
#include "baton/cli/figures.h"
#include "baton/cli/paths.h"
#include "baton/cli/prompt.h"
#include "baton/cli/state_key.h"
#include "baton/cli/step_tokens.h"
#include "baton/state/checksum.h"

namespace baton::cli {
namespace {

Status check_batch_flags(const BatchFlags& flags) {
  std::vector<UsedPath> used = {{"IN", flags.in, PathKind::kFile}};
  if (flags.out != "-") {
    used.push_back({"OUT", flags.out, PathKind::kOutput});
  } else if (flags.json) {
    return fail(Code::kInvalidInput,
                "OUT - and --json both go to standard output: give OUT a name, or leave --json out");
  }
  if (!flags.model.model.empty()) used.push_back({"--model", flags.model.model, PathKind::kModel});
  BATON_OK(check_paths(used));
  if (flags.model.verify != "off") {
    return fail(Code::kInvalidInput,
                "--verify-bridge: a batch proves no hand-overs; leave it out, and prove one with `baton run`");
  }
  if (flags.no_reuse && !flags.cache.folder.empty())
    return fail(Code::kInvalidInput, "--no-reuse prefills all of each prompt: --state-cache has no use; leave one out");
  if (flags.no_reuse && flags.cache.bf16())
    return fail(Code::kInvalidInput,
                "--no-reuse keeps no checkpoints: --checkpoint-dtype bf16 has no use; leave one out");
  BATON_OK(check_step_tokens(flags.step_tokens));
  if (!flags.state_key.empty() && flags.cache.folder.empty())
    return fail(Code::kInvalidInput, "--state-key goes with --state-cache");
  return {};
}

// What answers of this run follow, beside their requests.
std::string fingerprint_of(const BatchFlags& flags, const Model& model, uint64_t context) {
  OrderedJson facts = {{"model", name_of_path(flags.model.model)},
                       {"parameters", model.parameter_count()},
                       {"bytes", model.weight_bytes()},
                       {"units", {flags.model.prefill_unit, flags.model.via_unit, flags.model.decode_unit}},
                       {"options", flags.model.units_that_show()},
                       {"context", context},
                       {"strategy", flags.model.strategy},
                       {"sampling", flags.sampling.json()},
                       {"predict", flags.sampling.predict},
                       {"ignore_eos", flags.sampling.ignore_eos},
                       {"stops", flags.sampling.stops},
                       {"thinking", {flags.thinking.on, flags.thinking.off}}};
  if (flags.cache.bf16()) facts["checkpoints"] = flags.cache.checkpoint_dtype;
  const std::string text = facts.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return fmt::format("fp_{:016x}", checksum(std::as_bytes(std::span(text))));
}

// A quarter of what is free, at most: a state is made of memory that is touched only as it fills. Of that a quarter for
// checkpoints, while the states do not need it.
EngineLimits batch_limits(const BatchFlags& flags) {
  EngineLimits limits;
  limits.requests_active_max = flags.parallel;
  limits.step_tokens_max = flags.step_tokens;
  limits.state_bytes_max = flags.model.memory_bytes() / 4;
  limits.checkpoint_bf16 = flags.cache.bf16();
  if (!flags.no_reuse) limits.checkpoint_bytes_max = limits.state_bytes_max / 4;
  return limits;
}

OrderedJson phase_json(const PhaseStats& phase) {
  return {{"asked", phase.asked}, {"ran", text_or_null(phase.ran)}, {"emulated", phase.emulated}};
}

// From token to token, over all answers: the most that so many of a hundred waited.
OrderedJson waits_json(std::vector<float> waits) {
  if (waits.empty()) return nullptr;
  std::sort(waits.begin(), waits.end());
  const auto at = [&](size_t hundredth) { return waits[std::min(waits.size() * hundredth / 100, waits.size() - 1)]; };
  return {{"p50", at(50)}, {"p99", at(99)}, {"max", waits.back()}};
}

OrderedJson totals_json(const BatchFlags& flags, const BatchTotals& totals) {
  OrderedJson json = {{"requests", totals.requests},
                      {"answered", totals.answered},
                      {"failed", totals.failed},
                      {"kept", totals.kept},
                      {"prompt_tokens", totals.prompt_tokens},
                      {"cached_tokens", totals.cached_tokens},
                      {"kept_rounding", rounding_json(totals.kept_rounding)},
                      {"completion_tokens", totals.tokens},
                      {"seconds", totals.seconds},
                      {"completion_tokens_per_second", nullptr},
                      {"inter_token_ms", waits_json(totals.token_ms)},
                      {"set_aside", totals.set_aside},
                      {"parallel", flags.parallel},
                      {"model", name_of_path(flags.model.model)},
                      {"strategy", flags.model.strategy},
                      {"fallbacks", totals.fallbacks},
                      {"prefill", nullptr},
                      {"decode", nullptr}};
  if (totals.seconds > 0 && totals.tokens > 0)
    json["completion_tokens_per_second"] = static_cast<double>(totals.tokens) / totals.seconds;
  if (totals.first) {
    json["prefill"] = phase_json(totals.first->prefill);
    if (!totals.first->via.asked.empty()) json["via"] = phase_json(totals.first->via);
    json["decode"] = phase_json(totals.first->decode);
  }
  return json;
}

void show_totals(const BatchFlags& flags, const BatchTotals& totals) {
  if (flags.json) print_json(totals_json(flags, totals));
  if (flags.quiet || flags.json) return;
  const bool emulated = totals.first && totals.first->emulated();
  fmt::print(
      stderr, "baton: {} of {} lines answered{}; {} tokens in{}, {} out in {:.1f} s{}{}\n", totals.answered,
      totals.requests, totals.kept > 0 ? fmt::format(" ({} lines done before)", totals.kept) : "", totals.prompt_tokens,
      totals.cached_tokens > 0 ? fmt::format(" ({} of them processed before)", totals.cached_tokens) : "",
      totals.tokens, totals.seconds,
      totals.seconds > 0 ? fmt::format(": {:.1f} tokens/s", static_cast<double>(totals.tokens) / totals.seconds) : "",
      emulated ? " (emulated)" : "");
}

int finish_batch(const BatchFlags& flags, const BatchTotals& totals, Status status, BatchOutput& output) {
  if (const auto finished = output.finish(); status && !finished) status = finished;
  show_totals(flags, totals);
  if (!status) return report(status.error());
  if (totals.failed == 0) return kOk;
  return report({Code::kInvalidInput,
                 fmt::format("{} of {} lines have no answer: {} says why; to ask them again take their lines out of it",
                             totals.failed, totals.requests,
                             flags.out == "-" ? "what was printed" : terminal_safe(flags.out, kNameShownMax))});
}

int run_batch(BatchFlags& flags) {
  if (const auto status = check_batch_flags(flags); !status) return report_usage(status.error());
  if (const auto status = flags.model.settle(); !status) return report_usage(status.error());
  auto key = read_state_key(flags.state_key);
  if (!key) return report(key.error());
  flags.key = *std::move(key);
  InterruptScope interrupts(InterruptScope::kTerminateToo);
  interrupts.end_at_once(true);
  auto lines = LineReader::open(flags.in, kBatchLineBytesMax);
  if (!lines) return report(lines.error());
  const auto count = count_lines(flags.in);
  if (!count) return report(count.error());
  flags.cache.key = pointer_to(flags.key);
  auto runtime = flags.model.open(batch_limits(flags), flags.cache);
  if (!runtime) return report(with_flags(runtime.error()));
  const TextModel& text = (*runtime)->text();
  if (!text.tokenizer) return report(no_tokenizer(text).value());
  flags.thinking.warn(text);
  const std::string fingerprint = fingerprint_of(flags, (*runtime)->model(), (*runtime)->context_tokens());
  flags.sampling.settled_seed();
  auto output = BatchOutput::open(flags.out, name_of_path(flags.model.model), fingerprint);
  if (!output) return report_usage(output.error());
  if (*count && output->lines_kept() > 0) {
    if (const auto status = output->check_requests(flags.in); !status) return report_usage(status.error());
  }
  if (const auto status = output->cut_torn_line(); !status) return report(status.error());
  if (!flags.quiet) {
    if (!flags.json) say_bundled_model(flags.model);
    if (output->torn_bytes() > 0)
      spdlog::warn("{}: its last line was torn ({} bytes): cut off, and asked again", flags.out, output->torn_bytes());
  }
  interrupts.end_at_once(false);
  BatchRun run(flags, **runtime, {*std::move(lines), flags.in == "-" ? "standard input" : flags.in, *count}, *output,
               fingerprint, interrupts);
  const Status status = run.run();
  save_to_cache(**runtime, [&] { return interrupts.interrupted(); });
  return finish_batch(flags, run.totals(), status, *output);
}

}  // namespace

std::unique_ptr<Command> add_batch(CLI::App& program) {
  CLI::App* app = program.add_subcommand("batch", "answer a file of requests, many at once, in OpenAI's batch format");
  auto command = std::make_unique<FlagsCommand<BatchFlags, run_batch>>(app);
  BatchFlags* flags = &command->flags;
  takes_path(app->add_option("in", flags->in, "requests, one a line (JSON); - is standard input"), PathKind::kFile)
      ->required();
  app->add_option("out", flags->out,
                  "answers, one a line, as they are done; - is standard output. A file that has some is gone on from")
      ->type_name("FILE|-")
      ->required();
  app->add_option("--parallel", flags->parallel,
                  "requests at once, as far as memory goes; no answer depends on it (docs/batch.md)")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  add_step_tokens(*app, flags->step_tokens);
  app->add_flag(
      "--no-reuse", flags->no_reuse,
      "prefill all of each prompt; else what prompts begin with alike is prefilled once, and no answer shows it");
  flags->cache.add_to(*app);
  flags->cache.add_dtype_to(*app);
  takes_path(app->add_option("--state-key", flags->state_key,
                             "file with a secret of at least 32 bytes: states of --state-cache carry a MAC under it"),
             PathKind::kFile);
  flags->model.add_to(*app);
  flags->sampling.add_to(*app);
  flags->thinking.add_to(*app);
  app->add_flag("--json", flags->json, "the totals as one JSON object on stdout");
  app->add_flag("-q,--quiet", flags->quiet, "no progress and no totals on stderr");
  return command;
}

}  // namespace baton::cli

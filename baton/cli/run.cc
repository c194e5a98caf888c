// `baton run`: one prompt, one answer, and the figures of how it was made.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <optional>

#include "baton/api/openai.h"
#include "baton/base/output_file.h"
#include "baton/base/terminal.h"
#include "baton/cli/command.h"
#include "baton/cli/expert_stats.h"
#include "baton/cli/figures.h"
#include "baton/cli/fingerprint.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/model_flags.h"
#include "baton/cli/paths.h"
#include "baton/cli/progress.h"
#include "baton/cli/prompt.h"
#include "baton/cli/sampling_flags.h"
#include "baton/cli/state_key.h"
#include "baton/cli/thinking.h"
#include "baton/state/seal_file.h"

namespace baton::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  SamplingFlags sampling;
  ThinkingFlags thinking;
  StateCacheFlags cache;
  std::string prompt, positional, prompt_file, system, ids, dump_logits, save_state, load_state, state_key;
  std::optional<StateKey> key;  // of state_key
  bool raw = false, json = false, quiet = false, expert_stats = false;

  const CLI::App* app = nullptr;
  std::vector<int32_t> parsed_ids;  // of --ids
  // Whether an option of the command line was given, be it empty.
  bool given(const char* name) const { return app->get_option(name)->count() > 0; }
};

// Without any prompt on the command line it is what is piped in; "-" is standard input, wherever a prompt is given.
Status settle_source(RunFlags& flags) {
  const bool text = flags.given("--prompt"), word = flags.given("prompt");
  if (text && word) return fail(Code::kInvalidInput, "the prompt is given twice (-p and as an argument)");
  const bool file = flags.given("--file"), ids = flags.given("--ids");
  if (ids && (text || word || file)) return fail(Code::kInvalidInput, "more than one prompt; --ids stands alone");
  if (word) flags.prompt = flags.positional;
  const bool none = !text && !word && !file && !ids;
  if (flags.prompt == "-" && file) return fail(Code::kInvalidInput, "more than one prompt: - and -f");
  if (flags.prompt == "-" || (none && ::isatty(STDIN_FILENO) == 0)) {
    flags.prompt_file = "-";
    flags.prompt.clear();
    return {};
  }
  constexpr const char* kWays = "give it as an argument, with -p, -f or --ids, or through a pipe";
  if (none) return fail(Code::kInvalidInput, fmt::format("no prompt; {}", kWays));
  if (flags.given("--ids")) {
    BATON_TRY(flags.parsed_ids, parse_ids(flags.ids));
  } else if (((text || word) && flags.prompt.empty()) || (file && flags.prompt_file.empty())) {
    return fail(Code::kInvalidInput, fmt::format("the prompt is empty; {}", kWays));
  }
  return check_no_model(flags.prompt);
}

Status check_flags(RunFlags& flags) {
  BATON_OK(settle_source(flags));
  const char* templated = !flags.system.empty() ? "--system"
                          : flags.thinking.on   ? "--think"
                          : flags.thinking.off  ? "--no-think"
                                                : nullptr;
  if (templated != nullptr) {
    const char* against = flags.given("--ids")       ? "--ids"
                          : flags.raw                ? "--raw"
                          : flags.load_state.empty() ? nullptr
                                                     : "--load-state";
    if (against != nullptr) {
      return fail(
          Code::kInvalidInput,
          fmt::format("{} goes through the chat template, which {} does without: put it into the prompt, or leave one "
                      "of the two out",
                      templated, against));
    }
  }
  if (!flags.state_key.empty() && flags.save_state.empty() && flags.load_state.empty() && flags.cache.folder.empty())
    return fail(Code::kInvalidInput, "--state-key goes with --save-state, --load-state or --state-cache");
  if (!flags.cache.folder.empty() && (!flags.load_state.empty() || flags.model.verify != "off")) {
    return fail(Code::kInvalidInput,
                fmt::format("--state-cache: {} says what the answer rests on; leave one of them out",
                            flags.load_state.empty() ? "--verify-bridge" : "--load-state"));
  }
  if (flags.expert_stats && flags.model.verify != "off") {
    return fail(Code::kInvalidInput,
                "--expert-stats counts the answer's own tokens, and --verify-bridge makes more of "
                "them: leave one of them out");
  }
  return flags.model.settle();
}

// A text that continues a saved state belongs to no new turn: it is taken as it is.
bool as_it_is(const RunFlags& flags) { return flags.raw || !flags.load_state.empty(); }

Result<std::string> prompt_text(const RunFlags& flags) {
  return read_prompt({flags.prompt, flags.prompt_file, as_it_is(flags)});
}

// Before the engine says it in its own words: what to do.
Status check_fits(const RunFlags& flags, const Runtime& runtime, uint64_t tokens) {
  if (flags.expert_stats && runtime.model().spec.experts == 0)
    return fail(Code::kInvalidInput, "--expert-stats: this model has no experts; leave the flag out");
  const uint64_t context = runtime.context_tokens();
  if (tokens <= context) return {};
  const std::string larger = larger_context_flag(runtime.model(), context, tokens);
  return fail(Code::kInvalidInput,
              fmt::format("the prompt has {} tokens, the context holds {}: shorten it{}", tokens, context,
                          larger.empty() ? " (this is the model's limit)"
                                         : fmt::format(", or {} (this model: up to {})", larger,
                                                       runtime.model().spec.context_max)));
}

// The figures say it too, but -q shows none.
void warn_of_cut(const RunFlags& flags, const Runtime& runtime, const Completion& completion) {
  if (!flags.quiet || completion.ended != Ended::kContextFull) return;
  const std::string larger = larger_context_flag(runtime.model(), completion.context_tokens, 0);
  spdlog::warn("the context of {} tokens is full: the answer ends here{}", completion.context_tokens,
               larger.empty() ? "" : "; more with " + larger);
}

// `keep_at`: where other prompts may go on otherwise.
Result<std::vector<int32_t>> prompt_tokens(const RunFlags& flags, const std::string& text, const Runtime& runtime,
                                           std::vector<uint64_t>* keep_at) {
  if (flags.given("--ids")) return flags.parsed_ids;
  if (as_it_is(flags))
    return runtime.encode(text, true, flags.load_state.empty() ? TextPlace::kStart : TextPlace::kContinuation);
  ChatInput input;
  if (!flags.system.empty()) input.messages.push_back({{"role", "system"}, {"content", flags.system}});
  input.messages.push_back({{"role", "user"}, {"content", text}});
  if (const auto think = flags.thinking.asked()) input.extra["enable_thinking"] = *think;
  flags.thinking.warn(runtime.text());
  BATON_TRY(auto tokens, runtime.encode_chat(input));
  if (runtime.state_cache() != nullptr) *keep_at = openai::branching_positions(runtime, input, tokens);
  return tokens;
}

// The sealed state's own tokens come first.
Status continue_from_file(const RunFlags& flags, const Runtime& runtime, Request& request, uint64_t& start_tokens) {
  SealExpectation expected;
  BATON_TRY(expected.identity, runtime.identity(shown_fingerprint()));
  const StateShape shape = state_shape(runtime.model().program, DType::kF32);
  expected.shape = &shape;
  expected.position_max = static_cast<uint64_t>(runtime.model().spec.context_max);
  expected.vocab = static_cast<uint32_t>(runtime.model().spec.vocab);
  auto read = read_seal_file(flags.load_state, expected, pointer_to(flags.key));
  if (!read) return fail(with_key_flag(std::move(read).error(), flags.load_state, flags.key));
  SealedFile& file = *read;
  request.tokens.insert(request.tokens.begin(), file.view.tokens.begin(), file.view.tokens.end());
  start_tokens = file.view.tokens.size();
  request.start_state = std::move(file.source);
  return {};
}

// What was asked for is written whole or is an error: an older file of the name would look fresh.
Status write_outputs(const RunFlags& flags, const Completion& completion, SealFile& saved) {
  constexpr const char* kEarly = "{}: not written: the answer was interrupted before the prompt was processed";
  if (!flags.dump_logits.empty()) {
    if (completion.logits.empty()) return fail(Code::kCancelled, fmt::format(kEarly, flags.dump_logits));
    BATON_OK(write_output(flags.dump_logits, std::as_bytes(std::span(completion.logits)), kModeShared));
  }
  if (!flags.save_state.empty()) {
    if (!saved.taken()) return fail(Code::kCancelled, fmt::format(kEarly, flags.save_state));
    BATON_OK(saved.commit());
  }
  return {};
}

// All but the starting state, and what is shown on the way.
CompletionRequest request_of(const RunFlags& flags, const Runtime& runtime, std::vector<int32_t> tokens,
                             std::vector<uint64_t> keep_at, SealFile& saved) {
  CompletionRequest asked{runtime.make_request(std::move(tokens)), flags.sampling.stops};
  Request& request = asked.request;
  flags.sampling.apply(request);
  flags.model.apply(request);
  if (!flags.cache.folder.empty()) request.reuse = ReuseMode::kExact;
  request.keep_at = std::move(keep_at);
  request.want_logits = !flags.dump_logits.empty();
  if (!flags.save_state.empty()) request.seal_to = [&](const SealSource& state) { return saved.take(state); };
  return asked;
}

void print_figures(const RunFlags& flags, const Runtime& runtime, const Completion& completion, uint64_t seed) {
  // Without a tokenizer an answer has no text.
  if (!flags.json && !runtime.text().tokenizer && !completion.ids.empty())
    print(fmt::format("{}\n", fmt::join(completion.ids, ",")));
  if (flags.json) {
    OrderedJson json;
    json["text"] = completion.text;
    json["ids"] = completion.ids;
    json.update(figures_json(completion));
    json["strategy"] = flags.model.strategy;
    json["seed"] = seed;
    json["sampling"] = flags.sampling.json();
    json["model"] = runtime.model().spec.name;
    if (flags.expert_stats) json["experts"] = expert_stats_json(runtime.expert_loads());
    print_json(json);
  } else if (!flags.quiet) {
    const std::string figures = figures_text(completion, name_of_path(flags.model.model));
    fmt::print(stderr, "{}{}", completion.ids.empty() ? "" : "\n", terminal_safe(figures, kMessageShownMax));
  }
  if (flags.expert_stats && !flags.json) fmt::print(stderr, "{}", expert_stats_text(runtime.expert_loads()));
}

int run_prompt(RunFlags& flags) {
  if (const auto status = check_flags(flags); !status) return report_usage(status.error());
  auto key = read_state_key(flags.state_key);
  if (!key) return report(key.error());
  flags.key = *std::move(key);
  InterruptScope interrupts;
  interrupts.end_at_once(true);
  const auto text = prompt_text(flags);
  if (!text) return flags.prompt_file == "-" ? report_usage(text.error()) : report(text.error());
  SealFile saved(flags.save_state, pointer_to(flags.key));  // before the runtime, whose engine writes to it
  EngineLimits limits;
  if (!flags.cache.folder.empty()) limits.checkpoint_bytes_max = checkpoint_bytes();
  flags.cache.key = pointer_to(flags.key);
  auto runtime = flags.model.open(limits, flags.cache);
  if (!runtime) return report(with_flags(runtime.error()));
  std::vector<uint64_t> keep_at;
  auto tokens = prompt_tokens(flags, *text, **runtime, &keep_at);
  if (!tokens) return report(with_flags(tokens.error(), &(*runtime)->text()));
  if (!flags.quiet && !flags.json) say_bundled_model(flags.model);
  std::error_code ignored;
  const bool state_piped =
      !flags.load_state.empty() && std::filesystem::equivalent("/dev/stdin", flags.load_state, ignored);
  if (flags.prompt_file != "-" && !state_piped) warn_of_unread_pipe();

  const uint64_t seed = flags.sampling.settled_seed();
  CompletionRequest request = request_of(flags, **runtime, std::move(*tokens), std::move(keep_at), saved);
  if (!flags.load_state.empty()) {
    if (const auto status = continue_from_file(flags, **runtime, request.request, request.start_tokens); !status)
      return report(status.error());
  }
  if (const auto status = check_fits(flags, **runtime, request.request.tokens.size()); !status)
    return report(status.error());

  interrupts.end_at_once(false);  // measuring can be asked to stop
  std::optional<Progress> measuring;
  if (const auto status = (*runtime)->prepare_proof(request.request, proof_events(interrupts, measuring)); !status) {
    return report(status.error());
  }
  Progress meter("prefill");
  request.on_prefill = [&](uint64_t done, uint64_t total) { meter.show(done, total); };
  const auto show = [&](std::string_view piece) {
    meter.clear();
    if (!flags.json) print(piece);
  };
  auto completion = (*runtime)->complete(std::move(request), show, [&] { return interrupts.interrupted(); });
  meter.clear();
  const bool answered = completion && !completion->ids.empty() && (*runtime)->text().tokenizer;
  if (!flags.json && answered) print("\n");
  if (!completion) return report(with_flags(completion.error()));
  log_warnings(*completion);
  warn_of_cut(flags, **runtime, *completion);
  // The answer is there, whatever becomes of the files.
  print_figures(flags, **runtime, *completion, seed);
  save_to_cache(**runtime, [&] { return interrupts.interrupted(); });
  if (const auto status = write_outputs(flags, *completion, saved); !status) return report(status.error());
  if (completion->stats.bridge.proof_failed) return kFailed;
  return completion->reason == FinishReason::kCancelled ? kInterrupted : kOk;
}

}  // namespace

Result<std::vector<int32_t>> parse_ids(std::string_view text) {
  std::vector<int32_t> ids;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string_view item = text.substr(at, comma - at);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    int32_t id = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), id);
    if (error != std::errc() || end != item.data() + item.size() || id < 0) {
      return fail(Code::kInvalidInput,
                  fmt::format("--ids: '{}' is not a token id; give ids separated by commas", item));
    }
    ids.push_back(id);
    at = comma + 1;
  }
  return ids;
}

std::unique_ptr<Command> add_run(CLI::App& program) {
  CLI::App* app = program.add_subcommand("run", "answer one prompt and print the figures");
  auto command = std::make_unique<FlagsCommand<RunFlags, run_prompt>>(app);
  RunFlags* flags = &command->flags;
  flags->app = app;
  app->add_option("prompt", flags->positional, "the prompt; - or nothing: what is piped in");
  app->add_option("-p,--prompt", flags->prompt, "the prompt");
  takes_path(app->add_option("-f,--file", flags->prompt_file,
                             "a file with the prompt, or - for standard input; behind a prompt given too"),
             PathKind::kFile);
  app->add_option("--ids", flags->ids, "the prompt as token ids: 1,2,3 (implies --raw)");
  app->add_option("--system", flags->system, "system prompt (not with --raw, --ids or --load-state)");
  app->add_flag("--raw", flags->raw, "no chat template: the prompt as it is, special tokens in it recognised");
  flags->model.add_to(*app);
  flags->sampling.add_to(*app);
  flags->thinking.add_to(*app);
  flags->cache.add_to(*app);
  takes_path(app->add_option("--dump-logits", flags->dump_logits,
                             "write the logits after the last prompt token (f32, little-endian)"),
             PathKind::kOutput);
  takes_path(app->add_option("--save-state", flags->save_state, "write the sealed state after the prompt"),
             PathKind::kSavedState);
  takes_path(app->add_option("--load-state", flags->load_state,
                             "go on from a sealed state; the prompt is appended to its tokens as it is"),
             PathKind::kState);
  takes_path(app->add_option(
                 "--state-key", flags->state_key,
                 "file with a secret of at least 32 bytes: states are saved with a MAC under it, and loaded only with "
                 "that MAC"),
             PathKind::kFile);
  app->add_flag("--expert-stats", flags->expert_stats,
                "which experts of a mixture the tokens went to, by layer: on stderr, or as \"experts\" with --json");
  app->add_flag("--json", flags->json, "one JSON object instead of text");
  app->add_flag("-q,--quiet", flags->quiet, "no figures on stderr");
  return command;
}

}  // namespace baton::cli

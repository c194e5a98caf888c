// Shared flags, output and interrupts.
#include "baton/cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>

#include "baton/api/units.h"
#include "baton/base/clock.h"
#include "baton/base/output_file.h"
#include "baton/base/terminal.h"
#include "baton/cli/child_memory.h"
#include "baton/cli/paths.h"
#include "baton/cli/shared_flags.h"
#include "baton/engine/strategy.h"
#include "baton/text/detokenizer.h"

namespace baton::cli {
namespace {

volatile std::sig_atomic_t interrupt_count = 0, interrupt_ends = 0, interrupt_signal = SIGINT;
void (*restore_at_exit)() = nullptr;
struct sigaction previous_action, previous_terminate, previous_hangup;

extern "C" void on_interrupt(int number) {
  interrupt_count = interrupt_count + 1;
  interrupt_signal = number;
  if (interrupt_ends == 0 && interrupt_count < 3) return;
  remove_temporary_files();
  if (restore_at_exit != nullptr) restore_at_exit();
  ::_exit(interrupted_code());
}

// Unless it was ignored from the start (nohup).
void catch_signal(int number, struct sigaction* previous) {
  ::sigaction(number, nullptr, previous);
  if (previous->sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a waiting read returns
  ::sigaction(number, &action, nullptr);
}

// The parser takes a number past its type's end for the end.
std::string check_seed(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= -1) return "";
  return fmt::format("'{}' is not a whole number from -1 to {}", text, INT64_MAX);
}

std::string check_stop(const CLI::Option& option, const std::string& text) {
  if (text.empty()) return "an empty text is in every answer";
  if (text.size() > StopStrings::kBytesMax) return fmt::format("longer than {} bytes", StopStrings::kBytesMax);
  const size_t count = option.count();
  return count <= StopStrings::kStringsMax ? "" : fmt::format("{} times: at most {}", count, StopStrings::kStringsMax);
}

// Shows text of files in warnings without what commands a terminal.
class SafePayload final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& to) override {
    const std::string text = terminal_safe({message.payload.data(), message.payload.size()}, kMessageShownMax);
    to.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<SafePayload>(); }
};

}  // namespace

void start_logs(bool verbose) {
  auto logger = spdlog::stderr_color_mt("baton");  // colours only on a terminal
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<SafePayload>('*').set_pattern("baton: %^%l%$: %*");
  logger->set_formatter(std::move(formatter));
  logger->set_level(verbose ? spdlog::level::info : spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

void ModelFlags::add_to(CLI::App& app) {
  takes_path(
      app.add_option("-m,--model", model, "model: a Hugging Face folder or a GGUF file (default: the bundled model)"),
      PathKind::kBundledModel);
  app.add_option("--prefill", prefill_unit, "unit that prefills the prompt (default: the decode unit)");
  app.add_option("--decode", decode_unit,
                 "unit that decodes the answer (default: cpu); options behind a colon: cpu:threads=4 (baton units "
                 "--help-options)");
  app.add_option("--via", via_unit, "unit between the two, of strategies that hand over twice");
  app.add_option(
      "--strategy", strategy,
      fmt::format("how the phases are placed: {} (default: by the units)", fmt::join(strategy_names(), ", ")));
  app.add_option("--verify-bridge", verify,
                 "prove the hand-over on the decode unit: off, sample (the hand-over) or all (each token too)")
      ->capture_default_str();
  app.add_option("-t,--threads", threads, "threads of units without that option; 0, the default: physical cores")
      ->check(CLI::Range(0, 1024));
  app.add_flag("-v,--verbose", verbose, "also log what was loaded and skipped (stderr)");
  context_option_ =
      app.add_option("-c,--ctx-size", context, "context: prompt and answer together, in tokens; 0: the model's")
          ->capture_default_str()
          ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
}

Status ModelFlags::settle_units() {
  if (decode_unit.empty()) decode_unit = "cpu";
  if (prefill_unit.empty()) prefill_unit = decode_unit;
  std::vector<UnitChoice> choices;
  std::vector<std::string*> asked = {&decode_unit, &prefill_unit};
  if (!via_unit.empty()) asked.push_back(&via_unit);
  for (const std::string* text : asked) {
    auto choice = parse_unit(*text);
    if (!choice) return fail(Code::kInvalidInput, choice.error().message);
    if (choice->entry->only_prefills && text != &prefill_unit) {
      return fail(Code::kInvalidInput,
                  fmt::format("unit '{}' only prefills: give it with --prefill, and {} another one", *text,
                              text == &via_unit ? "--via" : "--decode"));
    }
    if (std::find(units_.begin(), units_.end(), choice->text()) == units_.end()) units_.push_back(choice->text());
    choices.push_back(*std::move(choice));
  }
  const std::vector<std::string> names = names_of(choices);
  for (size_t i = 0; i < asked.size(); ++i) *asked[i] = names[i];
  return {};
}

Status ModelFlags::settle_strategy() {
  const auto chosen = choose_strategy(strategy, prefill_unit, via_unit, decode_unit);
  if (!chosen) return fail(Code::kInvalidInput, chosen.error().message);
  strategy = (*chosen)->name;
  return {};
}

Status ModelFlags::settle() {
  start_logs(verbose);
  BATON_OK(settle_units());
  BATON_OK(settle_strategy());
  BATON_OK(parse_verify_mode(verify));
  if (const uint32_t processors = std::thread::hardware_concurrency(); processors > 0 && threads > processors) {
    spdlog::warn("-t {}: this machine has {} processors; more threads than that are slower, not faster", threads,
                 processors);
  }
  if (model.empty()) {
    BATON_TRY(const auto path, bundled_model());
    model = path.string();
    bundled = true;
  }
  return {};
}

Result<std::unique_ptr<Runtime>> ModelFlags::open() const {
  if (std::error_code error; !std::filesystem::exists(model, error) && !error) {
    return fail(Code::kNotFound,
                fmt::format("{}: No such file or directory: -m takes a GGUF file or a Hugging Face folder on this "
                            "machine; models are not fetched by name (scripts/fetch_smollm2.sh gets a small one)",
                            model));
  }
  RuntimeOptions options;
  options.model = model;
  options.units = units_;
  options.threads = threads;
  options.limits.tokens_max = context;
  progress(fmt::format("loading {}", model));
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  auto runtime = Runtime::open(options);
  progress("");
  if (!runtime) return runtime;
  spdlog::info("{}: {} parameters, {} bytes, loaded in {:.0f} ms", model, (*runtime)->model().parameter_count(),
               (*runtime)->model().weight_bytes(), ms_between(start_ns, clock.now_ns()));
  for (const std::string& note : (*runtime)->model().notes) spdlog::info("{}", note);
  if (const uint64_t holds = (*runtime)->context_tokens();
      context_option_ != nullptr && context_option_->count() > 0 && context > holds) {
    spdlog::warn("-c {}: the model was made for {} tokens, which is what is used", context, holds);
  }
  const TextModel& text = (*runtime)->text();
  if (text.tokenizer && !text.chat_template) spdlog::warn("{}", text.chat_template_note);
  return runtime;
}

void ModelFlags::apply(Request& request) const {
  request.prefill_unit = prefill_unit;
  request.via_unit = via_unit;
  request.decode_unit = decode_unit;
  request.strategy = strategy;
  request.verify = parse_verify_mode(verify).value_or(VerifyMode::kOff);
}

ProofEvents proof_events(const InterruptScope& interrupts, std::optional<Progress>& meter) {
  ProofEvents events;
  events.on_progress = [&interrupts, &meter, said = std::string()](std::string_view what, double share) mutable {
    if (said != what) {
      said = what;
      fmt::print(stderr, "baton: measuring what honest states differ by, {}, once for this model: it is kept\n", what);
      meter.emplace(said);
    }
    if (share < 1 && !interrupts.interrupted()) {
      meter->show_share(share);
    } else {
      meter->clear();
    }
    return !interrupts.interrupted();
  };
  events.on_note = [](const std::string& text) { spdlog::warn("{}", text); };
  return events;
}

void SamplingFlags::add_to(CLI::App& app) {
  app.add_option("-n,--predict,--n-predict", predict,
                 "tokens to generate at most; -1: until the end of the answer or the context")
      ->capture_default_str()
      ->check(CLI::Range(-1, 1 << 30));
  app.add_option("--temp", temperature, "temperature; 0: greedy")->capture_default_str()->check(real_range(0.0, 100.0));
  app.add_option("--top-k", top_k, "keep the k likeliest tokens; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--top-p", top_p, "keep the likeliest tokens up to this sum; 1: all")
      ->capture_default_str()
      ->check(real_range(0.0001, 1.0));
  app.add_option("--min-p", min_p, "keep tokens at least this likely, relative to the likeliest; 0: all")
      ->capture_default_str()
      ->check(real_range(0.0, 1.0));
  app.add_option("--repeat-penalty", repeat_penalty, "logits of tokens drawn lately are divided by this; 1: off")
      ->capture_default_str()
      ->check(real_range(0.01, 100.0));
  app.add_option("--repeat-last-n", repeat_last_n,
                 "tokens of the answer that the penalties look at; 0: none, -1: all (the prompt does not count)")
      ->capture_default_str()
      ->check(CLI::Range(-1, 1 << 20));
  app.add_option("--presence-penalty", presence_penalty, "taken off the logits of tokens drawn lately; 0: off")
      ->capture_default_str()
      ->check(real_range(-100.0, 100.0));
  app.add_option("--frequency-penalty", frequency_penalty, "the same, for each time a token was drawn; 0: off")
      ->capture_default_str()
      ->check(real_range(-100.0, 100.0));
  app.add_option("-s,--seed", seed, "seed of the draws; -1: a new one each time")
      ->capture_default_str()
      ->check(CLI::Validator(check_seed, "", "seed"));
  app.add_flag("--ignore-eos", ignore_eos, "stop tokens do not stop the answer: they are tokens like others");
  CLI::Option* stop = app.add_option(
      "--stop", stops, fmt::format("text that ends the answer (repeatable; {} at most)", StopStrings::kStringsMax));
  stop->allow_extra_args(false)->check(
      CLI::Validator([stop](const std::string& text) { return check_stop(*stop, text); }, "", "stop"));
}

uint64_t SamplingFlags::settled_seed() {
  if (seed < 0) seed = std::chrono::system_clock::now().time_since_epoch().count() & 0x7fffffff;
  return static_cast<uint64_t>(seed);
}

void SamplingFlags::apply(Request& request) const {
  request.max_new_tokens = predict < 0 ? 1u << 30 : static_cast<uint32_t>(predict);
  request.ignore_eos = ignore_eos;
  request.sampler.temperature = temperature;
  request.sampler.top_k = top_k;
  request.sampler.top_p = top_p;
  request.sampler.min_p = min_p;
  request.sampler.repeat_penalty = repeat_penalty;
  request.sampler.presence_penalty = presence_penalty;
  request.sampler.frequency_penalty = frequency_penalty;
  request.sampler.repeat_last_n = repeat_last_n;
  request.sampler.seed = static_cast<uint64_t>(seed);
}

OrderedJson SamplingFlags::json() const {
  // Through text: 0.8 is not to be 0.800000011920929.
  const auto number = [](float value) { return OrderedJson::parse(fmt::format("{}", value)); };
  return {{"temp", number(temperature)},
          {"top_k", top_k},
          {"top_p", number(top_p)},
          {"min_p", number(min_p)},
          {"repeat_penalty", number(repeat_penalty)},
          {"repeat_last_n", repeat_last_n},
          {"presence_penalty", number(presence_penalty)},
          {"frequency_penalty", number(frequency_penalty)},
          {"seed", seed}};
}

Result<std::filesystem::path> bundled_model() {
  constexpr const char* kName = "dictionary-28m.Q8_0.gguf";
  std::vector<std::filesystem::path> places;
  if (const char* folder = std::getenv("BATON_MODELS")) {
    std::error_code ignored;
    static bool said = false;  // asked for more than once in a run
    if (*folder != '\0' && !std::filesystem::is_directory(folder, ignored) && !std::exchange(said, true)) {
      fmt::print(stderr, "baton: warning: BATON_MODELS: {} is no folder; the bundled model is looked for elsewhere\n",
                 terminal_safe(folder, kNameShownMax));
    }
    places.emplace_back(folder);
  }
  const auto program = program_file().parent_path();
  for (const char* relative : {"../../models", "../share/baton/models", "models"}) places.push_back(program / relative);
  std::string looked;
  for (const auto& place : places) {
    std::error_code ignored;
    if (std::filesystem::exists(place / kName, ignored))
      return std::filesystem::weakly_canonical(place / kName, ignored);
    looked += fmt::format("{}{}", looked.empty() ? "" : ", ", place.lexically_normal().string());
  }
  return fail(
      Code::kNotFound,
      fmt::format("the bundled model {} was not found in {}; give a model with -m, or its folder in BATON_MODELS",
                  kName, looked));
}

InterruptScope::InterruptScope(Signals signals) : signals_(signals) {
  interrupt_count = 0;
  interrupt_ends = 0;
  catch_signal(SIGINT, &previous_action);
  if (signals_ == kInterruptOnly) return;
  catch_signal(SIGTERM, &previous_terminate);
  catch_signal(SIGHUP, &previous_hangup);
}
InterruptScope::~InterruptScope() {
  interrupt_ends = 0;
  ::sigaction(SIGINT, &previous_action, nullptr);
  if (signals_ == kInterruptOnly) return;
  ::sigaction(SIGTERM, &previous_terminate, nullptr);
  ::sigaction(SIGHUP, &previous_hangup, nullptr);
}
void at_forced_exit(void (*restore)()) { restore_at_exit = restore; }
bool InterruptScope::interrupted() const { return interrupt_count > 0 || output_lost(); }
void InterruptScope::clear() { interrupt_count = 0; }
int interrupted_code() { return 128 + static_cast<int>(interrupt_signal); }
void InterruptScope::end_at_once(bool ends) {
  interrupt_ends = ends ? 1 : 0;
  if (ends && interrupt_count > 0) on_interrupt(interrupt_signal);
}

}  // namespace baton::cli

// Shared flags, output and interrupts.
#include "baton/cli/command.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "baton/api/units.h"
#include "baton/base/clock.h"
#include "baton/cli/child_memory.h"

namespace baton::cli {
namespace {

volatile std::sig_atomic_t interrupt_count = 0;
struct sigaction previous_action, previous_terminate, previous_hangup;

extern "C" void on_interrupt(int) {
  interrupt_count = interrupt_count + 1;
  if (interrupt_count > 2) ::_exit(kInterrupted);
}

}  // namespace

int report(const Error& error) {
  fmt::print(stderr, "baton: {}\n", error.message);
  return error.code == Code::kCancelled ? kInterrupted : kFailed;
}

bool print(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

void print_json(const OrderedJson& value) {
  print(value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

void start_logs(bool verbose) {
  auto logger = spdlog::stderr_color_mt("baton");  // colours only on a terminal
  logger->set_pattern("baton: %^%l%$: %v");
  logger->set_level(verbose ? spdlog::level::info : spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

void progress(std::string_view text) {
  if (::isatty(2) != 0) fmt::print(stderr, "\r\x1b[K{}", text);
}

void ModelFlags::add_to(CLI::App& app) {
  app.add_option("-m,--model", model, "model: a Hugging Face folder or a GGUF file (default: the bundled model)");
  app.add_option("--prefill", prefill_unit, "unit that prefills the prompt (default: the decode unit)");
  app.add_option("--decode", decode_unit, "unit that decodes the answer (default: cpu)");
  app.add_option("--strategy", strategy, "how the phases are placed: single or handoff (default: by the units)");
  app.add_option("--verify-bridge", verify,
                 "prove the hand-over on the decode unit: off, sample (the hand-over) or all (each token too)")
      ->capture_default_str();
  app.add_option("-t,--threads", threads, "threads per unit (default: physical cores)")->check(CLI::Range(1, 1024));
  app.add_flag("-v,--verbose", verbose, "also log what was loaded and skipped (stderr)");
  app.add_option("-c,--ctx-size", context, "context: prompt and answer together, in tokens; 0: the model's")
      ->capture_default_str();
}

Status ModelFlags::settle() {
  start_logs(verbose);
  if (decode_unit.empty()) decode_unit = "cpu";
  if (prefill_unit.empty()) prefill_unit = decode_unit;
  std::string names;
  for (const UnitEntry* entry : unit_entries()) names += fmt::format("{}{}", names.empty() ? "" : ", ", entry->name);
  for (const std::string& name : {prefill_unit, decode_unit}) {
    const auto entries = unit_entries();
    if (std::none_of(entries.begin(), entries.end(), [&](const UnitEntry* entry) { return entry->name == name; })) {
      return fail(Code::kInvalidInput, fmt::format("no unit named '{}'; there are: {}", name, names));
    }
  }
  if (strategy.empty()) strategy = prefill_unit == decode_unit ? "single" : "handoff";
  std::string strategies;
  bool found = false;
  for (const std::string_view name : strategy_names()) {
    strategies += fmt::format("{}{}", strategies.empty() ? "" : ", ", name);
    found |= name == strategy;
  }
  if (!found)
    return fail(Code::kInvalidInput, fmt::format("no strategy named '{}'; there are: {}", strategy, strategies));
  if (strategy == "single" && prefill_unit != decode_unit) {
    return fail(Code::kInvalidInput, fmt::format("strategy single runs on one unit, not on {} and {}; use handoff",
                                                 prefill_unit, decode_unit));
  }
  BATON_OK(parse_verify_mode(verify));
  if (model.empty()) {
    BATON_TRY(const auto path, bundled_model());
    model = path.string();
  }
  return {};
}

Result<std::unique_ptr<Runtime>> ModelFlags::open() const {
  RuntimeOptions options;
  options.model = model;
  options.units = {decode_unit};
  if (prefill_unit != decode_unit) options.units.push_back(prefill_unit);
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
  const TextModel& text = (*runtime)->text();
  if (text.tokenizer && !text.chat_template) spdlog::warn("{}", text.chat_template_note);
  return runtime;
}

void ModelFlags::apply(Request& request) const {
  request.prefill_unit = prefill_unit;
  request.decode_unit = decode_unit;
  request.strategy = strategy;
  request.verify = parse_verify_mode(verify).value_or(VerifyMode::kOff);
}

void SamplingFlags::add_to(CLI::App& app) {
  app.add_option("-n,--predict", predict, "tokens to generate at most; -1: until the end of the answer or the context")
      ->capture_default_str()
      ->check(CLI::Range(-1, 1 << 30));
  app.add_option("--temp", temperature, "temperature; 0: greedy")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1000.0));
  app.add_option("--top-k", top_k, "keep the k likeliest tokens; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--top-p", top_p, "keep the likeliest tokens up to this sum; 1: all")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--min-p", min_p, "keep tokens at least this likely, relative to the likeliest; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("-s,--seed", seed, "seed of the draws; -1: a new one each time")->capture_default_str();
  app.add_flag("--ignore-eos", ignore_eos, "stop tokens do not stop the answer: they are tokens like others");
  app.add_option("--stop", stops, "text that ends the answer (repeatable)")->allow_extra_args(false);
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
  request.sampler.seed = static_cast<uint64_t>(seed);
}

Result<std::filesystem::path> bundled_model() {
  constexpr const char* kName = "dictionary-28m.Q8_0.gguf";
  std::vector<std::filesystem::path> places;
  if (const char* folder = std::getenv("BATON_MODELS")) places.emplace_back(folder);
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
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a waiting read returns
  ::sigaction(SIGINT, &action, &previous_action);
  if (signals_ == kInterruptOnly) return;
  ::sigaction(SIGTERM, &action, &previous_terminate);
  ::sigaction(SIGHUP, &action, &previous_hangup);
}
InterruptScope::~InterruptScope() {
  ::sigaction(SIGINT, &previous_action, nullptr);
  if (signals_ == kInterruptOnly) return;
  ::sigaction(SIGTERM, &previous_terminate, nullptr);
  ::sigaction(SIGHUP, &previous_hangup, nullptr);
}
bool InterruptScope::interrupted() const { return interrupt_count > 0; }
void InterruptScope::clear() { interrupt_count = 0; }

}  // namespace baton::cli

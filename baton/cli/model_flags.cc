// From flags to a runtime.
#include "baton/cli/model_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "baton/api/units.h"
#include "baton/base/clock.h"
#include "baton/base/terminal.h"
#include "baton/cli/child_memory.h"
#include "baton/cli/command.h"
#include "baton/cli/paths.h"
#include "baton/cli/shared_flags.h"
#include "baton/engine/strategy.h"
#include "baton/hub/resolve.h"

namespace baton::cli {
namespace {

// As of a shell's variable that is not set: not the default without a word.
CLI::Option* takes_name(CLI::Option* option) {
  return option->check([](const std::string& text) -> std::string { return text.empty() ? "an empty name" : ""; });
}

}  // namespace

void ModelFlags::add_to(CLI::App& app) {
  takes_path(app.add_option(
                 "-m,--model", model,
                 fmt::format("model: a GGUF file, a Hugging Face folder, {} (default: the bundled model)", kOrName)),
             PathKind::kBundledModel);
  add_lora(app, lora);
  takes_name(app.add_option("--prefill", prefill_unit, "unit that prefills the prompt (default: the decode unit)"));
  takes_name(app.add_option("--decode", decode_unit,
                            "unit that decodes the answer (default: cpu); options behind a colon: cpu:threads=4 (baton "
                            "units --help-options)"));
  takes_name(app.add_option("--via", via_unit, "unit between the two, of strategies that hand over twice"));
  takes_name(app.add_option(
      "--strategy", strategy,
      fmt::format("how the phases are placed: {} (default: by the units)", fmt::join(strategy_names(), ", "))));
  add_kv(app, kv);
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
  for (std::string* text : asked) {
    auto with = with_kv(*text, kv);
    if (!with) return fail(Code::kInvalidInput, with.error().message);
    *text = *std::move(with);
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

Status ModelFlags::check_file() const { return hub::check_model(model); }

Result<std::unique_ptr<Runtime>> ModelFlags::open(const EngineLimits& limits, const StateCacheFlags& cache) const {
  BATON_OK(check_file());
  RuntimeOptions options;
  options.model = model;
  BATON_TRY(options.adapters, settle_lora(lora));
  options.units = units_;
  options.threads = threads;
  options.limits = limits;
  options.limits.tokens_max = context;
  cache.apply(options);
  progress(fmt::format("loading {}", model));
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  auto runtime = Runtime::open(options);
  progress("");
  if (!runtime) return runtime;
  spdlog::info("{}: {} parameters, {} bytes, loaded in {:.0f} ms", model, (*runtime)->model().parameter_count(),
               (*runtime)->model().weight_bytes(), ms_between(start_ns, clock.now_ns()));
  for (const std::string& note : (*runtime)->model().notes) spdlog::info("{}", note);
  for (const std::string& note : (*runtime)->unit_notes()) spdlog::warn("{}", note);
  cache.warn_of_removed(**runtime);
  if (const uint64_t holds = (*runtime)->context_tokens();
      context_option_ != nullptr && context_option_->count() > 0 && context > holds) {
    spdlog::warn("-c {}: the model was made for {} tokens, which is what is used", context, holds);
  }
  const TextModel& text = (*runtime)->text();
  if (text.tokenizer && !text.chat_template) spdlog::warn("{}", text.chat_template_note);
  return runtime;
}

uint64_t ModelFlags::memory_bytes() const { return memory_of(units_); }

UnitsFacts ModelFlags::units_facts(const Model& of) const { return baton::units_facts(of, units_); }

std::vector<std::string> ModelFlags::units_that_show() const {
  std::vector<std::string> all;
  for (const std::string& unit : units_) {
    auto choice = parse_unit(unit);
    if (!choice) continue;  // settled before
    for (const std::string_view key : {threads_option().key, cores_option().key}) choice->options.leave_out(key);
    all.push_back(choice->text());
  }
  return all;
}

void ModelFlags::apply(Request& request) const {
  request.prefill_unit = prefill_unit;
  request.via_unit = via_unit;
  request.decode_unit = decode_unit;
  request.strategy = strategy;
  request.verify = parse_verify_mode(verify).value_or(VerifyMode::kOff);
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

}  // namespace baton::cli

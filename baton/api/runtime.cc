// Text around the engine.
#include "baton/api/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

#include "baton/api/units.h"
#include "baton/base/memory_reserve.h"

namespace baton {
namespace {

// Tokens that prefill steps will process: all but the last, and those of the starting state; once more for a proof.
uint64_t prefill_total(const CompletionRequest& completion) {
  const Request& request = completion.request;
  const uint64_t tokens = request.tokens.empty() ? 0 : request.tokens.size() - 1;
  const uint64_t left = tokens - std::min(tokens, completion.start_tokens);
  const bool moves =
      completion.start_tokens > 0 || request.prefill_unit != request.decode_unit || !request.via_unit.empty();
  return left + (request.verify != VerifyMode::kOff && moves ? tokens : 0);
}

}  // namespace

Result<std::unique_ptr<Runtime>> Runtime::open(const RuntimeOptions& options) try {
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  // Units first: an unknown name should not cost a load.
  std::vector<std::pair<std::string, Loaded>> units;
  std::vector<UnitChoice> choices;
  for (const std::string& text : options.units) {
    BATON_TRY(UnitChoice choice, parse_unit(text, options.own_units));
    choices.push_back(std::move(choice));
  }
  const std::vector<std::string> names = names_of(choices);
  for (size_t i = 0; i < choices.size(); ++i) {
    BATON_TRY(auto unit, choices[i].create());
    units.emplace_back(names[i], Loaded{std::move(unit), nullptr, choices[i].text()});
  }
  BATON_TRY(TextModel text,
            load_text_model(options.model, options.limits.tokens_max, ModelUse::kText, options.adapters));
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(text)));
  runtime->path_ = options.model;
  runtime->threads_ = options.threads;
  EngineOptions& engine = runtime->engine_options_;
  engine.limits = options.limits;
  runtime->tokens_max_ = options.limits.tokens_max;
  for (auto& [name, loaded] : units) {
    uint64_t& states = engine.limits.state_bytes_max;
    if (const auto room = state_room(*loaded.unit, *runtime->text_.model); room && states > 0)
      states = std::clamp<uint64_t>(*room, 1, states);
    auto executor = loaded.unit->load(runtime->text_.model, options.threads);
    if (!executor) {
      Error refused = with_units_that_can(std::move(executor).error(), runtime->text_.model->program, *loaded.unit);
      const std::string own = fmt::format("{}: ", loaded.unit->name());
      if (refused.message.starts_with(own)) refused.message.erase(0, own.size());  // the name is said below
      return fail(std::move(refused).in(fmt::format("unit {}", name)));
    }
    loaded.executor = std::move(*executor);
    engine.units.push_back(
        {.name = name, .caps = &loaded.unit->caps(), .executor = loaded.executor.get(), .asked = loaded.asked});
  }
  runtime->units_ = std::move(units);
  std::vector<NamedUnit> named;
  for (const auto& [name, loaded] : runtime->units_) named.push_back({name, *loaded.unit, loaded.asked});
  runtime->unit_notes_ = notes_of(named);
  if (runtime->text_.tokenizer) engine.tokenizer_fingerprint = runtime->text_.tokenizer->fingerprint();
  if (!options.state_cache.empty()) {
    BATON_OK(runtime->open_cache(options));
  }
  BATON_TRY(runtime->engine_, Engine::create(engine));
  runtime->load_ms_ = ms_between(start_ns, clock.now_ns());
  return runtime;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, fmt::format("{}: not enough memory to load it", options.model.string()));
} catch (const std::system_error& error) {
  return fail(Code::kOutOfMemory, fmt::format("cannot start the threads of a unit: {}: take fewer, or allow more "
                                              "processes and memory (ulimit -u, ulimit -v)",
                                              error.code().message()));
}

bool Runtime::close_engine() {
  const std::vector<std::string> hanging = engine_->close();
  for (const std::string& name : hanging) {
    if (Loaded* unit = find_unit(name)) {
      static_cast<void>(unit->executor.release());
      static_cast<void>(unit->unit.release());
    }
  }
  return hanging.empty();
}

bool Runtime::end_engine() {
  if (!engine_) return true;
  const bool all = close_engine();
  engine_.reset();
  return all;
}

Runtime::~Runtime() { end_engine(); }

Status Runtime::begin_engine_anew() {
  const Status health = engine_->health();
  if (health || health.error().code != Code::kOutOfMemory || engine_->has_tickets()) return health;
  if (!close_engine()) return fail(Code::kUnavailable, "a unit hangs in a step: the engine cannot begin anew");
  refill_memory_reserve();
  BATON_TRY(engine_, Engine::create(engine_options_));
  return {};
}

Status Runtime::open_cache(const RuntimeOptions& options) {
  BATON_TRY(const StateIdentity of, identity(options.fingerprint));
  BATON_TRY(state_cache_, StateCache::open({options.state_cache, options.state_cache_bytes, of,
                                            state_shape(model().program, DType::kF32), context_tokens(),
                                            model().spec.vocab, options.state_key}));
  engine_options_.cache = state_cache_.get();
  return {};
}

Status Runtime::save_checkpoints(const std::function<bool(uint64_t done, uint64_t total)>& on_progress) {
  return engine_->save_checkpoints(on_progress);
}

uint64_t Runtime::context_tokens() const {
  const auto model_max = static_cast<uint64_t>(std::max(model().spec.context_max, 1));
  return tokens_max_ == 0 ? model_max : std::min(tokens_max_, model_max);
}

Result<StateIdentity> Runtime::identity(const FingerprintOptions& options) const {
  BATON_TRY(const Fingerprints prints, model().fingerprints(options));
  return StateIdentity{prints.model, prints.quantization, text_.tokenizer ? text_.tokenizer->fingerprint() : 0};
}

std::vector<NamedUnit> Runtime::units() const {
  std::vector<NamedUnit> named;
  for (const auto& [name, loaded] : units_) named.push_back({name, *loaded.unit, loaded.asked});
  return named;
}

std::vector<std::string> Runtime::emulated_units() const {
  std::vector<std::string> names;
  for (const auto& [name, loaded] : units_) {
    if (loaded.executor != nullptr && loaded.executor->placement().emulated) names.push_back(name);
  }
  return names;
}

uint64_t Runtime::device_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, loaded] : units_) bytes += loaded.executor != nullptr ? loaded.executor->device_bytes() : 0;
  return bytes;
}

std::vector<UnitExpertLoads> Runtime::expert_loads() const {
  std::vector<UnitExpertLoads> all;
  for (const auto& [name, loaded] : units_) {
    // One that hangs is let go of.
    auto layers = loaded.executor == nullptr ? std::vector<ExpertLoad>() : loaded.executor->expert_loads();
    if (!layers.empty()) all.push_back({name, std::move(layers)});
  }
  return all;
}

Request Runtime::make_request(std::vector<int32_t> tokens) const {
  Request request;
  request.tokens = std::move(tokens);
  request.stop_ids = text_.stop_ids;
  for (const auto& [name, loaded] : units_) {
    if (loaded.unit->caps().decode_seats_max > 0) request.decode_unit = name;
  }
  request.prefill_unit = units_.front().first;
  if (text_.tokenizer) {
    const auto unused = text_.tokenizer->unused_ids();
    request.sampler.banned_ids.assign(unused.begin(), unused.end());
    // Rows of the embedding past the tokenizer's last id are padding too.
    for (int32_t id = text_.tokenizer->vocab_size(); id < model().spec.vocab; ++id)
      request.sampler.banned_ids.push_back(id);
  }
  return request;
}

Result<std::vector<int32_t>> Runtime::encode(std::string_view text, bool parse_special, TextPlace place) const {
  return encode_text(text_, text, parse_special, place);
}

Result<std::vector<int32_t>> Runtime::encode_chat(const ChatInput& input) const {
  return baton::encode_chat(text_, input);
}

Result<Completion> Runtime::complete(CompletionRequest request, const std::function<void(std::string_view)>& on_text,
                                     const std::function<bool()>& cancelled) try {
  BATON_OK(begin_engine_anew());
  const uint64_t before = engine_->usage().prefilled, expected = prefill_total(request);
  const auto on_prefill = std::move(request.on_prefill);
  const auto on_answer = std::move(request.on_answer);
  const bool goes_on = request.request.reuse == ReuseMode::kAny;
  BATON_TRY(Answer answer, start(std::move(request)));
  const auto shown = [&](std::string_view text) {
    if (on_text) on_text(text);
    if (on_answer) on_answer(answer.so_far());
  };
  while (true) {
    BATON_TRY(auto completion, answer.next(std::chrono::milliseconds(20), shown));
    if (completion) return *std::move(completion);
    if (cancelled && cancelled()) goes_on ? answer.stop() : answer.cancel();
    if (on_prefill && !answer.begun()) on_prefill(std::min(engine_->usage().prefilled - before, expected), expected);
  }
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "out of memory for the answer");
}

}  // namespace baton

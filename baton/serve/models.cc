// A runtime, and what requests of it begin with.
#include "baton/serve/models.h"

#include <algorithm>

#include "baton/serve/answer_figures.h"

namespace baton::serve {
namespace {

constexpr uint64_t kAnswerTokensExpected = 256;  // nobody knows before

}  // namespace

ServedModel::ServedModel(ModelSetup setup, std::unique_ptr<Runtime> runtime)
    : setup_(std::move(setup)),
      runtime_(std::move(runtime)),
      shape_(state_shape(runtime_->model().program, DType::kF32)),
      defaults_(runtime_->make_request({})),
      route_model_(baton::route_model(runtime_->model(), shape_)) {
  setup_.prepare(defaults_);
  for (const auto& [name, unit, asked] : runtime_->units())
    token_bytes_.emplace(name, unit.kept_bytes(runtime_->model()).token);
}

RouteFacts ServedModel::route_facts(uint64_t prompt_tokens, uint64_t cached_tokens, uint64_t answer_tokens) const {
  RouteFacts facts{.model = route_model_, .units = {}, .bridges = {}};
  facts.prompt_tokens = prompt_tokens;
  facts.cached_tokens = cached_tokens;
  facts.answer_tokens = answer_tokens;
  const std::vector<LostUnit> lost = lost_units();
  for (const auto& [name, unit, asked] : runtime_->units()) {
    const Caps& caps = unit.caps();
    RouteUnit& added = facts.units.emplace_back(RouteUnit{.name = std::string(name)});
    added.asked = without_paths(asked);
    added.emulated = caps.emulated;
    added.decodes = caps.decode_seats_max > 0;
    added.prefill_tokens_min = caps.prefill_tokens_min;
    added.token_bytes = token_bytes_.at(std::string(name));
    for (const LostUnit& each : lost) {
      if (each.name == name) added.lost = each.why;
    }
  }
  speeds_.fill(facts);
  loads_.fill(facts);
  return facts;
}

Status ServedModel::measure() {
  std::vector<std::string> names;
  for (const NamedUnit& unit : runtime_->units()) names.emplace_back(unit.name);
  return measure_speeds(*runtime_, names, speeds_);
}

uint64_t ServedModel::prefill_begins(const Request& request) {
  const uint64_t load = load_ids_++;
  for (const baton::Route& route : find_routes(route_facts(request.tokens.size(), 0, 1))) {
    if (route.prefill != request.prefill_unit || route.decode != request.decode_unit) continue;
    loads_.begin(load, route);
    break;
  }
  return load;
}

CompletionRequest ServedModel::make_request(std::vector<int32_t> tokens) const {
  CompletionRequest made{runtime_->make_request(std::move(tokens)), setup_.stops};
  setup_.prepare(made.request);
  if (setup_.dispatch) {
    const auto routes = find_routes(route_facts(made.request.tokens.size(), 0, kAnswerTokensExpected));
    if (!routes.empty() && routes.front().impossible.empty()) {
      made.request.prefill_unit = routes.front().prefill;
      made.request.decode_unit = routes.front().decode;
      made.request.strategy = routes.front().strategy;
      made.request.via_unit.clear();
    }
  }
  if (setup_.reuse) made.request.reuse = ReuseMode::kExact;
  return made;
}

Result<Answer> ServedModel::start(CompletionRequest request) {
  const std::lock_guard lock(engine_mutex_);
  return runtime_->start(std::move(request));
}

Result<std::shared_ptr<TokenConstraint>> ServedModel::constraint(const openai::ApiRequest& request,
                                                                 bool in_reasoning) const {
  const bool calls = openai::must_call(request);
  if (!calls && request.format.kind == AnswerFormat::Kind::kAny) return std::shared_ptr<TokenConstraint>();
  const TextModel& text = runtime_->text();
  std::shared_ptr<FormatCompiler> formats;
  {
    const std::lock_guard lock(formats_mutex_);
    if (!formats_) {
      BATON_TRY(formats_, FormatCompiler::create(text));
    }
    formats = formats_;
  }
  BATON_TRY(auto made, calls ? formats->tool_calls(tool_style_of(text), request.chat.tools, request.tool_name,
                                                   request.parallel_tools)
                             : formats->constraint(request.format));
  return in_reasoning ? formats->behind("</think>", made) : made;
}

EngineUsage ServedModel::usage() const {
  const std::lock_guard lock(engine_mutex_);
  return runtime_->engine().usage();
}

std::vector<LostUnit> ServedModel::lost_units() const {
  const std::lock_guard lock(engine_mutex_);
  return runtime_->engine().lost_units();
}

bool ServedModel::takes_requests(const std::vector<LostUnit>& lost) const {
  const auto works = [&lost](std::string_view name) {
    return std::none_of(lost.begin(), lost.end(), [&](const LostUnit& each) { return each.name == name; });
  };
  if (setup_.dispatch) {
    const std::vector<NamedUnit> units = runtime_->units();
    return std::any_of(units.begin(), units.end(), [&](const NamedUnit& each) {
      return each.unit.caps().decode_seats_max > 0 && works(each.name);
    });
  }
  return works(defaults_.prefill_unit) && works(defaults_.decode_unit) && works(defaults_.via_unit);
}

void ServedModel::tell_lost_units() {
  if (!setup_.on_lost) return;
  for (const LostUnit& each : lost_units()) {
    {
      const std::lock_guard lock(told_mutex_);
      if (!told_.insert(each.name).second) continue;
    }
    setup_.on_lost(each);
  }
}

uint64_t ServedModel::device_bytes() const {
  const std::lock_guard lock(engine_mutex_);
  return runtime_->device_bytes();
}

uint64_t ServedModel::state_bytes(uint64_t tokens) const { return section_bytes(shape_, tokens); }

Status ServedModel::save() {
  const std::lock_guard lock(engine_mutex_);
  return runtime_->state_cache() != nullptr ? runtime_->save_checkpoints() : Status();
}

}  // namespace baton::serve

// GET /v1/routes: where a request would run, and what it rests on.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

constexpr uint64_t kTokensMax = 1'000'000'000, kPromptTokens = 1024, kAnswerTokens = 256;

using Number = std::optional<uint64_t>;  // empty: not given

tl::expected<Number, ApiError> number_of(const http::Request& request, const char* name) {
  const std::string* text = request.parameter(name);
  if (text == nullptr) return Number();
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error == std::errc() && end == text->data() + text->size() && !text->empty() && number <= kTokensMax)
    return Number(number);
  return tl::unexpected(
      ApiError{.message = fmt::format("'{}' takes a number from 0 to {}", name, kTokensMax), .param = name});
}

struct Asked {
  uint64_t prompt = 0, cached = 0, answer = 0;
};

tl::unexpected<ApiError> too_many(const char* name, uint64_t number, const std::string& limit) {
  return tl::unexpected(ApiError{.message = fmt::format("'{}' is {}: {}", name, number, limit), .param = name});
}

// What is not given has its default, as far as that fits `context`; 0: its length is not known.
tl::expected<Asked, ApiError> within(Number prompt, Number cached, Number answer, uint64_t context) {
  const uint64_t most = context > 0 ? context : 2 * kTokensMax;
  const std::string holds = fmt::format("the model's context holds {} tokens", context);
  if (prompt.value_or(0) > most) return too_many("prompt_tokens", *prompt, holds);
  if (answer.value_or(0) > most) return too_many("answer_tokens", *answer, holds);
  if (prompt && answer && *prompt + *answer > most) {
    return too_many("answer_tokens", *answer,
                    fmt::format("with {} of the prompt that is {}, and {}", *prompt, *prompt + *answer, holds));
  }
  Asked made;
  made.prompt = prompt.value_or(std::min(kPromptTokens, most - answer.value_or(std::min(kAnswerTokens, most / 2))));
  made.answer = answer.value_or(std::min(kAnswerTokens, most - made.prompt));
  made.cached = cached.value_or(0);
  if (made.cached > made.prompt) {
    return too_many(
        "cached_tokens", made.cached,
        fmt::format("they are of the prompt, and 'prompt_tokens' is {}; the context holds {}", made.prompt, context));
  }
  return made;
}

tl::expected<Asked, ApiError> asked_of(const http::Request& request, uint64_t context) {
  constexpr std::string_view kNames[] = {"model", "prompt_tokens", "cached_tokens", "answer_tokens"};
  for (const auto& [name, value] : request.query) {
    if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
      return tl::unexpected(ApiError{.message = fmt::format("'{}' is no parameter: it takes model, prompt_tokens, "
                                                            "cached_tokens and answer_tokens",
                                                            name.substr(0, 80)),
                                     .param = name.substr(0, 80)});
    }
  }
  const auto prompt = number_of(request, "prompt_tokens"), cached = number_of(request, "cached_tokens"),
             answer = number_of(request, "answer_tokens");
  for (const auto* number : {&prompt, &cached, &answer}) {
    if (!*number) return tl::unexpected(number->error());
  }
  return within(*prompt, *cached, *answer, context);
}

Json routes_of(const ServedModel& model, const Asked& tokens) {
  const RouteFacts facts = model.route_facts(tokens.prompt, tokens.cached, tokens.answer);
  const Request& asked = model.defaults();
  const bool dispatch = model.setup().dispatch;
  auto routes = find_routes(facts);
  // Before the first request: it goes where it was asked for, or the only way, and nobody knows how long it takes.
  choose_unpredicted(routes, dispatch ? "" : asked.prefill_unit, dispatch ? "" : asked.decode_unit, asked.strategy);
  Json made = routes_json(model.name(), facts, routes);
  made["dispatch"] = dispatch;
  const auto asked_for = [&](const std::string& name) {
    const auto found =
        std::find_if(facts.units.begin(), facts.units.end(), [&](const RouteUnit& unit) { return unit.name == name; });
    return found != facts.units.end() ? found->asked : name;
  };
  if (!dispatch) {
    made["asked"] = {{"prefill", asked_for(asked.prefill_unit)},
                     {"decode", asked_for(asked.decode_unit)},
                     {"strategy", asked.strategy}};
  }
  return made;
}

}  // namespace

void show_routes(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  const std::string* name = exchange->request().parameter("model");
  const ModelPool& models = app.service().models();
  PooledModel* const model = models.find(name != nullptr ? *name : "");
  if (model == nullptr) {
    const bool vectors = models.find_embedder(name != nullptr ? *name : "") != nullptr;
    return respond_error(*exchange, nullptr,
                         {.status = 404,
                          .message = vectors ? "this model makes vectors, on one unit: routes are of models that write"
                                             : "no such model is here: GET /v1/models lists those that are",
                          .param = "model",
                          .code = "model_not_found"});
  }
  const auto asked = asked_of(exchange->request(), model->facts().context_tokens);
  if (!asked) return respond_error(*exchange, nullptr, asked.error());
  // What its units can do is known when it is loaded.
  app.service().with_model(*model, exchange, [exchange, asked = *asked](auto lease) {
    if (!lease) return respond_error(*exchange, nullptr, lease.error(), kRetryMs);
    exchange->respond(json_response(200, routes_of(lease->template as<ServedModel>(), asked)));
  });
}

}  // namespace baton::serve

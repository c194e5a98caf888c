// GET /v1/routes: where a request would run, and what it rests on.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

constexpr uint64_t kTokensMax = 1'000'000'000;

tl::expected<uint64_t, ApiError> number_of(const http::Request& request, const char* name, uint64_t otherwise) {
  const std::string* text = request.parameter(name);
  if (text == nullptr) return otherwise;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error == std::errc() && end == text->data() + text->size() && !text->empty() && number <= kTokensMax)
    return number;
  return tl::unexpected(
      ApiError{.message = fmt::format("'{}' takes a number from 0 to {}", name, kTokensMax), .param = name});
}

struct Asked {
  uint64_t prompt = 0, cached = 0, answer = 0;
};

tl::expected<Asked, ApiError> asked_of(const http::Request& request) {
  constexpr std::string_view kNames[] = {"model", "prompt_tokens", "cached_tokens", "answer_tokens"};
  for (const auto& [name, value] : request.query) {
    if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
      return tl::unexpected(ApiError{.message = fmt::format("'{}' is no parameter: it takes model, prompt_tokens, "
                                                            "cached_tokens and answer_tokens",
                                                            name.substr(0, 80)),
                                     .param = name.substr(0, 80)});
    }
  }
  const auto prompt = number_of(request, "prompt_tokens", 1024), cached = number_of(request, "cached_tokens", 0),
             answer = number_of(request, "answer_tokens", 256);
  for (const auto* number : {&prompt, &cached, &answer}) {
    if (!*number) return tl::unexpected(number->error());
  }
  return Asked{*prompt, *cached, *answer};
}

Json routes_of(const ServedModel& model, const Asked& tokens) {
  const RouteFacts facts = model.route_facts(tokens.prompt, tokens.cached, tokens.answer);
  Json made = routes_json(model.name(), facts, find_routes(facts));
  const Request& asked = model.defaults();
  made["dispatch"] = model.setup().dispatch;
  if (!model.setup().dispatch)
    made["asked"] = {{"prefill", asked.prefill_unit}, {"decode", asked.decode_unit}, {"strategy", asked.strategy}};
  return made;
}

}  // namespace

void show_routes(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  const std::string* name = exchange->request().parameter("model");
  PooledModel* const model = app.service().models().find(name != nullptr ? *name : "");
  if (model == nullptr) {
    return respond_error(*exchange, nullptr,
                         {.status = 404,
                          .message = "no such model is here: GET /v1/models lists those that are",
                          .param = "model",
                          .code = "model_not_found"});
  }
  const auto asked = asked_of(exchange->request());
  if (!asked) return respond_error(*exchange, nullptr, asked.error());
  // What its units can do is known when it is loaded.
  app.service().with_model(*model, exchange, [exchange, asked = *asked](auto lease) {
    if (!lease) return respond_error(*exchange, nullptr, lease.error(), kRetryMs);
    exchange->respond(json_response(200, routes_of(lease->template as<ServedModel>(), asked)));
  });
}

}  // namespace baton::serve

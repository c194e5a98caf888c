// What other interfaces ask beside answers: Ollama's lists of models, Anthropic's count of tokens.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "baton/serve/body.h"
#include "baton/serve/formats/anthropic.h"
#include "baton/serve/formats/ollama.h"
#include "baton/serve/formats/ollama_models.h"
#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

using FormatAnswer = tl::expected<http::Response, ApiError>;

// 28'000'000 as "28M".
std::string rounded_count(uint64_t count) {
  if (count >= 1'000'000'000) return fmt::format("{:.1f}B", static_cast<double>(count) / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.0f}M", static_cast<double>(count) / 1e6);
  return fmt::format("{:.0f}K", static_cast<double>(count) / 1e3);
}

formats::OllamaModel told_of(const ModelStatus& status) {
  const ModelFacts& facts = status.model.facts();
  formats::OllamaModel made;
  made.name = facts.name;
  made.digest = facts.digest;
  made.bytes = facts.weight_bytes;
  made.changed = facts.created;
  made.format = facts.format;
  made.family = facts.family;
  made.parameter_size = rounded_count(facts.parameters);
  made.quantization = facts.quantization;
  made.context_tokens = facts.context_tokens;
  made.embedding_length = facts.width;
  made.model_info["general.parameter_count"] = facts.parameters;
  made.capabilities = {facts.vectors ? "embedding" : "completion"};
  made.chat_template = facts.chat_template;
  if (facts.tools) made.capabilities.emplace_back("tools");
  if (facts.thinking) made.capabilities.emplace_back("thinking");
  for (const std::string& stop : facts.stops) made.parameters += fmt::format("stop {}\n", Json(stop).dump());
  made.loaded = status.loaded;
  made.emulated_units = facts.emulated_units;
  // What devices hold is known; the rest are weights in the host's memory.
  made.device_bytes = status.device_bytes;
  made.loaded_bytes = facts.loaded_bytes() - facts.device_kept_bytes + status.device_bytes;
  if (status.unloads_in) {
    made.expires = std::chrono::duration_cast<std::chrono::seconds>(
                       (std::chrono::system_clock::now() + *status.unloads_in).time_since_epoch())
                       .count();
  }
  return made;
}

std::vector<formats::OllamaModel> all_models(App& app) {
  std::vector<formats::OllamaModel> made;
  for (const ModelStatus& status : app.service().models().status()) made.push_back(told_of(status));
  return made;
}

// On a reader.
void post_on_reader(App& app, const ExchangePtr& exchange, const Protocol& protocol,
                    void (*work)(App& app, const ExchangePtr& exchange)) {
  const bool posted = app.service().post(exchange->request().body.size(), [&app, exchange, work] {
    if (!exchange->gone()) work(app, exchange);
  });
  if (posted) return;
  const ApiError busy{.status = 429,
                      .message = "too many requests wait to be read: ask again later",
                      .type = "rate_limit_error",
                      .code = "overloaded"};
  respond_error(*exchange, &protocol, busy, 1000);
}

// What is made of the body, errors in Ollama's form.
template <FormatAnswer (*kMake)(App& app, const Json& body)>
void answer_ollama(App& app, const ExchangePtr& exchange) {
  post_on_reader(app, exchange, ollama_chat(), [](App& of, const ExchangePtr& asked) {
    auto body = parse_body(asked->request().body);
    auto answered = body ? kMake(of, *body) : FormatAnswer(tl::unexpected(body.error()));
    asked->respond(answered ? *std::move(answered)
                            : json_response(answered.error().status, formats::ollama_error(answered.error())));
  });
}

std::optional<formats::OllamaModel> model_of(App& app, std::string_view name) {
  for (const ModelStatus& status : app.service().models().status()) {
    const ModelFacts& facts = status.model.facts();
    const auto same = [&](const std::string& other) { return formats::same_model(name, other); };
    if (same(facts.name) || std::any_of(facts.aliases.begin(), facts.aliases.end(), same)) return told_of(status);
  }
  return std::nullopt;
}

FormatAnswer made_show(App& app, const Json& body) {
  const auto name = formats::read_show(body);
  if (!name) return tl::unexpected(name.error());
  const auto model = model_of(app, *name);
  if (!model) return tl::unexpected(formats::no_model(*name));
  return json_response(200, formats::show_body(*model));
}

// On a reader. What is not here is fetched where that is allowed.
void answer_pull(App& app, const ExchangePtr& exchange) {
  const auto refuse = [&](const ApiError& error) {
    auto response = json_response(error.status, formats::ollama_error(error));
    if (error.status == 429) response.headers.emplace_back("retry-after", "10");
    exchange->respond(std::move(response));
  };
  auto body = parse_body(exchange->request().body);
  if (!body) return refuse(body.error());
  const auto request = formats::read_pull(*body);
  if (!request) return refuse(request.error());
  if (model_of(app, request->model))
    return exchange->respond({200, {{"content-type", formats::pull_type(*request)}}, formats::pull_answer(*request)});
  if (app.options().puller == nullptr) return refuse(formats::pull_refusal(*request));
  if (const auto begun = app.options().puller->start(exchange, *request); !begun) refuse(begun.error());
}

// On a reader.
void answer_count(App& app, const ExchangePtr& exchange) {
  const auto respond = [exchange](const FormatAnswer& answered) {
    if (!answered) return respond_error(*exchange, &anthropic_messages(), answered.error());
    exchange->respond(*answered);
  };
  auto body = parse_body(exchange->request().body);
  if (!body) return respond(tl::unexpected(body.error()));
  auto request = formats::read_count_tokens(*body);
  if (!request) return respond(tl::unexpected(std::move(request).error()));
  PooledModel* const model = app.service().models().find(request->model);
  if (model == nullptr) return respond(tl::unexpected(formats::no_model(request->model)));
  app.service().with_model(*model, exchange, [respond, request = *std::move(request)](auto lease) {
    if (!lease) return respond(tl::unexpected(std::move(lease).error()));
    const auto tokens = openai::prompt_tokens(lease->template as<ServedModel>().runtime(), request);
    if (!tokens) return respond(tl::unexpected(tokens.error()));
    respond(json_response(200, formats::count_tokens_body(tokens->size())));
  });
}

}  // namespace

void ollama_tags(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  exchange->respond(json_response(200, formats::tags_body(all_models(app))));
}
void ollama_ps(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  exchange->respond(json_response(200, formats::ps_body(all_models(app))));
}
void ollama_version(App& /*app*/, const ExchangePtr& exchange, const Caller& /*caller*/) {
  exchange->respond(json_response(200, formats::version_body(BATON_VERSION)));
}
void ollama_show(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  answer_ollama<made_show>(app, exchange);
}
void ollama_pull(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  post_on_reader(app, exchange, ollama_chat(), answer_pull);
}
void count_tokens(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  post_on_reader(app, exchange, anthropic_messages(), answer_count);
}

}  // namespace baton::serve

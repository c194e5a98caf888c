// What other interfaces ask beside answers: Ollama's lists of models, Anthropic's count of tokens.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "baton/model/container.h"
#include "baton/quant/format.h"
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

// The type that most of the matrices' bytes have.
std::string main_type(const Model& model) {
  std::map<DType, uint64_t> bytes;
  for (const Weight& weight : model.weights) {
    if (weight.rows > 1) bytes[weight.dtype] += weight.bytes;
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : std::string(to_string(most->first));
}

formats::OllamaModel told_of(const ServedModel& served) {
  const Runtime& runtime = served.runtime();
  const Model& model = runtime.model();
  const TextModel& text = runtime.text();
  formats::OllamaModel made;
  made.name = served.name();
  // Not of every byte, which takes reading them all.
  made.digest = fmt::format("{:016x}{:016x}", model.shape_prints.model, model.shape_prints.quantization);
  made.bytes = made.loaded_bytes = model.weight_bytes();
  made.changed = served.created();
  made.format = model.container && model.container->kind == ContainerKind::kGguf ? "gguf" : "safetensors";
  made.family = model.spec.architecture;
  made.parameter_size = rounded_count(model.parameter_count());
  made.quantization = main_type(model);
  made.context_tokens = runtime.context_tokens();
  made.embedding_length = static_cast<uint64_t>(model.spec.hidden);
  made.model_info["general.parameter_count"] = model.parameter_count();
  made.capabilities = {"completion"};
  if (text.chat_template) {
    made.chat_template = text.chat_template->source();
    if (tool_style_of(text) != ToolStyle::kNone) made.capabilities.emplace_back("tools");
    if (made.chat_template.find("enable_thinking") != std::string::npos) made.capabilities.emplace_back("thinking");
  }
  for (const std::string& stop : served.setup().stops) made.parameters += fmt::format("stop {}\n", Json(stop).dump());
  made.loaded = true;
  return made;
}

std::vector<formats::OllamaModel> all_models(App& app) {
  std::vector<formats::OllamaModel> made;
  for (const auto& model : app.service().models().all()) made.push_back(told_of(*model));
  return made;
}

// On a reader: what is made of the body, errors in the interface's form.
void answer_format(App& app, const ExchangePtr& exchange, Json (*error_form)(const ApiError& error),
                   FormatAnswer (*make)(App& app, const Json& body)) {
  const bool posted = app.service().post(exchange->request().body.size(), [&app, exchange, error_form, make] {
    if (exchange->gone()) return;
    auto body = parse_body(exchange->request().body);
    auto answered = body ? make(app, *body) : FormatAnswer(tl::unexpected(body.error()));
    exchange->respond(answered ? *std::move(answered)
                               : json_response(answered.error().status, error_form(answered.error())));
  });
  if (posted) return;
  const ApiError busy{.status = 429,
                      .message = "too many requests wait to be read: ask again later",
                      .type = "rate_limit_error",
                      .code = "overloaded"};
  exchange->respond(json_response(busy.status, error_form(busy)));
}

ServedModel* model_of(App& app, std::string_view name) {
  for (const auto& model : app.service().models().all()) {
    const auto& aliases = model->setup().aliases;
    const auto same = [&](const std::string& other) { return formats::same_model(name, other); };
    if (same(model->name()) || std::any_of(aliases.begin(), aliases.end(), same)) return model.get();
  }
  return nullptr;
}

FormatAnswer made_show(App& app, const Json& body) {
  const auto name = formats::read_show(body);
  if (!name) return tl::unexpected(name.error());
  const ServedModel* model = model_of(app, *name);
  if (model == nullptr) return tl::unexpected(formats::no_model(*name));
  return json_response(200, formats::show_body(told_of(*model)));
}

FormatAnswer made_pull(App& app, const Json& body) {
  const auto request = formats::read_pull(body);
  if (!request) return tl::unexpected(request.error());
  if (model_of(app, request->model) == nullptr) return tl::unexpected(formats::pull_refusal(*request));
  return http::Response{200, {{"content-type", formats::pull_type(*request)}}, formats::pull_answer(*request)};
}

FormatAnswer made_count(App& app, const Json& body) {
  auto request = formats::read_count_tokens(body);
  if (!request) return tl::unexpected(std::move(request).error());
  const ServedModel* model = app.service().models().find(request->model);
  if (model == nullptr) return tl::unexpected(formats::no_model(request->model));
  const auto tokens = openai::prompt_tokens(model->runtime(), *request);
  if (!tokens) return tl::unexpected(tokens.error());
  return json_response(200, formats::count_tokens_body(tokens->size()));
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
  answer_format(app, exchange, formats::ollama_error, made_show);
}
void ollama_pull(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  answer_format(app, exchange, formats::ollama_error, made_pull);
}
void count_tokens(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  answer_format(app, exchange, formats::anthropic_error, made_count);
}

}  // namespace baton::serve

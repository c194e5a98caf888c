// Models, and their text side.
#include <fmt/format.h>

#include "baton/serve/answer_figures.h"
#include "baton/serve/body.h"
#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

using Answered = tl::expected<Json, ApiError>;

tl::unexpected<ApiError> bad(std::string param, std::string message) {
  return tl::unexpected(ApiError{.message = std::move(message), .param = std::move(param)});
}

tl::unexpected<ApiError> no_such_model(std::string_view name) {
  return tl::unexpected(ApiError{
      .status = 404,
      .message = fmt::format("the model '{}' is not here: GET /v1/models lists those that are", name.substr(0, 100)),
      .param = "model",
      .code = "model_not_found"});
}

tl::unexpected<ApiError> of_runtime(const Error& error, std::string_view param) {
  ApiError made = openai::api_error(error, param);
  made.message = without_paths(made.message);
  return tl::unexpected(std::move(made));
}

Json model_json(const ModelStatus& status) {
  const ModelFacts& facts = status.model.facts();
  Json made = {{"id", facts.name},
               {"object", "model"},
               {"created", facts.created},
               {"owned_by", "baton"},
               {"max_model_len", facts.context_tokens},
               {"loaded", status.loaded}};
  if (facts.vectors) made["embedding_length"] = facts.width;
  if (!facts.aliases.empty()) made["aliases"] = facts.aliases;
  return made;
}

using Make = Answered (*)(const Json& body, const ServedModel& model);

void respond_made(const ExchangePtr& exchange, const Answered& answered) {
  if (!answered) return respond_error(*exchange, nullptr, answered.error(), kRetryMs);
  exchange->respond(json_response(200, *answered));
}

// On a reader: the body, the model it names, and what is to be done with both.
void answer_with_model(Service& service, const ExchangePtr& exchange, Make make) {
  auto body = parse_body(exchange->request().body);
  if (!body) return respond_made(exchange, tl::unexpected(std::move(body).error()));
  const Json name = body->value("model", Json(""));
  if (!name.is_string() && !name.is_null()) return respond_made(exchange, bad("model", "'model' is no text"));
  const std::string asked = name.is_string() ? name.get<std::string>() : "";
  PooledModel* const model = service.models().find(asked);
  if (model == nullptr) return respond_made(exchange, no_such_model(asked));
  service.with_model(*model, exchange, [exchange, make, body = *std::move(body)](auto lease) {
    if (!lease) return respond_made(exchange, tl::unexpected(std::move(lease).error()));
    const auto& served = lease->template as<ServedModel>();
    if (!served.runtime().text().tokenizer) return respond_made(exchange, bad("model", "this model has no tokenizer"));
    respond_made(exchange, make(body, served));
  });
}

void answer_with(App& app, const ExchangePtr& exchange, Make make) {
  Service& service = app.service();
  const bool posted = service.post(exchange->request().body.size(), [&service, exchange, make] {
    if (!exchange->gone()) answer_with_model(service, exchange, make);
  });
  if (!posted) {
    respond_error(*exchange, nullptr,
                  {.status = 429,
                   .message = "too many requests wait to be read: ask again later",
                   .type = "rate_limit_error",
                   .code = "overloaded"});
  }
}

tl::expected<bool, ApiError> flag_of(const Json& body, const char* name, bool otherwise) {
  const Json value = body.value(name, Json());
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) return bad(name, fmt::format("'{}' takes true or false", name));
  return value.get<bool>();
}

// The messages of a body, with what goes with them: as a chat's are read.
tl::expected<ChatInput, ApiError> chat_of(const Json& body, const ServedModel& model) {
  Json chat = Json::object();
  for (const char* name : {"messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort"}) {
    if (const auto found = body.find(name); found != body.end()) chat[name] = *found;
  }
  auto request = openai::read_request(openai::Endpoint::kChat, chat, openai::Reader::kServer);
  if (!request) return tl::unexpected(std::move(request).error());
  auto adds = flag_of(body, "add_generation_prompt", true);
  if (!adds) return tl::unexpected(std::move(adds).error());
  request->chat.add_generation_prompt = *adds;
  if (const auto thinking = model.setup().thinking; thinking && !request->thinking)
    request->chat.extra["enable_thinking"] = *thinking;
  return std::move(request->chat);
}

// llama.cpp's `content` and vLLM's `prompt` or `messages`.
Answered make_tokens(const Json& body, const ServedModel& model) {
  const Runtime& runtime = model.runtime();
  const bool chat = body.contains("messages");
  const char* field = chat ? "messages" : body.contains("content") ? "content" : "prompt";
  Result<std::vector<int32_t>> tokens;
  if (chat) {
    auto input = chat_of(body, model);
    if (!input) return tl::unexpected(std::move(input).error());
    tokens = runtime.encode_chat(*input);
  } else {
    const Json text = body.value(field, Json());
    if (!text.is_string()) return bad(field, fmt::format("'{}' is missing, or no text", field));
    const bool theirs = body.contains("content");
    auto special = flag_of(body, theirs ? "add_special" : "add_special_tokens", !theirs);
    auto parses = flag_of(body, "parse_special", true);
    if (!special || !parses) return tl::unexpected(!special ? special.error() : parses.error());
    tokens = runtime.encode(text.get<std::string>(), *parses, *special ? TextPlace::kStart : TextPlace::kContinuation);
  }
  if (!tokens) return of_runtime(tokens.error(), field);
  return Json{{"tokens", *tokens}, {"count", tokens->size()}, {"max_model_len", runtime.context_tokens()}};
}

Answered make_text(const Json& body, const ServedModel& model) {
  const Json list = body.value("tokens", Json());
  if (!list.is_array()) return bad("tokens", "'tokens' is missing: it takes a list of token ids");
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    const int64_t number = id.is_number_integer() ? id.get<int64_t>() : -1;
    if (number < 0 || number > INT32_MAX) return bad("tokens", "'tokens' holds what is no token id");
    ids.push_back(static_cast<int32_t>(number));
  }
  Detokenizer detokenizer(*model.runtime().text().tokenizer, false);
  std::string text;
  for (const int32_t id : ids) {
    auto piece = detokenizer.push(id);
    if (!piece) return of_runtime(piece.error(), "tokens");
    text += *piece;
  }
  text += detokenizer.finish();
  return Json{{"content", text}, {"prompt", text}};
}

Answered make_prompt(const Json& body, const ServedModel& model) {
  const TextModel& text = model.runtime().text();
  if (!text.chat_template) return bad("model", "this model has no chat template");
  auto input = chat_of(body, model);
  if (!input) return tl::unexpected(std::move(input).error());
  input->bos_token = text.bos_text;
  input->eos_token = text.eos_text;
  auto rendered = text.chat_template->render(*input);
  if (!rendered) return of_runtime(rendered.error(), "messages");
  return Json{{"prompt", *std::move(rendered)}};
}

}  // namespace

void show_models(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  Json data = Json::array();
  for (const ModelStatus& status : app.service().models().status()) data.push_back(model_json(status));
  exchange->respond(json_response(200, {{"object", "list"}, {"data", std::move(data)}}));
}

void show_model(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  const std::string name = exchange->request().path.substr(std::string_view("/v1/models/").size());
  for (const ModelStatus& status : app.service().models().status()) {
    if (status.model.facts().is_called(name)) return exchange->respond(json_response(200, model_json(status)));
  }
  respond_error(*exchange, nullptr, no_such_model(name).value());
}

void tokenize(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  answer_with(app, exchange, make_tokens);
}
void detokenize(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  answer_with(app, exchange, make_text);
}
void apply_template(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  answer_with(app, exchange, make_prompt);
}

}  // namespace baton::serve

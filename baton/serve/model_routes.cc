// Models, and their text side.
#include <fmt/format.h>

#include "baton/serve/answer_figures.h"
#include "baton/serve/body.h"
#include "baton/serve/formats/body.h"
#include "baton/serve/routes.h"
#include "baton/text/utf8.h"

namespace baton::serve {
namespace {

using Answered = tl::expected<Json, ApiError>;
using formats::Body;

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
               {"type", "model"},  // this and the next two are Anthropic's
               {"display_name", facts.title.empty() ? facts.name : facts.title},
               {"created_at", formats::utc_time(facts.created)},
               {"created", facts.created},
               {"owned_by", "baton"},
               {"max_model_len", facts.context_tokens},
               {"loaded", status.loaded}};
  if (facts.vectors) made["embedding_length"] = facts.width;
  if (!facts.aliases.empty()) made["aliases"] = facts.aliases;
  say_emulated(made, facts.emulated_units);
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

// The messages of a body, with what goes with them: as a chat's are read. The rest of it was taken.
tl::expected<ChatInput, ApiError> chat_of(Body& body, const ServedModel& model) {
  Json chat = Json::object();
  for (const char* name : {"messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort"}) {
    if (const Json* value = body.take(name); value != nullptr) chat[name] = *value;
  }
  const bool adds = body.flag("add_generation_prompt").value_or(true);
  if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());
  auto request = openai::read_request(openai::Endpoint::kChat, chat, openai::Reader::kServer);
  if (!request) return tl::unexpected(std::move(request).error());
  if (auto shown = openai::check_tools(model.runtime().text(), *request); !shown)
    return tl::unexpected(std::move(shown).error());
  request->chat.add_generation_prompt = adds;
  if (const auto thinking = model.setup().thinking; thinking && !request->thinking)
    request->chat.extra["enable_thinking"] = *thinking;
  return std::move(request->chat);
}

// What a body is made tokens of: one of these fields.
tl::expected<const char*, ApiError> input_of(const Json& body) {
  const char* field = nullptr;
  for (const char* name : {"messages", "content", "prompt"}) {
    if (const auto found = body.find(name); found == body.end() || found->is_null()) continue;
    if (field != nullptr) return bad(name, fmt::format("'{}' stands beside '{}': give one of them", name, field));
    field = name;
  }
  if (field == nullptr) return bad("prompt", "'prompt' is missing: it takes a text, as 'content' does");
  return field;
}

tl::expected<std::vector<int32_t>, ApiError> tokens_of(Body& body, const char* field, const ServedModel& model) {
  const Runtime& runtime = model.runtime();
  Result<std::vector<int32_t>> tokens;
  if (std::string_view(field) == "messages") {
    body.only("add_special_tokens", "[false]");
    body.only("continue_final_message", "[false]");
    auto input = chat_of(body, model);
    if (!input) return tl::unexpected(std::move(input).error());
    tokens = runtime.encode_chat(*input);
  } else {
    const bool theirs = std::string_view(field) == "content";
    const auto text = body.text(field);
    const bool special = body.flag(theirs ? "add_special" : "add_special_tokens").value_or(!theirs);
    const bool parses = body.flag("parse_special").value_or(true);
    if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());
    tokens = runtime.encode(*text, parses, special ? TextPlace::kStart : TextPlace::kStartWithoutBos);
  }
  if (!tokens) return of_runtime(tokens.error(), field);
  return *std::move(tokens);
}

// llama.cpp's `with_pieces`: a text, or the bytes of what is none.
Json pieces_json(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Json list = Json::array();
  for (const int32_t id : ids) {
    const std::string piece =
        tokenizer.is_special(id) ? tokenizer.token_text(id) : std::string(tokenizer.token_bytes(id));
    Json shown = piece;
    if (!is_utf8(piece)) {
      shown = Json::array();
      for (const char c : piece) shown.push_back(static_cast<uint8_t>(c));
    }
    list.push_back({{"id", id}, {"piece", std::move(shown)}});
  }
  return list;
}

// llama.cpp's `content` and vLLM's `prompt` or `messages`.
Answered make_tokens(const Json& json, const ServedModel& model) {
  Body body(json);
  body.ignore({"model"});
  const bool pieces = body.flag("with_pieces").value_or(false);
  const bool strings = body.flag("return_token_strs").value_or(false);
  const auto field = input_of(json);
  if (!field) return tl::unexpected(field.error());
  auto tokens = tokens_of(body, *field, model);
  if (!tokens) return tl::unexpected(std::move(tokens).error());
  const Tokenizer& tokenizer = *model.runtime().text().tokenizer;
  Json made = {{"tokens", pieces ? pieces_json(tokenizer, *tokens) : Json(*tokens)},
               {"count", tokens->size()},
               {"max_model_len", model.runtime().context_tokens()}};
  if (strings) made["token_strs"] = Json::array();
  for (size_t i = 0; strings && i < tokens->size(); ++i)
    made["token_strs"].push_back(tokenizer.token_text((*tokens)[i]));
  return made;
}

Answered make_text(const Json& json, const ServedModel& model) {
  Body body(json);
  body.ignore({"model"});
  const Json* list = body.take("tokens");
  if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());
  if (list == nullptr || !list->is_array()) return bad("tokens", "'tokens' is missing: it takes a list of token ids");
  std::vector<int32_t> ids;
  for (const Json& id : *list) {
    const int64_t number = id.is_number_integer() ? id.get<int64_t>() : -1;
    if (number < 0 || number > INT32_MAX) return bad("tokens", "'tokens' holds what is no token id");
    ids.push_back(static_cast<int32_t>(number));
  }
  Detokenizer detokenizer(*model.runtime().text().tokenizer, false, true);
  std::string text;
  for (const int32_t id : ids) {
    auto piece = detokenizer.push(id);
    if (!piece) return of_runtime(piece.error(), "tokens");
    text += *piece;
  }
  text += detokenizer.finish();
  return Json{{"content", text}, {"prompt", text}};
}

Answered make_prompt(const Json& json, const ServedModel& model) {
  const TextModel& text = model.runtime().text();
  if (!text.chat_template) return bad("model", "this model has no chat template");
  Body body(json);
  body.ignore({"model"});
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

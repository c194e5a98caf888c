// OpenAI's /v1/chat/completions and /v1/completions: what both share, and the chat.
// Chunks: https://platform.openai.com/docs/api-reference/chat-streaming, as server-sent events that end with [DONE].
#include "baton/serve/formats/openai.h"

#include <fmt/format.h>

#include <cmath>

#include "baton/text/utf8.h"

namespace baton::serve {
namespace {

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json token_json(const ShownLogprob& shown) {
  return {{"token", shown.token}, {"logprob", logprob_json(shown.logprob)}, {"bytes", shown.bytes}};
}

Json logprobs_json(const std::vector<ShownLogprob>& logprobs) {
  Json content = Json::array();
  for (const ShownLogprob& shown : logprobs) {
    Json token = token_json(shown);
    token["top_logprobs"] = Json::array();
    for (const ShownLogprob& other : shown.top) token["top_logprobs"].push_back(token_json(other));
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

class ChatWriter final : public OpenAiWriter {
 public:
  explicit ChatWriter(const ApiRequest& request) : OpenAiWriter(request), choices_(request.answers()) {}

  std::string part(uint32_t choice, const AnswerPart& part, const std::vector<ShownLogprob>& logprobs) override {
    Choice& of = choices_[choice];
    Json delta = Json::object();
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        of.text += part.text;
        delta["content"] = part.text;
        break;
      case AnswerPart::Kind::kReasoning:
        of.reasoning += part.text;
        delta["reasoning_content"] = part.text;
        break;
      case AnswerPart::Kind::kToolCall:
        of.calls.push_back({call_id(choice, part.call), part.name, {}});
        delta["tool_calls"] = Json::array({{{"index", part.call},
                                            {"id", of.calls.back().id},
                                            {"type", "function"},
                                            {"function", {{"name", part.name}, {"arguments", ""}}}}});
        break;
      case AnswerPart::Kind::kToolArguments:
        if (part.call < of.calls.size()) of.calls[part.call].arguments += part.text;
        delta["tool_calls"] = Json::array({{{"index", part.call}, {"function", {{"arguments", part.text}}}}});
        break;
    }
    of.logprobs.insert(of.logprobs.end(), logprobs.begin(), logprobs.end());
    if (!request().stream || (part.text.empty() && logprobs.empty() && part.kind != AnswerPart::Kind::kToolCall))
      return {};
    return role(choice) +
           chunk(choice, std::move(delta), request().logprobs ? logprobs_json(logprobs) : Json(nullptr), nullptr);
  }

  std::string end_choice(uint32_t choice, const ChoiceEnd& end) override {
    choices_[choice].finish = finish_word(end.finish);
    if (!request().stream) return {};
    return role(choice) + chunk(choice, Json::object(), nullptr, choices_[choice].finish);
  }

 private:
  struct Call {
    std::string id, name, arguments;
  };
  struct Choice {
    std::string text, reasoning;
    std::vector<Call> calls;
    std::vector<ShownLogprob> logprobs;
    const char* finish = "stop";
    bool role_said = false;
  };

  std::string call_id(uint32_t choice, uint32_t call) const {
    return fmt::format("call_{}{:02}{:02}", head().id.substr(0, 20), choice, call);
  }
  std::string role(uint32_t choice) {
    if (std::exchange(choices_[choice].role_said, true)) return {};
    return chunk(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
  }
  std::string chunk(uint32_t choice, Json delta, Json logprobs, const char* finish) {
    return event({{"index", choice},
                  {"delta", std::move(delta)},
                  {"logprobs", std::move(logprobs)},
                  {"finish_reason", finish == nullptr ? Json(nullptr) : Json(finish)}});
  }
  const char* stream_object() const override { return "chat.completion.chunk"; }
  const char* whole_object() const override { return "chat.completion"; }
  const char* id_prefix() const override { return "chatcmpl-"; }

  Json whole_choices() const override {
    Json list = Json::array();
    for (const Choice& of : choices_) {
      const bool calls_alone = of.text.empty() && !of.calls.empty();
      Json message = {{"role", "assistant"}, {"content", calls_alone ? Json(nullptr) : Json(of.text)}};
      if (!of.reasoning.empty()) message["reasoning_content"] = of.reasoning;
      message["refusal"] = nullptr;
      for (const Call& call : of.calls) {
        message["tool_calls"].push_back({{"id", call.id},
                                         {"type", "function"},
                                         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
      list.push_back({{"index", list.size()},
                      {"message", std::move(message)},
                      {"logprobs", request().logprobs ? logprobs_json(of.logprobs) : Json(nullptr)},
                      {"finish_reason", of.finish}});
    }
    return list;
  }

  std::vector<Choice> choices_;
};

class Chat final : public Protocol {
 public:
  tl::expected<ApiRequest, ApiError> read(const Json& body) const override {
    return openai::read_request(openai::Endpoint::kChat, body, openai::Reader::kServer);
  }
  std::unique_ptr<AnswerWriter> writer(const ApiRequest& request) const override {
    return std::make_unique<ChatWriter>(request);
  }
  Json error_body(const ApiError& error) const override { return openai::error_body(error); }
};

}  // namespace

Json logprob_json(float logprob) {
  if (std::isnan(logprob)) return nullptr;
  return std::isinf(logprob) ? Json(-9999.0) : Json(logprob);
}

const char* finish_word(Finish finish) {
  switch (finish) {
    case Finish::kLength:
      return "length";
    case Finish::kToolCalls:
      return "tool_calls";
    case Finish::kStop:
    case Finish::kStopString:
    case Finish::kCancelled:
      break;
  }
  return "stop";
}

std::string sse_data(const Json& json) {
  return "data: " + json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n\n";
}

std::string OpenAiWriter::content_type() const { return request_.stream ? "text/event-stream" : "application/json"; }

std::string OpenAiWriter::begin(const AnswerHead& head) {
  head_ = head;
  return {};
}

std::string OpenAiWriter::event(Json choice) const {
  Json made = envelope(stream_object());
  made["choices"] = choice.is_null() ? Json::array() : Json::array({std::move(choice)});
  if (request_.include_usage) made["usage"] = nullptr;
  return sse_data(made);
}

Json OpenAiWriter::envelope(const char* object) const {
  return {{"id", id_prefix() + head_.id},
          {"object", object},
          {"created", head_.created},
          {"model", head_.model},
          {"system_fingerprint", text_or_null(head_.fingerprint)}};
}

Json OpenAiWriter::usage(const AnswerTail& tail) {
  return {{"prompt_tokens", tail.prompt_tokens},
          {"completion_tokens", tail.completion_tokens},
          {"total_tokens", tail.prompt_tokens + tail.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", tail.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", tail.reasoning_tokens}}}};
}

std::string OpenAiWriter::end(const AnswerTail& tail) {
  if (!request_.stream) {
    Json made = envelope(whole_object());
    made["choices"] = whole_choices();
    made["usage"] = usage(tail);
    if (!tail.baton.is_null()) made["baton"] = tail.baton;
    return made.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  std::string bytes;
  if (request_.include_usage) {
    Json made = envelope(stream_object());
    made["choices"] = Json::array();
    made["usage"] = usage(tail);
    if (!tail.baton.is_null()) made["baton"] = tail.baton;
    bytes = sse_data(made);
  }
  return bytes + "data: [DONE]\n\n";
}

std::string OpenAiWriter::error(const ApiError& error) { return sse_data(openai::error_body(error)); }

const Protocol& openai_chat() {
  static const Chat chat;
  return chat;
}

}  // namespace baton::serve

// Other interfaces' chats as OpenAI's.
#include <algorithm>

#include "baton/serve/formats/body.h"

namespace baton::serve::formats {

void ChatForm::field(const char* name, Json value, std::string own) {
  fields_[name] = std::move(value);
  if (own != name) names_.emplace_back(name, std::move(own));
}

void ChatForm::same(Body& body, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const Json* value = body.take(name); value != nullptr) field(name, *value, body.path(name));
  }
}

void ChatForm::extensions(Body& body) {
  same(body, {"min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "regex",
              "grammar", "ignore_eos", "stop_token_ids", "chat_template_kwargs"});
}

void ChatForm::called(const std::string& here, const std::string& own, const FieldNames& parts) {
  names_.emplace_back(here, own);
  for (const auto& [part, its_name] : parts) names_.emplace_back(here + part, own + its_name);
}

void ChatForm::message(Json message, const std::string& own, const FieldNames& parts) {
  called("messages[" + std::to_string(messages_.size()) + "]", own, parts);
  messages_.push_back(std::move(message));
}

Json& ChatForm::assistant(const std::string& own) {
  if (messages_.empty() || messages_.back()["role"] != "assistant")
    message({{"role", "assistant"}, {"content", nullptr}}, own);
  return messages_.back();
}

void ChatForm::tool_call(const std::string& id, const std::string& name, const std::string& arguments,
                         const std::string& own, const std::string& own_call, const FieldNames& parts) {
  Json& message = assistant(own);
  if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
  Json& calls = message["tool_calls"];
  called("messages[" + std::to_string(messages_.size() - 1) + "].tool_calls[" + std::to_string(calls.size()) + "]",
         own_call, parts);
  calls.push_back({{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
}

void ChatForm::tool(Json tool, const std::string& own, const FieldNames& parts) {
  Json& tools = fields_["tools"];
  if (tools.is_null()) tools = Json::array();
  called("tools[" + std::to_string(tools.size()) + "]", own, parts);
  tools.push_back(std::move(tool));
}

void ChatForm::reasoning(const std::string& text, const std::string& own) {
  // Reasoning begins a turn: what was said before is another message.
  if (!may_be_said_more()) message({{"role", "assistant"}, {"content", nullptr}}, own);
  Json& message = messages_.back();
  message["reasoning_content"] = message.value("reasoning_content", "") + text;
}

void ChatForm::assistant_text(const std::string& text, const std::string& own) {
  if (!may_be_said_more()) message({{"role", "assistant"}, {"content", nullptr}}, own);
  messages_.back()["content"] = text;
}

bool ChatForm::may_be_said_more() const {
  return !messages_.empty() && messages_.back()["role"] == "assistant" && messages_.back()["content"].is_null() &&
         !messages_.back().contains("tool_calls");
}

void ChatForm::instructions(const std::string& text, const std::string& own) {
  // Templates of many models take one, in front.
  if (messages_.size() == 1 && messages_[0]["role"] == "system") {
    messages_[0]["content"] = messages_[0]["content"].get<std::string>() + "\n\n" + text;
  } else {
    message({{"role", "system"}, {"content", text}}, own);
  }
}

tl::expected<ApiRequest, ApiError> ChatForm::read(const FieldNames& late) const {
  FieldNames names = names_;
  names.insert(names.end(), late.begin(), late.end());
  // "messages[1]" begins no other name, but "tools[1].function" does "tools".
  std::stable_sort(names.begin(), names.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  Json body = fields_;
  body["messages"] = messages_;
  for (Json& message : body["messages"]) {
    if (message["content"].is_null() && !message.contains("tool_calls")) message["content"] = "";
  }
  auto request = openai::read_request(openai::Endpoint::kChat, body, openai::Reader::kServer);
  if (!request) return tl::unexpected(renamed(std::move(request).error(), names));
  return request;
}

}  // namespace baton::serve::formats

// Bodies of /v1/responses: https://platform.openai.com/docs/api-reference/responses/create
#include <fmt/format.h>

#include <algorithm>

#include "baton/serve/formats/responses.h"

namespace baton::serve::formats {
namespace {

constexpr std::string_view kInputTexts[] = {"input_text", "output_text", "text"};
constexpr std::string_view kReasoningTexts[] = {"reasoning_text", "text"};

using ItemReader = Checked (*)(const Json& item, const std::string& where, ChatForm& chat);

Checked read_message_item(const Json& item, const std::string& where, ChatForm& chat) {
  Body body(item, where);
  body.ignore({"type", "id", "status", "phase"});
  const std::string role = body.text("role").value_or("");
  const Json* content = body.take("content");
  if (auto end = body.end(); !end) return end;
  if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
    return refusal(where + ".role", fmt::format("'{}.role' is {}: it takes user, assistant, system or developer", where,
                                                shown_value(item.value("role", Json()))));
  }
  const auto text = joined_text(content == nullptr ? Json() : *content, where + ".content", kInputTexts);
  if (!text) return tl::unexpected(text.error());
  if (role == "assistant") {
    chat.assistant_text(*text, where);
  } else if (role == "user") {
    chat.message({{"role", "user"}, {"content", *text}}, where);
  } else {
    chat.instructions(*text, where);
  }
  return {};
}

Checked read_call_item(const Json& item, const std::string& where, ChatForm& chat) {
  Body body(item, where);
  body.ignore({"type", "id", "status"});
  const auto call = body.text("call_id"), name = body.text("name"), arguments = body.text("arguments");
  body.never({"namespace", "async"}, "there are only functions of the client's");
  body.only("caller", R"([{"type": "direct"}])");
  if (!call) body.put("call_id", "is missing: it takes the id of the call");
  if (!name) body.put("name", "is missing: it takes the name of a function");
  if (!arguments || !Json::accept(*arguments))
    body.put("arguments", "is missing, or no JSON: it takes a text with a JSON object");
  if (auto end = body.end(); !end) return end;
  chat.tool_call(*call, *name, *arguments, where, where, {{".function", ""}, {".id", ".call_id"}});
  return {};
}

Checked read_result_item(const Json& item, const std::string& where, ChatForm& chat) {
  Body body(item, where);
  body.ignore({"type", "id", "status", "name"});
  const auto call = body.text("call_id");
  const Json* output = body.take("output");
  body.never({"namespace"}, "there are only functions of the client's");
  body.only("caller", R"([{"type": "direct"}])");
  if (!call) body.put("call_id", "is missing: it takes the id of the call that this is the result of");
  if (auto end = body.end(); !end) return end;
  const auto text = joined_text(output == nullptr ? Json() : *output, where + ".output", kInputTexts);
  if (!text) return tl::unexpected(text.error());
  chat.message({{"role", "tool"}, {"tool_call_id", *call}, {"content", *text}}, where,
               {{".tool_call_id", ".call_id"}, {".content", ".output"}});
  return {};
}

Checked read_reasoning_item(const Json& item, const std::string& where, ChatForm& chat) {
  Body body(item, where);
  body.ignore({"type", "id", "status", "summary"});
  body.never({"encrypted_content"}, "it cannot be read here, give the reasoning as 'content'");
  const Json* content = body.take("content");
  if (auto end = body.end(); !end) return end;
  if (content == nullptr) return {};
  const auto text = joined_text(*content, where + ".content", kReasoningTexts);
  if (!text) return tl::unexpected(text.error());
  if (!text->empty()) chat.reasoning(*text, where);
  return {};
}

Checked read_item(const Json& item, const std::string& where, ChatForm& chat) {
  if (!item.is_object()) return refusal(where, fmt::format("'{}' is {}: it takes an object", where, shown_value(item)));
  constexpr std::pair<std::string_view, ItemReader> kReaders[] = {{"message", read_message_item},
                                                                  {"function_call", read_call_item},
                                                                  {"function_call_output", read_result_item},
                                                                  {"reasoning", read_reasoning_item}};
  const Json type = item.contains("type") && !item["type"].is_null() ? item["type"] : Json("message");
  for (const auto& [name, reader] : kReaders) {
    if (type == name) return reader(item, where, chat);
  }
  return refusal(where + ".type",
                 fmt::format("'{}.type' is {}, which is not supported: it takes message, function_call, "
                             "function_call_output or reasoning{}",
                             where, shown_value(type),
                             type == "item_reference" ? "; no items are stored here, give them whole" : ""),
                 "unsupported_parameter");
}

void read_input(Body& body, ChatForm& chat) {
  const Json* input = body.take("input");
  if (input != nullptr && input->is_string()) {
    chat.message({{"role", "user"}, {"content", *input}}, "input");
  } else if (input == nullptr || !input->is_array() || input->empty()) {
    body.put("input", fmt::format("is {}: it takes a text, or a list of at least one item",
                                  input == nullptr ? "missing" : shown_value(*input)));
  } else {
    for (size_t i = 0; i < input->size() && !body.failed(); ++i) {
      if (auto read = read_item((*input)[i], fmt::format("input[{}]", i), chat); !read)
        body.put(std::move(read).error());
    }
  }
}

Json read_tool(const Json& tool, const std::string& where, Body& errors) {
  Body body(tool, where);
  if (const auto type = body.text("type"); type != "function") {
    errors.put(ApiError{.message = fmt::format("'{}.type' is {}: only tools of type function are supported", where,
                                               type ? shown_value(Json(*type)) : "missing"),
                        .param = where + ".type",
                        .code = "unsupported_parameter"});
  }
  Json function = Json::object();
  for (const char* name : {"name", "description", "parameters", "strict"}) {
    if (const Json* value = body.take(name); value != nullptr) function[name] = *value;
  }
  body.ignore({"output_schema"});  // of what the client will say
  body.never({"defer_loading", "async"}, "all tools are shown to the model at once");
  body.only("allowed_callers", R"([["direct"]])");
  if (auto end = body.end(); !end) errors.put(std::move(end).error());
  return {{"type", "function"}, {"function", std::move(function)}};
}

void read_tool_fields(Body& body, ChatForm& chat) {
  const Json* tools = body.take("tools");
  if (tools != nullptr && !tools->is_array()) body.put("tools", "takes a list");
  for (size_t i = 0; tools != nullptr && i < tools->size() && !body.failed(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    chat.tool(read_tool((*tools)[i], where, body), where, {{".function", ""}});
  }
  if (const Json* choice = body.take("tool_choice"); choice != nullptr) {
    Json made = *choice;
    if (choice->is_object()) {
      Body named(*choice, "tool_choice");
      named.only("type", R"(["function"])");
      const auto name = named.text("name");
      if (!name) named.put("name", "is missing: it takes the name of a function");
      if (auto end = named.end(); !end) body.put(std::move(end).error());
      made = {{"type", "function"}, {"function", {{"name", name.value_or("")}}}};
    }
    chat.field("tool_choice", std::move(made), "tool_choice");
  }
  chat.same(body, {"parallel_tool_calls"});
}

// OpenAI's chats have a schema's fields one level further down.
Json read_format_field(Body& text) {
  const Json* given = text.take("format");
  if (given == nullptr) return nullptr;
  if (!given->is_object() || given->value("type", Json()) != "json_schema") return *given;
  Body body(*given, "text.format");
  body.ignore({"type"});
  Json schema = Json::object();
  for (const char* name : {"name", "description", "schema", "strict"}) {
    if (const Json* value = body.take(name); value != nullptr) schema[name] = *value;
  }
  if (auto end = body.end(); !end) text.put(std::move(end).error());
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

void read_text_field(Body& body, ChatForm& chat) {
  const Json* text = body.take("text");
  if (text == nullptr) return;
  Body fields(*text, "text");
  Json format = read_format_field(fields);
  fields.only("verbosity", R"(["medium"])");
  if (auto end = fields.end(); !end) body.put(std::move(end).error());
  if (!format.is_null()) chat.field("response_format", std::move(format), "text.format");
}

std::optional<bool> read_effort(Body& body) {
  const Json* reasoning = body.take("reasoning");
  if (reasoning == nullptr) return std::nullopt;
  Body fields(*reasoning, "reasoning");
  fields.ignore({"summary", "generate_summary", "context"});
  fields.only("mode", R"(["standard"])");
  const auto effort = fields.text("effort");
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (effort && std::find(std::begin(kEfforts), std::end(kEfforts), *effort) == std::end(kEfforts)) {
    fields.put("effort", fmt::format("is {}: it takes none, minimal, low, medium, high, xhigh or max",
                                     shown_value(Json(*effort))));
  }
  if (auto end = fields.end(); !end) body.put(std::move(end).error());
  return effort ? std::optional(*effort != "none") : std::nullopt;
}

std::optional<uint32_t> read_logprobs(Body& body) {
  const auto top = body.whole("top_logprobs", 0, 20);
  bool asked = top && *top > 0;
  if (const Json* include = body.take("include"); include != nullptr) {
    if (!include->is_array()) body.put("include", fmt::format("is {}: it takes a list", shown_value(*include)));
    for (size_t i = 0; include->is_array() && i < include->size(); ++i) {
      const Json& one = (*include)[i];
      asked = asked || one == "message.output_text.logprobs";
      if (one == "message.output_text.logprobs" || one == "reasoning.encrypted_content") continue;
      const std::string where = fmt::format("include[{}]", i);
      body.put(
          ApiError{.message = fmt::format("'{}' is {}, which is not supported: leave it out", where, shown_value(one)),
                   .param = where,
                   .code = "unsupported_parameter"});
    }
  }
  return asked ? std::optional(static_cast<uint32_t>(top.value_or(0))) : std::nullopt;
}

void check_metadata(Body& body) {
  const Json* metadata = body.take("metadata");
  if (metadata == nullptr) return;
  bool good = metadata->is_object() && metadata->size() <= 16;
  for (const auto& [key, value] : metadata->items())
    good = good && key.size() <= 64 && value.is_string() && value.get_ref<const std::string&>().size() <= 512;
  if (!good) body.put("metadata", "takes an object of at most 16 texts of 512 bytes, by names of at most 64 bytes");
}

// What an answer says again of its request.
Json echo_of(const Json& body) {
  const auto given = [&](const char* name, Json other) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? other : *found;
  };
  Json text = given("text", Json::object());
  if (!text.contains("format") || text["format"].is_null()) text["format"] = {{"type", "text"}};
  return {{"instructions", given("instructions", nullptr)},
          {"max_output_tokens", given("max_output_tokens", nullptr)},
          {"max_tool_calls", given("max_tool_calls", nullptr)},
          {"metadata", given("metadata", Json::object())},
          {"parallel_tool_calls", given("parallel_tool_calls", true)},
          {"previous_response_id", nullptr},
          {"reasoning", given("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"safety_identifier", given("safety_identifier", nullptr)},
          {"service_tier", "default"},
          {"store", false},  // nothing is
          {"temperature", given("temperature", nullptr)},
          {"text", std::move(text)},
          {"tool_choice", given("tool_choice", "auto")},
          {"tools", given("tools", Json::array())},
          {"top_logprobs", given("top_logprobs", 0)},
          {"top_p", given("top_p", nullptr)},
          {"truncation", "disabled"},
          {"user", given("user", nullptr)}};
}

}  // namespace

FieldNames responses_names() {
  return {{"max_completion_tokens", "max_output_tokens"},
          {"max_tokens", "max_output_tokens"},
          {"messages", "input"},
          {"tool_choice.function", "tool_choice"},
          {"response_format.json_schema", "text.format"},
          {"response_format", "text.format"}};
}

tl::expected<ApiRequest, ApiError> read_responses(const Json& json) {
  Body body(json);
  ChatForm chat;
  body.ignore({"store", "user", "safety_identifier", "service_tier", "prompt_cache_key", "prompt_cache_retention",
               "prompt_cache_options", "stream_options", "max_tool_calls"});
  body.never({"previous_response_id"},
             "no answers are stored here: give the whole conversation as 'input', and leave it out");
  body.never({"conversation", "prompt", "context_management"}, "nothing is stored here: leave it out");
  body.never({"background", "moderation", "image", "access_programs", "background_options"}, "leave it out");
  body.only("truncation", R"(["disabled"])");
  const std::string model = body.text("model").value_or("");
  const bool stream = body.flag("stream").value_or(false);
  if (const auto instructions = body.text("instructions"); instructions && !instructions->empty())
    chat.instructions(*instructions, "instructions");
  read_input(body, chat);
  read_tool_fields(body, chat);
  read_text_field(body, chat);
  const auto thinking = read_effort(body);
  const auto logprobs = read_logprobs(body);
  check_metadata(body);
  if (const Json* most = body.take("max_output_tokens"); most != nullptr)
    chat.field("max_completion_tokens", *most, "max_output_tokens");
  chat.same(body, {"temperature", "top_p", "top_k", "stop"});
  chat.extensions(body);
  if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());

  auto request = chat.read(responses_names());
  if (!request) return request;
  request->model = model;
  request->stream = stream;
  request->logprobs = logprobs;
  if (thinking) set_thinking(*request, *thinking);
  request->user_data = echo_of(json);
  return request;
}

}  // namespace baton::serve::formats

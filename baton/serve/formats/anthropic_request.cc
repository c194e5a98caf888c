// Bodies of /v1/messages: https://docs.anthropic.com/en/api/messages
#include <fmt/format.h>

#include <algorithm>

#include "baton/serve/formats/anthropic.h"

namespace baton::serve::formats {
namespace {

// Text of blocks that may only be texts.
tl::expected<std::string, ApiError> block_texts(const Json& content, const std::string& where) {
  static constexpr std::string_view kTypes[] = {"text"};
  if (content.is_array()) {
    for (size_t i = 0; i < content.size(); ++i) {
      if (!content[i].is_object() || content[i].value("type", Json()) != "text") break;  // named below
      Body block(content[i], fmt::format("{}[{}]", where, i));
      block.ignore({"type", "text", "cache_control"});
      block.never({"citations"}, "leave it out");
      if (auto end = block.end(); !end) return tl::unexpected(std::move(end).error());
    }
  }
  return joined_text(content, where, kTypes);
}

// A message's blocks, in their order.
class MessageBlocks {
 public:
  MessageBlocks(std::string role, std::string where, ChatForm& chat)
      : role_(std::move(role)), where_(std::move(where)), chat_(chat) {}

  Checked read(const Json& block, const std::string& at) {
    const Json type = block.is_object() ? block.value("type", Json()) : Json();
    const bool assistant = role_ == "assistant";
    if (type == "text") return text(block, at);
    if (type == "tool_use" && assistant) return tool_use(block, at);
    if (type == "tool_result" && role_ == "user") return tool_result(block, at);
    if (type == "thinking" && assistant) return thinking(block, at);
    return refusal(at + ".type",
                   fmt::format("'{}.type' is {}, which is not supported in a message of role {}: it takes text{}", at,
                               type.is_null() ? "missing" : shown_value(type), role_,
                               assistant         ? ", tool_use or thinking"
                               : role_ == "user" ? " or tool_result"
                                                 : ""),
                   "unsupported_parameter");
  }

  void end() {
    if (!words_) return;
    if (role_ == "assistant") {
      chat_.assistant_text(*words_, where_);
    } else {
      chat_.message({{"role", role_}, {"content", *words_}}, where_);
    }
    words_.reset();
  }

 private:
  Checked text(const Json& block, const std::string& at) {
    const auto words = block_texts(Json::array({block}), at);
    if (!words) {
      // The block is a list of one there.
      return tl::unexpected(renamed(words.error(), {{at + "[0]", at}}));
    }
    words_ = words_ ? *words_ + "\n" + *words : *words;
    return {};
  }

  Checked tool_use(const Json& block, const std::string& at) {
    Body body(block, at);
    body.ignore({"type", "cache_control"});
    const auto id = body.text("id"), name = body.text("name");
    const Json* input = body.take("input");
    body.only("caller", R"([{"type": "direct"}])");
    body.never({"toolset_name"}, "there are only tools of the client's");
    if (!id) body.put("id", "is missing: it takes the id of the call");
    if (!name) body.put("name", "is missing: it takes the name of a tool");
    if (input == nullptr || !input->is_object()) body.put("input", "is missing, or no object");
    if (auto checked = body.end(); !checked) return checked;
    end();
    chat_.tool_call(*id, *name, json_line(*input), where_, at, {{".function.arguments", ".input"}, {".function", ""}});
    return {};
  }

  Checked tool_result(const Json& block, const std::string& at) {
    Body body(block, at);
    body.ignore({"type", "cache_control"});
    const auto id = body.text("tool_use_id");
    const bool failed = body.flag("is_error").value_or(false);
    const Json* content = body.take("content");
    body.never({"toolset_name"}, "there are only tools of the client's");
    if (!id) body.put("tool_use_id", "is missing: it takes the id of the call that this is the result of");
    if (auto checked = body.end(); !checked) return checked;
    const auto words = block_texts(content == nullptr ? Json("") : *content, at + ".content");
    if (!words) return tl::unexpected(words.error());
    end();
    // Templates have no mark of a call that failed.
    chat_.message({{"role", "tool"}, {"tool_call_id", *id}, {"content", failed ? "Error: " + *words : *words}}, at,
                  {{".tool_call_id", ".tool_use_id"}});
    return {};
  }

  Checked thinking(const Json& block, const std::string& at) {
    Body body(block, at);
    body.ignore({"type", "signature"});
    const auto words = body.text("thinking");
    if (!words) body.put("thinking", "is missing: it takes a text");
    if (auto checked = body.end(); !checked) return checked;
    end();
    if (!words->empty()) chat_.reasoning(*words, where_);
    return {};
  }

  std::string role_, where_;
  ChatForm& chat_;
  std::optional<std::string> words_;  // of blocks side by side
};

Checked read_one_message(const Json& message, const std::string& where, ChatForm& chat) {
  Body body(message, where);
  const std::string role = body.text("role").value_or("");
  const Json* content = body.take("content");
  if (auto end = body.end(); !end) return end;
  if (role != "user" && role != "assistant" && role != "system") {
    return refusal(where + ".role", fmt::format("'{}.role' is {}: it takes user or assistant", where,
                                                shown_value(message.value("role", Json()))));
  }
  if (content == nullptr || (!content->is_string() && !content->is_array()) ||
      (content->is_array() && content->empty()))
    return refusal(where + ".content", fmt::format("'{}.content' is {}: it takes a text, or a list of blocks", where,
                                                   content == nullptr ? "missing" : shown_value(*content)));
  MessageBlocks blocks(role, where, chat);
  const Json list = content->is_array() ? *content : Json::array({{{"type", "text"}, {"text", *content}}});
  for (size_t i = 0; i < list.size(); ++i) {
    if (auto read = blocks.read(list[i], fmt::format("{}.content[{}]", where, i)); !read) return read;
  }
  blocks.end();
  return {};
}

void read_message_list(Body& body, ChatForm& chat) {
  const Json* messages = body.take("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty())
    return body.put("messages", "is missing: it takes a list of at least one message");
  for (size_t i = 0; i < messages->size() && !body.failed(); ++i) {
    if (auto read = read_one_message((*messages)[i], fmt::format("messages[{}]", i), chat); !read)
      body.put(std::move(read).error());
  }
  if (body.failed() || messages->back().value("role", Json()) != "assistant") return;
  const std::string last = fmt::format("messages[{}]", messages->size() - 1);
  body.put(ApiError{.message = fmt::format("'{}' is the assistant's: an answer that is begun is not supported, the "
                                           "last message is the user's",
                                           last),
                    .param = last,
                    .code = "unsupported_parameter"});
}

Json read_one_tool(const Json& tool, const std::string& where, Body& errors) {
  Body body(tool, where);
  Json function = {{"name", body.text("name").value_or("")}};
  if (const auto about = body.text("description")) function["description"] = *about;
  body.only("type", R"(["custom"])");  // others are tools of Anthropic's
  const Json* schema = body.take("input_schema");
  if (schema == nullptr || !schema->is_object()) {
    body.put("input_schema", "is missing: it takes an object, a JSON schema");
  } else {
    function["parameters"] = *schema;
  }
  if (const auto strict = body.flag("strict")) function["strict"] = *strict;
  body.ignore({"cache_control", "eager_input_streaming"});
  body.only("allowed_callers", R"([["direct"]])");
  body.never({"defer_loading"}, "all tools are shown to the model at once");
  body.never({"input_examples"}, "give them in 'description'");
  if (auto end = body.end(); !end) errors.put(std::move(end).error());
  return {{"type", "function"}, {"function", std::move(function)}};
}

void read_tool_choice(Body& body, ChatForm& chat) {
  const Json* given = body.take("tool_choice");
  if (given == nullptr) return;
  Body choice(*given, "tool_choice");
  const std::string type = choice.text("type").value_or("");
  const auto name = choice.text("name");
  const auto alone = choice.flag("disable_parallel_tool_use");
  Json made;
  if (type == "auto" || type == "none") {
    made = type;
  } else if (type == "any") {
    made = "required";
  } else if (type == "tool") {
    made = {{"type", "function"}, {"function", {{"name", name.value_or("")}}}};
    if (!name) choice.put("name", "is missing: it takes the name of a tool");
  } else {
    choice.put("type", "takes auto, any, tool or none");
  }
  if (auto end = choice.end(); !end) return body.put(std::move(end).error());
  chat.field("tool_choice", std::move(made), "tool_choice");
  if (alone) chat.field("parallel_tool_calls", !*alone, "tool_choice.disable_parallel_tool_use");
}

void read_tools_fields(Body& body, ChatForm& chat) {
  const Json* tools = body.take("tools");
  if (tools != nullptr && !tools->is_array()) body.put("tools", "takes a list");
  for (size_t i = 0; tools != nullptr && i < tools->size() && !body.failed(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    chat.tool(read_one_tool((*tools)[i], where, body), where,
              {{".function.parameters", ".input_schema"}, {".function", ""}});
  }
  read_tool_choice(body, chat);
}

bool read_thinking(Body& body) {
  const Json* given = body.take("thinking");
  if (given == nullptr) return false;
  Body thinking(*given, "thinking");
  const std::string type = thinking.text("type").value_or("");
  thinking.whole("budget_tokens", 1, INT32_MAX);
  thinking.only("display", R"(["summarized"])");
  if (type != "enabled" && type != "adaptive" && type != "disabled")
    thinking.put("type", fmt::format("is {}: it takes enabled, adaptive or disabled",
                                     given->is_object() ? shown_value(given->value("type", Json())) : "missing"));
  if (auto end = thinking.end(); !end) body.put(std::move(end).error());
  return type != "disabled";
}

void read_output(Body& body, ChatForm& chat) {
  const Json* given = body.take("output_config");
  if (given == nullptr) return;
  Body output(*given, "output_config");
  output.only("effort", R"(["low", "medium", "high", "xhigh", "max"])");
  if (const Json* format = output.take("format"); format != nullptr) {
    Body fields(*format, "output_config.format");
    fields.only("type", R"(["json_schema"])");
    const Json* schema = fields.take("schema");
    if (schema == nullptr) fields.put("schema", "is missing: it takes a JSON schema");
    if (auto end = fields.end(); !end) output.put(std::move(end).error());
    if (!output.failed())
      chat.field(
          "response_format",
          {{"type", "json_schema"}, {"json_schema", {{"name", "answer"}, {"schema", *schema}, {"strict", true}}}},
          "output_config.format");
  }
  if (auto end = output.end(); !end) body.put(std::move(end).error());
}

tl::expected<ApiRequest, ApiError> read_any(const Json& json, bool counted) {
  Body body(json);
  ChatForm chat;
  body.ignore({"metadata", "service_tier", "inference_geo", "cache_control", "speed"});
  body.never({"container", "mcp_servers", "context_management", "diagnostics", "user_profile_id", "workspace_id"},
             "leave it out");
  const std::string model = body.text("model").value_or("");
  const bool stream = body.flag("stream").value_or(false);
  if (const Json* system = body.take("system"); system != nullptr) {
    const auto text = block_texts(*system, "system");
    if (!text) body.put(text.error());
    if (text && !text->empty()) chat.instructions(*text, "system");
  }
  read_message_list(body, chat);
  read_tools_fields(body, chat);
  const bool thinking = read_thinking(body);
  read_output(body, chat);
  if (const auto most = body.whole("max_tokens", 1, INT32_MAX)) {
    chat.field("max_tokens", *most, "max_tokens");
  } else if (!counted) {
    body.put("max_tokens", "is missing: it takes how many tokens the answer may have");
  }
  if (const Json* stops = body.take("stop_sequences"); stops != nullptr) {
    if (!stops->is_array()) body.put("stop_sequences", fmt::format("is {}: it takes a list", shown_value(*stops)));
    if (!stops->empty()) chat.field("stop", *stops, "stop_sequences");
  }
  chat.same(body, {"temperature", "top_p", "top_k"});
  if (const Json* heat = body.take("temperature"); heat != nullptr && heat->is_number() && *heat > 1)
    body.put("temperature", fmt::format("is {}: it takes a number from 0 to 1", shown_value(*heat)));
  chat.extensions(body);
  if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());

  auto request = chat.read(anthropic_names());
  if (!request) return request;
  request->model = model;
  request->stream = stream;
  set_thinking(*request, thinking);
  return request;
}

}  // namespace

FieldNames anthropic_names() {
  return {{"max_completion_tokens", "max_tokens"},
          {"response_format.json_schema", "output_config.format"},
          {"response_format", "output_config.format"},
          {"tool_choice.function", "tool_choice"},
          {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
          {"stop", "stop_sequences"}};
}

tl::expected<ApiRequest, ApiError> read_messages_body(const Json& body) { return read_any(body, false); }

tl::expected<ApiRequest, ApiError> read_count_tokens(const Json& body) { return read_any(body, true); }

Json count_tokens_body(uint64_t tokens) { return {{"input_tokens", tokens}}; }

}  // namespace baton::serve::formats

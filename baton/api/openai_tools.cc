// Tools in requests: what may be called, what was called, and what came of it.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "baton/api/answer_calls.h"
#include "baton/api/answer_parts.h"
#include "baton/api/json_scan.h"
#include "baton/api/openai.h"

namespace baton::openai {
namespace {

constexpr size_t kToolsMax = 128;
constexpr size_t kToolsBytesMax = size_t{256} << 10;       // of all, as JSON
constexpr size_t kDescriptionBytesMax = size_t{16} << 10;  // of one
constexpr size_t kCallsMax = 128;                          // of one message
constexpr size_t kIdBytesMax = 256;
constexpr int kNestingMax = 48;  // of parameters

using Passed = tl::expected<void, ApiError>;

tl::unexpected<ApiError> no(std::string_view param, std::string_view what, std::string code = {}) {
  return tl::unexpected(
      ApiError{.message = fmt::format("'{}' {}", param, what), .param = std::string(param), .code = std::move(code)});
}

// A value for a message: short, and ASCII. Never of what is nested deep.
std::string brief(const Json& value) {
  if (value.is_structured()) return fmt::format("{} of {}", value.is_array() ? "a list" : "an object", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

// A member that is there and not null.
const Json* given(const Json& of, const char* name) {
  const auto found = of.find(name);
  return found == of.end() || found->is_null() ? nullptr : &*found;
}

bool nested_within(const Json& value, int depth) {
  if (!value.is_structured()) return true;
  return depth > 0 &&
         std::all_of(value.begin(), value.end(), [&](const Json& part) { return nested_within(part, depth - 1); });
}

tl::expected<std::string, ApiError> read_name(const Json& of, const std::string& where) {
  const Json* name = given(of, "name");
  const std::string field = where + ".name";
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (name != nullptr && name->is_string()) {
    const std::string& text = name->get_ref<const std::string&>();
    if (!text.empty() && text.size() <= ToolBook::kNameBytesMax && std::all_of(text.begin(), text.end(), good))
      return text;
  }
  return no(field, fmt::format("is {}: it takes 1 to {} of the letters a-z and A-Z, digits, '_' and '-'",
                               name == nullptr ? "missing" : brief(*name), ToolBook::kNameBytesMax));
}

// Members of an object that are not among these, null aside.
Passed only_members(const Json& of, const std::string& where, std::initializer_list<std::string_view> names) {
  for (const auto& [name, value] : of.items()) {
    if (value.is_null() || std::find(names.begin(), names.end(), name) != names.end()) continue;
    return no(where + "." + name, "is no field that is known here: leave it out", "unknown_parameter");
  }
  return {};
}

Passed check_parameters(const Json& parameters, const std::string& where) {
  if (!parameters.is_object()) return no(where, fmt::format("is {}: it takes a JSON schema", brief(parameters)));
  if (!nested_within(parameters, kNestingMax))
    return no(where, fmt::format("is nested deeper than {} levels: flatten it", kNestingMax));
  if (const Json* type = given(parameters, "type"); type != nullptr && *type != "object")
    return no(where + ".type", fmt::format("is {}: arguments are an object", brief(*type)));
  if (const Json* properties = given(parameters, "properties"); properties != nullptr && !properties->is_object())
    return no(where + ".properties", fmt::format("is {}: it takes an object", brief(*properties)));
  return {};
}

// As the template sees it: without `strict`, which is nothing for the model.
tl::expected<Json, ApiError> read_tool(const Json& tool, const std::string& where) {
  if (!tool.is_object()) return no(where, fmt::format("is {}: it takes an object", brief(tool)));
  if (const Json type = tool.value("type", Json()); type != "function")
    return no(where + ".type", fmt::format("is {}: only tools of type function are supported", brief(type)),
              "unsupported_parameter");
  if (auto known = only_members(tool, where, {"type", "function"}); !known)
    return tl::unexpected(std::move(known).error());
  const std::string place = where + ".function";
  const Json* function = given(tool, "function");
  if (function == nullptr || !function->is_object())
    return no(place, fmt::format("is {}: it takes an object", function == nullptr ? "missing" : brief(*function)));
  if (auto known = only_members(*function, place, {"name", "description", "parameters", "strict"}); !known)
    return tl::unexpected(std::move(known).error());
  auto name = read_name(*function, place);
  if (!name) return tl::unexpected(std::move(name).error());
  Json made = {{"name", *std::move(name)}};
  if (const Json* text = given(*function, "description")) {
    if (!text->is_string() || text->get_ref<const std::string&>().size() > kDescriptionBytesMax)
      return no(place + ".description",
                fmt::format("is {}: it takes a text of at most {} bytes", brief(*text), kDescriptionBytesMax));
    made["description"] = *text;
  }
  made["parameters"] = Json{{"type", "object"}, {"properties", Json::object()}};
  if (const Json* parameters = given(*function, "parameters")) {
    if (auto checked = check_parameters(*parameters, place + ".parameters"); !checked)
      return tl::unexpected(std::move(checked).error());
    made["parameters"] = *parameters;
  }
  if (const Json* strict = given(*function, "strict"); strict != nullptr && !strict->is_boolean())
    return no(place + ".strict", fmt::format("is {}: it takes true or false", brief(*strict)));
  return Json{{"type", "function"}, {"function", std::move(made)}};
}

tl::expected<Json, ApiError> read_tool_list(const Json& tools) {
  if (!tools.is_array() || tools.size() > kToolsMax)
    return no("tools", fmt::format("is {}: it takes a list of at most {}", brief(tools), kToolsMax));
  Json made = Json::array();
  std::set<std::string> names;
  size_t bytes = 0;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    auto tool = read_tool(tools[i], where);
    if (!tool) return tl::unexpected(std::move(tool).error());
    const Json& name = (*tool)["function"]["name"];
    if (!names.insert(name.get<std::string>()).second)
      return no(where + ".function.name", fmt::format("is {}, as another tool's: rename one", brief(name)));
    bytes += tool->dump(-1, ' ', false, Json::error_handler_t::replace).size();
    if (bytes > kToolsBytesMax) return no("tools", fmt::format("has more than {} bytes: shorten it", kToolsBytesMax));
    made.push_back(*std::move(tool));
  }
  return made;
}

bool has_tool(const Json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(), [&](const Json& tool) { return tool["function"]["name"] == name; });
}

Passed read_choice(const Json& choice, const Json& tools, ApiRequest& to) {
  if (choice == "auto" || choice == "none") {
    to.tool_choice = choice == "auto" ? ToolChoice::kAuto : ToolChoice::kNone;
    return {};
  }
  if (tools.empty() && (choice == "required" || choice.is_object()))
    return no("tool_choice", "asks for a call, and 'tools' has none: give tools");
  if (choice == "required") {
    to.tool_choice = ToolChoice::kRequired;
    return {};
  }
  if (!choice.is_object() || choice.value("type", Json()) != "function") {
    return no("tool_choice", fmt::format("is {}: it takes auto, none, required, or {{\"type\": \"function\", "
                                         "\"function\": {{\"name\": NAME}}}}",
                                         brief(choice)));
  }
  if (auto known = only_members(choice, "tool_choice", {"type", "function"}); !known) return known;
  const Json* function = given(choice, "function");
  if (function == nullptr || !function->is_object())
    return no("tool_choice.function", "is missing: it takes {\"name\": NAME}");
  if (auto known = only_members(*function, "tool_choice.function", {"name"}); !known) return known;
  auto name = read_name(*function, "tool_choice.function");
  if (!name) return tl::unexpected(std::move(name).error());
  if (!has_tool(tools, *name))
    return no("tool_choice.function.name", fmt::format("is '{}', which 'tools' lacks", *name));
  to.tool_choice = ToolChoice::kNamed;
  to.tool_name = *std::move(name);
  return {};
}

// A text, or parts of text, joined; null: none.
tl::expected<std::string, ApiError> read_content(const Json* content, const std::string& where) {
  if (content == nullptr) return std::string();
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array())
    return no(where, fmt::format("is {}: it takes a text, or a list of parts", brief(*content)));
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    if (!part.is_object() || part.value("type", Json()) != "text" || !part.value("text", Json()).is_string()) {
      return no(fmt::format("{}[{}]", where, i),
                "is no part of type text: only these are supported, as {\"type\": \"text\", \"text\": TEXT}");
    }
    if (auto known = only_members(part, fmt::format("{}[{}]", where, i), {"type", "text"}); !known)
      return tl::unexpected(std::move(known).error());
    text += (i == 0 ? "" : "\n") + part["text"].get<std::string>();
  }
  return text;
}

tl::expected<std::string, ApiError> read_id(const Json& of, const char* name, const std::string& where) {
  const Json* id = given(of, name);
  const std::string field = where + "." + name;
  if (id == nullptr) return no(field, "is missing: it takes the id of a call");
  if (!id->is_string() || id->get_ref<const std::string&>().empty() ||
      id->get_ref<const std::string&>().size() > kIdBytesMax)
    return no(field, fmt::format("is {}: it takes a text of 1 to {} bytes", brief(*id), kIdBytesMax));
  return id->get<std::string>();
}

// Templates write arguments by their names, or as JSON of their own: they want the object.
tl::expected<Json, ApiError> read_arguments(const Json* arguments, const std::string& where) {
  if (arguments == nullptr) return no(where, "is missing: it takes a JSON object as a text");
  if (arguments->is_object()) {
    if (!nested_within(*arguments, kNestingMax))
      return no(where, fmt::format("is nested deeper than {} levels: flatten it", kNestingMax));
    return *arguments;
  }
  if (!arguments->is_string())
    return no(where, fmt::format("is {}: it takes a JSON object as a text", brief(*arguments)));
  const std::string& text = arguments->get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
  Json made = is_json(text) ? Json::parse(text, nullptr, false) : Json();
  if (!made.is_object() || !nested_within(made, kNestingMax))
    return no(where, fmt::format("is {}: it takes a JSON object as a text, nested at most {} levels", brief(*arguments),
                                 kNestingMax));
  return made;
}

tl::expected<Json, ApiError> read_call(const Json& call, const std::string& where) {
  if (!call.is_object()) return no(where, fmt::format("is {}: it takes an object", brief(call)));
  if (const Json* type = given(call, "type"); type != nullptr && *type != "function")
    return no(where + ".type", fmt::format("is {}: only calls of type function are supported", brief(*type)),
              "unsupported_parameter");
  if (auto known = only_members(call, where, {"id", "type", "function", "index"}); !known)
    return tl::unexpected(std::move(known).error());
  auto id = read_id(call, "id", where);
  if (!id) return tl::unexpected(std::move(id).error());
  const Json* function = given(call, "function");
  const std::string place = where + ".function";
  if (function == nullptr || !function->is_object()) return no(place, "is missing: it takes an object");
  if (auto known = only_members(*function, place, {"name", "arguments"}); !known)
    return tl::unexpected(std::move(known).error());
  auto name = read_name(*function, place);
  if (!name) return tl::unexpected(std::move(name).error());
  auto arguments = read_arguments(given(*function, "arguments"), place + ".arguments");
  if (!arguments) return tl::unexpected(std::move(arguments).error());
  return Json{{"id", *std::move(id)},
              {"type", "function"},
              {"function", {{"name", *std::move(name)}, {"arguments", *std::move(arguments)}}}};
}

tl::expected<Json, ApiError> read_calls(const Json& calls, const std::string& where) {
  if (!calls.is_array() || calls.empty() || calls.size() > kCallsMax)
    return no(where, fmt::format("is {}: it takes a list of 1 to {} calls", brief(calls), kCallsMax));
  Json made = Json::array();
  std::set<std::string> ids;
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    auto call = read_call(calls[i], place);
    if (!call) return tl::unexpected(std::move(call).error());
    if (!ids.insert((*call)["id"].get<std::string>()).second)
      return no(place + ".id", fmt::format("is {}, as another call's: each has its own", brief((*call)["id"])));
    made.push_back(*std::move(call));
  }
  return made;
}

// A result answers a call of the last assistant's message in front of it, each once.
Passed check_results(const Json& messages) {
  std::set<std::string> open;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object()) continue;  // another reader's error, as what is no text below
    const Json role = message.value("role", Json());
    if (role != "tool") {
      if (role == "assistant" || role == "user") open.clear();
      const Json* calls = role == "assistant" ? given(message, "tool_calls") : nullptr;
      if (calls == nullptr || !calls->is_array()) continue;
      for (const Json& call : *calls) {
        const Json* id = call.is_object() ? given(call, "id") : nullptr;
        if (id != nullptr && id->is_string()) open.insert(id->get<std::string>());
      }
      continue;
    }
    const Json* id = given(message, "tool_call_id");
    if (id == nullptr || !id->is_string() || open.erase(id->get<std::string>()) == 1) continue;
    return no(fmt::format("messages[{}].tool_call_id", i),
              fmt::format("is {}, which answers no call of the assistant's message before it, or answers one again",
                          brief(*id)));
  }
  return {};
}

}  // namespace

tl::expected<void, ApiError> read_tools(const Json& body, ApiRequest& to) {
  if (!body.is_object()) return {};
  Json tools = Json::array();
  if (const Json* list = given(body, "tools")) {
    auto read = read_tool_list(*list);
    if (!read) return tl::unexpected(std::move(read).error());
    tools = *std::move(read);
  }
  if (const Json* choice = given(body, "tool_choice")) {
    if (auto read = read_choice(*choice, tools, to); !read) return read;
  }
  if (const Json* parallel = given(body, "parallel_tool_calls")) {
    if (!parallel->is_boolean())
      return no("parallel_tool_calls", fmt::format("is {}: it takes true or false", brief(*parallel)));
    to.parallel_tools = parallel->get<bool>();
  }
  if (const Json* messages = given(body, "messages"); messages != nullptr && messages->is_array()) {
    if (auto checked = check_results(*messages); !checked) return checked;
  }
  // Tools that must not be called are not shown to the model.
  to.chat.tools = tools.empty() || to.tool_choice == ToolChoice::kNone ? Json() : std::move(tools);
  return {};
}

tl::expected<Json, ApiError> read_tool_message(const Json& message, const std::string& where) {
  if (!message.is_object()) return no(where, fmt::format("is {}: it takes an object", brief(message)));
  const Json role = message.value("role", Json());
  const bool result = role == "tool";
  if (!result && role != "assistant")
    return no(where + ".role", fmt::format("is {}: results are of role tool, calls of role assistant", brief(role)));
  const Json* content = given(message, "content");
  if (result && content == nullptr) return no(where + ".content", "is missing: it takes the result as a text");
  auto text = read_content(content, where + ".content");
  if (!text) return tl::unexpected(std::move(text).error());
  Json made = {{"role", role}, {"content", *std::move(text)}};
  for (const auto& [name, value] : message.items()) {
    const std::string field = where + "." + name;
    if (value.is_null() || name == "role" || name == "content" || name == "tool_calls") continue;
    if (!result && name == "annotations" && value == Json::array()) continue;
    if (result && name == "tool_call_id") continue;
    const bool known = name == "name" || (!result && name == "reasoning_content");
    if (!known || !value.is_string())
      return no(field, fmt::format("is {}, which is not supported: leave it out", brief(value)),
                "unsupported_parameter");
    made[name] = value;
  }
  if (result) {
    if (given(message, "tool_calls") != nullptr)
      return no(where + ".tool_calls", "is of assistants, not of results: leave it out", "unsupported_parameter");
    auto id = read_id(message, "tool_call_id", where);
    if (!id) return tl::unexpected(std::move(id).error());
    made["tool_call_id"] = *std::move(id);
    return made;
  }
  const Json* calls = given(message, "tool_calls");
  auto read = read_calls(calls == nullptr ? Json() : *calls, where + ".tool_calls");
  if (!read) return tl::unexpected(std::move(read).error());
  made["tool_calls"] = *std::move(read);
  return made;
}

tl::expected<void, ApiError> check_tools(const TextModel& model, const ApiRequest& request) {
  if (must_call(request) && request.format.kind != AnswerFormat::Kind::kAny) {
    return no("response_format",
              "goes with a tool_choice of auto or none: with another one the answer is calls of tools, and no text");
  }
  if (request.chat.tools.is_null() || request.chat.tools.empty()) return {};
  if (tool_style_of(model) != ToolStyle::kNone) return {};
  return no("tools",
            "cannot be used: the model's chat template has no tools, or none in a form that is known here; "
            "leave it out, or choose another model",
            "unsupported_parameter");
}

bool must_call(const ApiRequest& request) {
  const bool asked = request.tool_choice == ToolChoice::kRequired || request.tool_choice == ToolChoice::kNamed;
  return asked && !request.chat.tools.is_null() && !request.chat.tools.empty();
}

}  // namespace baton::openai

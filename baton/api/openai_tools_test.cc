// Tools in requests: what is read, what is refused and by which name, and what templates make of it.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "baton/api/answer_parts.h"
#include "baton/api/openai.h"

namespace baton::openai {
namespace {

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "weather", "description": "Of a place", "strict": true,
    "parameters": {"type": "object", "properties": {"place": {"$ref": "#/$defs/place"}}, "required": ["place"],
      "$defs": {"place": {"type": "string"}}}}},
  {"type": "function", "function": {"name": "now"}}])";

Json tools() { return Json::parse(kTools); }

// The tools with one thing exchanged: a JSON pointer and a value.
Json tools_with(const char* pointer, const Json& value) {
  Json made = tools();
  made[Json::json_pointer(pointer)] = value;
  return made;
}

tl::expected<ApiRequest, ApiError> read(const Json& body) {
  ApiRequest request;
  if (auto done = read_tools(body, request); !done) return tl::unexpected(done.error());
  return request;
}

std::string refused(const Json& body) {
  const auto done = read(body);
  if (done) return "accepted";
  EXPECT_EQ(done.error().status, 400);
  EXPECT_TRUE(done.error().message.starts_with("'" + done.error().param + "'")) << done.error().message;
  return done.error().param;
}

std::string refused_message(const char* message) {
  const auto done = read_tool_message(Json::parse(message), "messages[3]");
  if (done) return "accepted";
  EXPECT_TRUE(done.error().message.starts_with("'" + done.error().param + "'")) << done.error().message;
  return done.error().param;
}

TEST(OpenAiTools, AreReadAsTheTemplateSeesThem) {
  const auto request = read({{"tools", tools()}});
  ASSERT_TRUE(request) << request.error().message;
  Json expected = tools();
  expected[0]["function"].erase("strict");
  expected[1]["function"]["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
  EXPECT_EQ(request->chat.tools, expected);
  EXPECT_EQ(request->chat.tools.dump(), expected.dump());  // in their order
  EXPECT_EQ(request->tool_choice, ToolChoice::kAuto);
  EXPECT_TRUE(request->parallel_tools);
}

TEST(OpenAiTools, NothingGivenIsNothing) {
  for (const char* body : {"{}", R"({"tools": null, "tool_choice": null, "parallel_tool_calls": null})",
                           R"({"tools": [], "tool_choice": "auto"})", R"({"tool_choice": "none"})"}) {
    const auto request = read(Json::parse(body));
    ASSERT_TRUE(request) << body;
    EXPECT_TRUE(request->chat.tools.is_null());
  }
}

TEST(OpenAiTools, Choices) {
  const auto choose = [](const Json& choice) { return read({{"tools", tools()}, {"tool_choice", choice}}); };
  EXPECT_EQ(choose("auto")->tool_choice, ToolChoice::kAuto);
  EXPECT_EQ(choose("required")->tool_choice, ToolChoice::kRequired);
  const auto none = choose("none");
  EXPECT_EQ(none->tool_choice, ToolChoice::kNone);
  EXPECT_TRUE(none->chat.tools.is_null());
  const auto named = choose(Json::parse(R"({"type": "function", "function": {"name": "now"}})"));
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ(named->tool_choice, ToolChoice::kNamed);
  EXPECT_EQ(named->tool_name, "now");
  EXPECT_FALSE(read({{"tools", tools()}, {"parallel_tool_calls", false}})->parallel_tools);

  const auto bad = [&](const char* choice) {
    return refused({{"tools", tools()}, {"tool_choice", Json::parse(choice)}});
  };
  EXPECT_EQ(bad("\"any\""), "tool_choice");
  EXPECT_EQ(bad("5"), "tool_choice");
  EXPECT_EQ(bad(R"({"type": "allowed_tools"})"), "tool_choice");
  EXPECT_EQ(bad(R"({"type": "function"})"), "tool_choice.function");
  EXPECT_EQ(bad(R"({"type": "function", "name": "now"})"), "tool_choice.name");
  EXPECT_EQ(bad(R"({"type": "function", "function": {"name": "other"}})"), "tool_choice.function.name");
  EXPECT_EQ(refused({{"tool_choice", "required"}}), "tool_choice");
  EXPECT_EQ(refused({{"tools", Json::array()}, {"tool_choice", "required"}}), "tool_choice");
  EXPECT_EQ(refused({{"parallel_tool_calls", 1}}), "parallel_tool_calls");
}

TEST(OpenAiTools, WhatIsWrongWithAToolIsNamed) {
  const auto bad = [](const char* pointer, const Json& value) {
    return refused({{"tools", tools_with(pointer, value)}});
  };
  EXPECT_EQ(refused({{"tools", 5}}), "tools");
  EXPECT_EQ(bad("/1", "now"), "tools[1]");
  EXPECT_EQ(bad("/1/type", "custom"), "tools[1].type");
  EXPECT_EQ(bad("/1/more", 1), "tools[1].more");
  EXPECT_EQ(bad("/1/function", nullptr), "tools[1].function");
  EXPECT_EQ(bad("/1/function/more", 1), "tools[1].function.more");
  EXPECT_EQ(bad("/1/function/name", nullptr), "tools[1].function.name");
  EXPECT_EQ(bad("/1/function/name", ""), "tools[1].function.name");
  EXPECT_EQ(bad("/1/function/name", "a b"), "tools[1].function.name");
  EXPECT_EQ(bad("/1/function/name", "\xC3\xBC"), "tools[1].function.name");
  EXPECT_EQ(bad("/1/function/name", std::string(65, 'a')), "tools[1].function.name");
  EXPECT_EQ(bad("/1/function/name", std::string(64, 'a')), "accepted");
  EXPECT_EQ(bad("/1/function/name", "weather"), "tools[1].function.name");
  EXPECT_EQ(bad("/1/function/description", 5), "tools[1].function.description");
  EXPECT_EQ(bad("/1/function/description", std::string(20'000, 'a')), "tools[1].function.description");
  EXPECT_EQ(bad("/1/function/parameters", "{}"), "tools[1].function.parameters");
  EXPECT_EQ(bad("/1/function/parameters", {{"type", "string"}}), "tools[1].function.parameters.type");
  EXPECT_EQ(bad("/1/function/parameters", {{"properties", 5}}), "tools[1].function.parameters.properties");
  EXPECT_EQ(bad("/1/function/strict", "yes"), "tools[1].function.strict");
}

TEST(OpenAiTools, HaveBounds) {
  Json many = Json::array();
  for (int i = 0; i < 129; ++i) many.push_back({{"type", "function"}, {"function", {{"name", std::to_string(i)}}}});
  EXPECT_EQ(refused({{"tools", many}}), "tools");
  many.erase(128);
  EXPECT_EQ(refused({{"tools", many}}), "accepted");
  const Json large = {{"properties", {{"a", {{"description", std::string(300'000, 'x')}}}}}};
  EXPECT_EQ(refused({{"tools", tools_with("/1/function/parameters", large)}}), "tools");
  const std::string deep = "{\"properties\": " + std::string(5000, '[') + std::string(5000, ']') + "}";
  EXPECT_EQ(refused({{"tools", tools_with("/1/function/parameters", Json::parse(deep))}}),
            "tools[1].function.parameters");
}

TEST(OpenAiTools, CallsAndResultsAreReadForTemplates) {
  const auto call = read_tool_message(Json::parse(R"({"role": "assistant", "content": null, "refusal": null,
      "reasoning_content": "hm", "annotations": [], "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": " {\"b\": 1.5, \"a\": [null]}"}},
      {"id": "c2", "type": "function", "index": 1, "function": {"name": "now", "arguments": ""}}]})"),
                                      "messages[1]");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(*call, Json::parse(R"({"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"b": 1.5, "a": [null]}}},
      {"id": "c2", "type": "function", "function": {"name": "now", "arguments": {}}}]})"));
  const auto result = read_tool_message(Json::parse(R"({"role": "tool", "tool_call_id": "c1", "name": "weather",
      "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})"),
                                        "messages[2]");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(*result, Json({{"role", "tool"}, {"content", "a\nb"}, {"name", "weather"}, {"tool_call_id", "c1"}}));
}

TEST(OpenAiTools, WhatIsWrongWithAMessageIsNamed) {
  const auto result = [](const char* more) {
    return refused_message((R"({"role": "tool", )" + std::string(more)).c_str());
  };
  EXPECT_EQ(result(R"("content": "x", "tool_call_id": "c"})"), "accepted");
  EXPECT_EQ(result(R"("content": "", "tool_call_id": "c"})"), "accepted");
  EXPECT_EQ(result(R"("content": null, "tool_call_id": "c"})"), "messages[3].content");
  EXPECT_EQ(result(R"("content": {}, "tool_call_id": "c"})"), "messages[3].content");
  EXPECT_EQ(result(R"("content": [{"type": "image_url"}], "tool_call_id": "c"})"), "messages[3].content[0]");
  EXPECT_EQ(result(R"("content": "x"})"), "messages[3].tool_call_id");
  EXPECT_EQ(result(R"("content": "x", "tool_call_id": ""})"), "messages[3].tool_call_id");
  EXPECT_EQ(result(R"("content": "x", "tool_call_id": 5})"), "messages[3].tool_call_id");
  EXPECT_EQ(result(R"("content": "x", "tool_call_id": "c", "reasoning_content": "x"})"),
            "messages[3].reasoning_content");
  EXPECT_EQ(result(R"("content": "x", "tool_call_id": "c", "more": 1})"), "messages[3].more");

  const auto calls = [](const std::string& list) {
    return refused_message((R"({"role": "assistant", "tool_calls": )" + list + "}").c_str());
  };
  const auto call = [&](const std::string& more) { return calls("[{\"type\": \"function\", " + more + "}]"); };
  const auto arguments = [&](const Json& value) {
    return call(R"("id": "c", "function": {"name": "f", "arguments": )" + value.dump() + "}");
  };
  EXPECT_EQ(arguments("{}"), "accepted");
  EXPECT_EQ(arguments(Json::object()), "accepted");
  for (const Json& bad : {Json("[]"), Json("{"), Json("{} {}"), Json("null"), Json(5), Json(nullptr),
                          Json("{\"a\": 1e999}"), Json("{\"a\": " + std::string(100'000, '['))}) {
    EXPECT_EQ(arguments(bad), "messages[3].tool_calls[0].function.arguments");
  }
  EXPECT_EQ(calls("[]"), "messages[3].tool_calls");
  EXPECT_EQ(calls("{}"), "messages[3].tool_calls");
  EXPECT_EQ(calls("[5]"), "messages[3].tool_calls[0]");
  EXPECT_EQ(call(R"("function": {"name": "f", "arguments": "{}"})"), "messages[3].tool_calls[0].id");
  EXPECT_EQ(call(R"("id": "c")"), "messages[3].tool_calls[0].function");
  EXPECT_EQ(call(R"("id": "c", "more": 1, "function": {"name": "f", "arguments": "{}"})"),
            "messages[3].tool_calls[0].more");
  EXPECT_EQ(call(R"("id": "c", "function": {"name": "a b", "arguments": "{}"})"),
            "messages[3].tool_calls[0].function.name");
  EXPECT_EQ(calls(R"([{"id": "c", "type": "custom"}])"), "messages[3].tool_calls[0].type");
  EXPECT_EQ(calls(R"([{"id": "c", "function": {"name": "f", "arguments": "{}"}},
                      {"id": "c", "function": {"name": "f", "arguments": "{}"}}])"),
            "messages[3].tool_calls[1].id");
  EXPECT_EQ(refused_message(R"({"role": "user", "content": "x"})"), "messages[3].role");
}

TEST(OpenAiTools, AResultAnswersACall) {
  const auto chat = [](const char* messages) { return refused({{"messages", Json::parse(messages)}}); };
  EXPECT_EQ(chat(R"([{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]},
      {"role": "tool", "tool_call_id": "b"}, {"role": "tool", "tool_call_id": "a"}])"),
            "accepted");
  EXPECT_EQ(chat(R"([{"role": "user"}, {"role": "tool", "tool_call_id": "a"}])"), "messages[1].tool_call_id");
  EXPECT_EQ(chat(R"([{"role": "assistant", "tool_calls": [{"id": "a"}]}, {"role": "tool", "tool_call_id": "b"}])"),
            "messages[1].tool_call_id");
  EXPECT_EQ(chat(R"([{"role": "assistant", "tool_calls": [{"id": "a"}]}, {"role": "tool", "tool_call_id": "a"},
      {"role": "tool", "tool_call_id": "a"}])"),
            "messages[2].tool_call_id");
  EXPECT_EQ(chat(R"([{"role": "assistant", "tool_calls": [{"id": "a"}]}, {"role": "user"},
      {"role": "tool", "tool_call_id": "a"}])"),
            "messages[2].tool_call_id");
}

TextModel model_of(const char* chat_template) {
  TextModel model;
  if (chat_template != nullptr) model.chat_template = ChatTemplate::parse(chat_template).value();
  return model;
}

TEST(OpenAiTools, ATemplateWithoutToolsRefusesThem) {
  ApiRequest request;
  EXPECT_TRUE(check_tools(model_of("{{ messages[0].content }}"), request));
  request.chat.tools = tools();
  EXPECT_TRUE(check_tools(model_of("{{ tools }} <tool_call>{\"arguments\": "), request));
  for (const char* none :
       {"{{ messages[0].content }}", "{{ tools }} [TOOL_CALLS]", static_cast<const char*>(nullptr)}) {
    const auto checked = check_tools(model_of(none), request);
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().param, "tools");
    EXPECT_EQ(checked.error().status, 400);
  }
}

TEST(OpenAiTools, ACallThatMustBeMadeIsNoFormat) {
  const TextModel model = model_of("{{ tools }} <tool_call>{\"arguments\": ");
  ApiRequest request;
  request.chat.tools = tools();
  request.format.kind = AnswerFormat::Kind::kJsonObject;
  EXPECT_TRUE(check_tools(model, request));
  request.tool_choice = ToolChoice::kRequired;
  const auto checked = check_tools(model, request);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().param, "response_format");
}

// ---- With templates like those of models.

std::string template_text(const std::string& name) {
  std::ifstream stream(std::string(BATON_SOURCE_DIR) + "/tests/data/templates/" + name + ".jinja", std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

TEST(ToolTemplates, TheirStyles) {
  EXPECT_EQ(tool_style_of(template_text("json_tools")), ToolStyle::kHermes);
  EXPECT_EQ(tool_style_of(template_text("thinking_on")), ToolStyle::kQwenXml);
  EXPECT_EQ(tool_style_of(template_text("thinking_off")), ToolStyle::kQwenXml);
  EXPECT_EQ(tool_style_of(template_text("header_tools")), ToolStyle::kLlama3);
  EXPECT_EQ(tool_style_of(template_text("chatml")), ToolStyle::kNone);
  EXPECT_EQ(tool_style_of(template_text("alternating")), ToolStyle::kNone);
  // Tags of the same name around other things.
  for (const char* other :
       {"{{ tools }}<tool_call>{{ name }}<arg_key>arguments'", "{{ tools }}<tool_calls><tool_call>arguments'",
        "{{ tools }}<tool_call>{{ call.arguments }}", "{{ tools }}<function=a>{}</function>"}) {
    EXPECT_EQ(tool_style_of(other), ToolStyle::kNone) << other;
  }
}

// What a template writes of a past call is what the model writes: read back, it is the call.
TEST(ToolTemplates, ACallThatATemplateWritesIsReadBack) {
  const Json own = Json::parse(R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
      "properties": {"place": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"},
      "nothing": {"type": ["null", "string"]}, "list": {"type": "array"}, "map": {"type": "object"},
      "ratio": {}}}}}])");
  const std::string arguments = R"({"place": "Z\u00fcrich \"x\"\n</b>", "days": 3, "exact": true, "nothing": null,
      "list": [1, {"a": [null, "\u6771"]}], "map": {"b": {"c": "d"}}, "ratio": 1.5})";
  const Json call = {{"id", "c1"}, {"type", "function"}, {"function", {{"name", "weather"}, {"arguments", arguments}}}};
  const auto message = read_tool_message(
      {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({call})}}, "messages[1]");
  ASSERT_TRUE(message) << message.error().message;
  for (const char* name : {"json_tools", "thinking_on", "thinking_off", "header_tools"}) {
    const ChatTemplate text = ChatTemplate::parse(template_text(name)).value();
    ChatInput chat;
    chat.tools = own;
    chat.messages = Json::array({Json{{"role", "user"}, {"content", "Weather?"}}});
    chat.add_generation_prompt = false;
    const std::string before = text.render(chat).value();
    chat.messages.push_back(*message);
    std::string answer = text.render(chat).value().substr(before.size());
    const size_t begin = std::min(answer.find("assistant\n"), answer.find("<|end_header_id|>\n\n"));
    answer = answer.substr(answer.find('\n', begin) + 1);
    answer = answer.substr(0, answer.find("<|"));
    AnswerParser parser({.style = tool_style_of(text.source()), .tools = own});
    std::vector<AnswerPart> parts = parser.push(answer);
    for (AnswerPart& part : parser.finish()) parts.push_back(std::move(part));
    ASSERT_EQ(parts.size(), 2u) << name << "\n" << answer;
    EXPECT_EQ(parts[0].name, "weather");
    EXPECT_EQ(Json::parse(parts[1].text), Json::parse(arguments)) << name;
    EXPECT_TRUE(parser.calls_whole());
    // And results have their place.
    chat.messages.push_back(*read_tool_message({{"role", "tool"}, {"content", "sunny"}, {"tool_call_id", "c1"}}, ""));
    EXPECT_NE(text.render(chat).value().find("sunny"), std::string::npos) << name;
  }
}

TEST(OpenAiTools, WhetherItMustCall) {
  EXPECT_FALSE(must_call(*read({{"tools", tools()}})));
  EXPECT_FALSE(must_call(*read({{"tools", tools()}, {"tool_choice", "none"}})));
  EXPECT_TRUE(must_call(*read({{"tools", tools()}, {"tool_choice", "required"}})));
  const Json choice = Json::parse(R"({"type": "function", "function": {"name": "weather"}})");
  EXPECT_TRUE(must_call(*read({{"tools", tools()}, {"tool_choice", choice}})));
}

}  // namespace
}  // namespace baton::openai

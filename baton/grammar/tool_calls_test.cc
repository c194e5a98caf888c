// Calls of tools in each form.
#include "baton/grammar/tool_calls.h"

#include <gtest/gtest.h>

#include "baton/grammar/matcher.h"

namespace baton::grammar {
namespace {

using Json = nlohmann::ordered_json;

const char* const kTools = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
     "place": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
     "unit": {"enum": ["C", "F"]}, "code": {"type": ["string", "null"], "pattern": "^[A-Z]{2}$"},
     "list": {"type": "array", "items": {"type": "number"}}}, "required": ["place"]}}},
  {"type": "function", "function": {"name": "now"}}])";

Result<std::shared_ptr<const Grammar>> calls_of(CallForm form, const std::string& tools, const std::string& name,
                                                bool several) {
  TerminalStore store;
  Draft draft(&store);
  JsonPieces pieces(&draft);
  BATON_TRY(const ExprId body, tool_calls(form, Json::parse(tools), name, several, &draft, &pieces));
  const uint32_t root = draft.add_rule("root");
  draft.define(root, body);
  return draft.finish(root);
}
bool takes(CallForm form, const std::string& text, const std::string& name = "", bool several = false) {
  const auto grammar = calls_of(form, kTools, name, several);
  EXPECT_TRUE(grammar) << grammar.error().message;
  Matcher matcher(*grammar, false);
  return matcher.push(text) && matcher.can_end();
}

TEST(ToolCalls, TaggedJson) {
  const CallForm form = CallForm::kTaggedJson;
  const std::string call =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": \"Bern\", \"days\": 3}}\n</tool_call>";
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(takes(form, call));
  EXPECT_TRUE(takes(form, now));
  EXPECT_TRUE(takes(form, call, "get_weather"));
  EXPECT_FALSE(takes(form, now, "get_weather"));
  EXPECT_FALSE(takes(form, call + "\n" + now));
  EXPECT_TRUE(takes(form, call + "\n" + now + call, "", true));
  EXPECT_FALSE(takes(form, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(takes(
      form, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": \"\", \"days\": 10}}\n</tool_call>"));
  EXPECT_FALSE(takes(form, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(takes(form, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
  EXPECT_FALSE(takes(form, ""));
}

TEST(ToolCalls, BareJson) {
  const CallForm form = CallForm::kBareJson;
  const std::string call = "{\"name\": \"get_weather\", \"parameters\": {\"place\": \"Bern\"}}";
  EXPECT_TRUE(takes(form, call));
  EXPECT_FALSE(takes(form, call + "; " + call));
  EXPECT_TRUE(takes(form, call + "; " + call, "", true));
}

TEST(ToolCalls, TaggedXml) {
  const CallForm form = CallForm::kTaggedXml;
  const auto call = [](const std::string& parameters) {
    return "<tool_call>\n<function=get_weather>\n" + parameters + "</function>\n</tool_call>";
  };
  const auto parameter = [](const std::string& name, const std::string& value) {
    return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
  };
  const std::string place = parameter("place", "line 1\n\"2\" </parameters <\xc3\xa9");
  EXPECT_TRUE(takes(form, call(place)));
  EXPECT_TRUE(takes(form, call(parameter("place", ""))));
  EXPECT_TRUE(takes(form, call(place + parameter("days", "3") + parameter("unit", "C"))));
  EXPECT_TRUE(takes(form, call(place + parameter("code", "CH"))));
  EXPECT_TRUE(takes(form, call(place + parameter("code", "null"))));
  EXPECT_TRUE(takes(form, call(place + parameter("list", "[1, 2.5]"))));
  EXPECT_TRUE(takes(form, "<tool_call>\n<function=now>\n</function>\n</tool_call>"));
  EXPECT_FALSE(takes(form, call("")));
  EXPECT_FALSE(takes(form, call(place + parameter("days", "10"))));
  EXPECT_FALSE(takes(form, call(place + parameter("unit", "K"))));
  EXPECT_FALSE(takes(form, call(place + parameter("code", "ch"))));
  EXPECT_FALSE(takes(form, call(place + parameter("list", "[1"))));
  EXPECT_FALSE(takes(form, call(place + parameter("other", "1"))));
  EXPECT_FALSE(takes(form, call(place + place)));
  EXPECT_FALSE(takes(form, call(parameter("place", "\xff"))));
  EXPECT_FALSE(takes(form, call("<parameter=place>\na</parameter>\n</parameter>\n")));
}

TEST(ToolCalls, ErrorsNameTheTool) {
  const auto told = [](const std::string& tools, const std::string& name) {
    const auto made = calls_of(CallForm::kTaggedJson, tools, name, false);
    return made ? "made" : made.error().message;
  };
  EXPECT_NE(told(kTools, "none").find("'none'"), std::string::npos);
  EXPECT_NE(told("[]", "").find("none is given"), std::string::npos);
  const std::string bad = R"([{"type":"function","function":{"name":"f","parameters":{"type":"object",
    "properties":{"a":{"not":{}}}}}}])";
  EXPECT_EQ(told(bad, ""), "parameters of tool 'f': #/properties/a/not: not supported");
}

}  // namespace
}  // namespace baton::grammar

// Answers taken apart: reasoning, text and calls, the same however they come in pieces.
#include "baton/api/answer_parts.h"

#include <gtest/gtest.h>

#include "baton/api/json_scan.h"
#include "baton/text/utf8.h"

namespace baton {
namespace {

using nlohmann::ordered_json;

const ordered_json& tools() {
  static const ordered_json& made = *new ordered_json(ordered_json::parse(R"([
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
      "place": {"type": "string"}, "days": {"type": "integer"}, "ratio": {"type": "number"},
      "exact": {"type": "boolean"}, "list": {"type": "array"}, "map": {"type": "object"}, "nothing": {"type": "null"},
      "maybe": {"type": ["string", "null"]}, "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
      "kind": {"enum": ["1", "b"]}, "open": {}}}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}])"));
  return made;
}

// Adjacent pieces of one kind put together.
void put_together(std::vector<AnswerPart> from, std::vector<AnswerPart>* to) {
  for (AnswerPart& part : from) {
    EXPECT_TRUE(is_utf8(part.text)) << part.text;
    EXPECT_TRUE(!part.text.empty() || part.kind == AnswerPart::Kind::kToolCall);
    if (!to->empty() && to->back().kind == part.kind && to->back().call == part.call &&
        part.kind != AnswerPart::Kind::kToolCall) {
      to->back().text += part.text;
    } else {
      to->push_back(std::move(part));
    }
  }
}

struct Read {
  std::vector<AnswerPart> parts;
  uint32_t calls = 0, whole_calls = 0;
  bool whole = false;
};

std::string shown(const Read& read) {
  std::string made;
  for (const AnswerPart& part : read.parts) {
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        made += "T(" + part.text + ")";
        break;
      case AnswerPart::Kind::kReasoning:
        made += "R(" + part.text + ")";
        break;
      case AnswerPart::Kind::kToolCall:
        made += "C" + std::to_string(part.call) + "(" + part.name + ")";
        break;
      case AnswerPart::Kind::kToolArguments:
        made += "A" + std::to_string(part.call) + part.text;
        break;
    }
  }
  return made + (read.whole ? "" : "!");
}

Read read_pieces(const AnswerParserOptions& options, const std::vector<std::string_view>& pieces) {
  AnswerParser parser(options);
  Read read;
  for (const std::string_view piece : pieces) put_together(parser.push(piece), &read.parts);
  put_together(parser.finish(), &read.parts);
  read.calls = parser.calls();
  read.whole_calls = parser.whole_calls();
  read.whole = parser.calls_whole();
  return read;
}

AnswerParserOptions of(ToolStyle style, bool stream = true) {
  return {.style = style, .tools = tools(), .stream_arguments = stream};
}

// In one piece; and in every two, and every single byte, the same.
std::string parts(const AnswerParserOptions& options, std::string_view text) {
  const std::string whole = shown(read_pieces(options, {text}));
  for (size_t i = 1; i < text.size(); ++i)
    EXPECT_EQ(shown(read_pieces(options, {text.substr(0, i), text.substr(i)})), whole) << "cut at " << i;
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
  EXPECT_EQ(shown(read_pieces(options, bytes)), whole);
  // Of calls that are whole the arguments are objects.
  for (const AnswerPart& part : read_pieces(options, {text}).parts) {
    if (part.kind == AnswerPart::Kind::kToolArguments && !whole.ends_with('!')) {
      EXPECT_TRUE(ordered_json::parse(part.text, nullptr, false).is_object()) << part.text;
    }
  }
  return whole;
}

std::string hermes(std::string_view text, bool stream = true) { return parts(of(ToolStyle::kHermes, stream), text); }
std::string xml(std::string_view text, bool stream = true) { return parts(of(ToolStyle::kQwenXml, stream), text); }
std::string llama(std::string_view text, bool stream = true) { return parts(of(ToolStyle::kLlama3, stream), text); }
std::string plain(std::string_view text) { return parts({}, text); }

TEST(AnswerParts, TextIsText) {
  EXPECT_EQ(plain(""), "");
  EXPECT_EQ(plain("  a <b> \n"), "T(  a <b> \n)");
  EXPECT_EQ(plain("<tool_call>{}</tool_call>"), "T(<tool_call>{}</tool_call>)");
  EXPECT_EQ(hermes(" a\n\nb < c <tool_cal\n"), "T( a\n\nb < c <tool_cal\n)");
  EXPECT_EQ(hermes(std::string(1000, ' ') + "a"), "T(" + std::string(1000, ' ') + "a)");
  EXPECT_EQ(hermes(" \n "), "T( \n )");
}

TEST(AnswerParts, Reasoning) {
  EXPECT_EQ(plain("<think>\nhm, <b>\n\nso\n</think>\n\nAnswer\n"), "R(hm, <b>\n\nso)T(Answer\n)");
  EXPECT_EQ(plain("\n<think>\n\n</think>\n\nAnswer"), "T(Answer)");
  EXPECT_EQ(plain("<think>never </thin ended "), "R(never </thin ended)");
  EXPECT_EQ(plain("write `<think>` and </think>"), "T(write `<think>` and </think>)");
  EXPECT_EQ(plain("a\n<think>b</think>c"), "T(a\n)R(b)T(c)");
  EXPECT_EQ(parts({.begins_in_reasoning = true}, "hm\n</think>\n\nyes"), "R(hm)T(yes)");
  EXPECT_EQ(parts({.split_reasoning = false}, "<think>a</think>b"), "T(<think>a</think>b)");
  EXPECT_EQ(hermes("<think>a <tool_call></think><tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"),
            "R(a <tool_call>)C0(now)A0{}");
}

TEST(AnswerParts, HermesCalls) {
  constexpr std::string_view kCall =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"Z\xC3\xBCrich\"}}"
      "\n</tool_call>";
  const std::string call = "C0(weather)A0{\"place\": \"Z\xC3\xBCrich\"}";
  EXPECT_EQ(hermes(kCall), call);
  EXPECT_EQ(hermes("Let me look.\n\n" + std::string(kCall) +
                   "\n<tool_call>\n{\"name\":\"now\",\"arguments\":{}}"
                   "\n</tool_call>\n"),
            "T(Let me look.)" + call + "C1(now)A1{}");
  EXPECT_EQ(hermes(std::string(kCall) + "\n\nDone."), call + "T(Done.)");
  // The other order, other members, a text that holds an object, no arguments at all.
  EXPECT_EQ(hermes(R"(<tool_call>{"arguments": {"days": 1}, "id": [{}], "name": "weather", "x": -1.5e3}</tool_call>)"),
            R"(C0(weather)A0{"days": 1})");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "weather", "arguments": " {\"place\": \"\\u00fc\"}"}</tool_call>)"),
            R"(C0(weather)A0{"place": "\u00fc"})");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "now"}</tool_call>)"), "C0(now)A0{}");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "now", "parameters": null}</tool_call>)"), "C0(now)A0{}");
  // Markers inside a text are part of it.
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "weather", "arguments": {"place": "</tool_call> <tool_call>"}}</tool_call>)"),
            R"(C0(weather)A0{"place": "</tool_call> <tool_call>"})");
  // A line break in a text is written as JSON wants it.
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"weather\", \"arguments\": {\"place\": \"a\nb\x01\"}}</tool_call>"),
            R"(C0(weather)A0{"place": "a\nb\u0001"})");
  // A brace too many, and an end that is missing.
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "now", "arguments": {}}}</tool_call> ok)"), "C0(now)A0{}T(ok)");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "now", "arguments": {}})"), "C0(now)A0{}");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "now", "arguments": {}}</tool)"), "C0(now)A0{}T(</tool)");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "now", "arguments": {}}<tool_call>{"name": "now", "arguments": {}})"),
            "C0(now)A0{}C1(now)A1{}");
  EXPECT_EQ(hermes(R"(<tool_call>{"name": "now", "arguments": {}, "k": [1, bad)"), "C0(now)A0{}T(, \"k\": [1, bad)");
}

TEST(AnswerParts, WhatIsNoCallIsText) {
  for (const char* bad : {
           "<tool_call>",
           "<tool_call>{",
           "<tool_call>\n not JSON\n</tool_call>",
           "<tool_call>[1]</tool_call>",
           R"(<tool_call>{"arguments": {}}</tool_call>)",
           R"(<tool_call>{"name": "unknown", "arguments": {}}</tool_call>)",
           R"(<tool_call>{"name": 5, "arguments": {}}</tool_call>)",
           R"(<tool_call>{"name": "now", "arguments": [1]}</tool_call>)",
           R"(<tool_call>{"name": "now", "arguments": 5}</tool_call>)",
           R"(<tool_call>{"name": "now", "arguments": "x"}</tool_call>)",
           R"(<tool_call>{"name": "now", "arguments": "{} {}"}</tool_call>)",
           R"(<tool_call>{"name": "now",}</tool_call>)",
           R"(<tool_call>{"arguments": {"a": tru}, "name": "now"}</tool_call>)",
           R"(<tool_call>{"na\ud800me": 1}</tool_call>)",
           R"(<tool_call>{"arguments": {"n": 1e999}, "name": "now"}</tool_call>)",
       }) {
    EXPECT_EQ(hermes("a \n" + std::string(bad)), "T(a \n" + std::string(bad) + ")");
  }
  // What follows is read again.
  EXPECT_EQ(hermes(R"(<tool_call>{bad <tool_call>{"name": "now"}</tool_call>)"), "T(<tool_call>{bad)C0(now)A0{}");
}

TEST(AnswerParts, ArgumentsThatBreakOff) {
  constexpr std::string_view kBroken = R"(<tool_call>{"name": "weather", "arguments": {"place": "Be)";
  EXPECT_EQ(hermes(kBroken), R"(C0(weather)A0{"place": "Be!)");
  EXPECT_EQ(hermes(kBroken, false), "T(" + std::string(kBroken) + ")");
  constexpr std::string_view kBad = R"(<tool_call>{"name": "weather", "arguments": {"place": bad}}</tool_call> x)";
  EXPECT_EQ(hermes(kBad), R"(C0(weather)A0{"place": T(bad}}</tool_call> x)!)");
  EXPECT_EQ(hermes(kBad, false), "T(" + std::string(kBad) + ")");
  // A whole one behind it is one, and yet not all are.
  const std::string two = std::string(kBad) + R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)";
  EXPECT_EQ(hermes(two, false), "T(" + std::string(kBad) + ")C0(now)A0{}");
  EXPECT_EQ(hermes(two), R"(C0(weather)A0{"place": T(bad}}</tool_call> x)C1(now)A1{}!)");
}

// Of what is no JSON nothing goes out as arguments, and nothing of it is lost.
TEST(AnswerParts, ArgumentsThatAreNoJson) {
  constexpr std::string_view kBegin = R"(<tool_call>{"name": "now", "arguments": {"n":)";
  for (const char* bad : {"01", "1e999", "NaN", "1.}", "-", "tru3", R"("\ud800)", R"("\x)", R"("\u12g)"}) {
    const std::string text = std::string(kBegin) + bad + "}}</tool_call>";
    const bool quoted = bad[0] == '"';
    const std::string shown = std::string(bad + (quoted ? 1 : 0)) + "}}</tool_call>";
    EXPECT_EQ(hermes(text), std::string("C0(now)A0{\"n\":") + (quoted ? "\"" : "") + "T(" + shown + ")!") << bad;
    EXPECT_EQ(hermes(text, false), "T(" + text + ")");
    EXPECT_EQ(read_pieces(of(ToolStyle::kHermes), {text}).whole_calls, 0u);
  }
  EXPECT_EQ(hermes(std::string(kBegin) + R"([-1.5e3, true, null, "\ud83d\ude00\n"]}}</tool_call>)"),
            R"(C0(now)A0{"n":[-1.5e3, true, null, "\ud83d\ude00\n"]})");
  // One that is whole counts, whatever another is.
  const std::string two = std::string(kBegin) + R"(01}}<tool_call>{"name": "now", "arguments": {}}</tool_call>)";
  EXPECT_EQ(read_pieces(of(ToolStyle::kHermes), {two}).calls, 2u);
  EXPECT_EQ(read_pieces(of(ToolStyle::kHermes), {two}).whole_calls, 1u);
}

TEST(AnswerParts, XmlCalls) {
  EXPECT_EQ(
      xml("I look.\n\n<tool_call>\n<function=weather>\n<parameter=place>\nZ\xC3\xBCrich \"x\"\n\\y\n</parameter>\n"
          "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"),
      "T(I look.)C0(weather)A0{\"place\": \"Z\xC3\xBCrich \\\"x\\\"\\n\\\\y\", \"days\": 3}");
  EXPECT_EQ(xml("<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n"
                "</tool_call>"),
            "C0(now)A0{}C1(now)A1{}");
  // Without the outer tag, or with one of its two; two in one.
  EXPECT_EQ(xml("<function=now></function>"), "C0(now)A0{}");
  EXPECT_EQ(xml("<function=now></function>\n</tool_call>x"), "C0(now)A0{}T(x)");
  EXPECT_EQ(xml("<tool_call><function=now></function><function=now></function></tool_call>"), "C0(now)A0{}C1(now)A1{}");
}

std::string xml_value(const std::string& parameter, const std::string& value) {
  const std::string all =
      xml("<function=weather><parameter=" + parameter + ">\n" + value + "\n</parameter></function>");
  const std::string begin = "C0(weather)A0{\"" + parameter + "\": ";
  EXPECT_TRUE(all.starts_with(begin) && all.ends_with("}")) << all;
  return all.substr(begin.size(), all.size() - begin.size() - 1);
}

TEST(AnswerParts, XmlValuesAreOfTheSchemasTypes) {
  EXPECT_EQ(xml_value("place", "5"), "\"5\"");
  EXPECT_EQ(xml_value("place", "true"), "\"true\"");
  EXPECT_EQ(xml_value("place", "\n a \n"), "\"\\n a \\n\"");
  EXPECT_EQ(xml_value("place", ""), "\"\"");
  EXPECT_EQ(xml_value("place", "a < b </parameter </function>\n<"), R"("a < b </parameter </function>\n<")");
  EXPECT_EQ(xml_value("days", " 12 "), "12");
  EXPECT_EQ(xml_value("days", "123456789012345678901234567890"), "123456789012345678901234567890");
  EXPECT_EQ(xml_value("days", "many"), "\"many\"");
  EXPECT_EQ(xml_value("ratio", "-1.5e-3"), "-1.5e-3");
  EXPECT_EQ(xml_value("ratio", "1e999"), "\"1e999\"");
  EXPECT_EQ(xml_value("exact", "True"), "true");
  EXPECT_EQ(xml_value("exact", "false"), "false");
  EXPECT_EQ(xml_value("nothing", "None"), "null");
  EXPECT_EQ(xml_value("list", "[1, {\"a\": \"</x>\"}]"), "[1, {\"a\": \"</x>\"}]");
  EXPECT_EQ(xml_value("list", "1, 2"), "\"1, 2\"");
  EXPECT_EQ(xml_value("map", "{\"a\":\n 1}"), "{\"a\":\n 1}");
  EXPECT_EQ(xml_value("map", "{'a': 1}"), "\"{'a': 1}\"");
  EXPECT_EQ(xml_value("maybe", "null"), "null");
  EXPECT_EQ(xml_value("maybe", "5"), "\"5\"");
  EXPECT_EQ(xml_value("maybe", "\"q\""), "\"\\\"q\\\"\"");
  EXPECT_EQ(xml_value("either", "5"), "5");
  EXPECT_EQ(xml_value("either", "five"), "\"five\"");
  EXPECT_EQ(xml_value("kind", "1"), "\"1\"");
  EXPECT_EQ(xml_value("open", "1"), "1");
  EXPECT_EQ(xml_value("open", "True"), "\"True\"");
  EXPECT_EQ(xml_value("not_in_schema", "[true]"), "[true]");
  EXPECT_EQ(xml_value("not_in_schema", std::string(JsonScan::kDepthMax + 1, '[') + std::string(65, ']')),
            "\"" + std::string(65, '[') + std::string(65, ']') + "\"");
}

TEST(AnswerParts, XmlThatIsNoCall) {
  for (const char* bad : {"<function=unknown>\n</function>", "<function=", "<function=now", "<tool_call>{}</tool_call>",
                          "<tool_call>\n<function", "<tool_call>a", "<function=a b></function>"}) {
    EXPECT_EQ(xml("x " + std::string(bad)), "T(x " + std::string(bad) + ")");
  }
  for (const char* bad : {"<function=now><parameter=a>1", "<function=now>text</function>",
                          "<function=now><parameter=>1</parameter></function>", "<function=now><parameter=a\n",
                          "<function=now><parameter=a>1</parameter><parameter=a>1</parameter></function>"}) {
    EXPECT_TRUE(xml(bad).ends_with("!")) << bad;
    EXPECT_EQ(xml(bad, false), "T(" + std::string(bad) + ")");
  }
}

TEST(AnswerParts, OfTagsThatBreakOffNothingIsLost) {
  EXPECT_EQ(xml("<function=now><parameter=a>[1,\n"), "C0(now)A0{\"a\": T([1,\n)!");
  EXPECT_EQ(xml("<function=now><parameter=a>[1</para"), "C0(now)A0{\"a\": T([1</para)!");
  EXPECT_EQ(xml("<function=now>\n<para text"), "C0(now)T(<para text)!");
  EXPECT_EQ(xml("<function=now>\n</fun text"), "C0(now)T(</fun text)!");
  const std::string name = "a" + std::string(255, 'b') + "\xC3\xBC";  // the bound is within the character
  EXPECT_EQ(xml("<function=now><parameter=" + name + ">"), "C0(now)T(<parameter=" + name + ">)!");
}

TEST(AnswerParts, Llama3Calls) {
  EXPECT_EQ(llama(R"({"name": "weather", "parameters": {"place": "Bern"}})"), R"(C0(weather)A0{"place": "Bern"})");
  EXPECT_EQ(llama(R"( <|python_tag|>{"type": "function", "name": "weather", "arguments": {"days": 1}} )"),
            R"(C0(weather)A0{"days": 1})");
  EXPECT_EQ(llama(R"({"name": "now", "parameters": {}}; {"name": "now", "parameters": {}};)"),
            "C0(now)A0{}C1(now)A1{}");
  EXPECT_EQ(llama(R"({"name": "now", "parameters": {}} ; <|python_tag|>{"name": "now"})"), "C0(now)A0{}C1(now)A1{}");
  EXPECT_EQ(llama("<think>a</think>\n{\"name\": \"now\", \"parameters\": {}}"), "R(a)C0(now)A0{}");
  EXPECT_EQ(llama(R"({"name": "now", "parameters": {}}; and text)"), "C0(now)A0{}T(; and text)");
  for (const char* bad :
       {R"({"name": "Bob", "age": 5})", R"({"name": "now"})", R"({"city": "Bern", "name": "now", "parameters": {}})",
        R"(Call {"name": "now", "parameters": {}})", "{", "{}", "<|python_tag|>now.call(x=1)", "; x",
        "<|python_tag|>"}) {
    EXPECT_EQ(llama(bad), "T(" + std::string(bad) + ")");
  }
}

TEST(AnswerParts, ArgumentsComeAsTheyAreWritten) {
  AnswerParser parser(of(ToolStyle::kHermes));
  EXPECT_TRUE(parser.push(R"(<tool_call>{"name": "weather", )").empty());
  std::vector<AnswerPart> got = parser.push(R"("arguments": {"pla)");
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].name, "weather");
  EXPECT_EQ(got[1].text, R"({"pla)");
  EXPECT_EQ(parser.calls(), 1u);
  EXPECT_FALSE(parser.calls_whole());
  got = parser.push("ce\": \"x\"}");
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].text, "ce\": \"x\"}");
  EXPECT_TRUE(parser.calls_whole());

  AnswerParser tags(of(ToolStyle::kQwenXml));
  got = tags.push("<function=weather><parameter=place>\nBe");
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[1].text, "{\"place\": \"Be");
}

TEST(AnswerParts, BytesThatAreNoCharacters) {
  EXPECT_EQ(plain("a\xFF\xC3"), "T(a\xEF\xBF\xBD\xEF\xBF\xBD)");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"weather\", \"arguments\": {\"place\": \"\xE2\x82\"}}</tool_call>"),
            "C0(weather)A0{\"place\": \"\xEF\xBF\xBD\"}");
  EXPECT_EQ(xml("<function=weather><parameter=\xF0\x9F\x98\x80>\n\xC3\xBC\xF0\x9F\n</parameter></function>"),
            "C0(weather)A0{\"\xF0\x9F\x98\x80\": \"\xC3\xBC\xEF\xBF\xBD\"}");
  EXPECT_EQ(hermes(std::string("a\0b", 3)), std::string("T(a\0b)", 6));
}

TEST(AnswerParts, WhatIsHeldBackHasABound) {
  // Arguments in front of the name wait; beyond the bound they are text, and later calls are calls.
  const std::string long_text(AnswerParser::kHeldBytesMax + 10, 'x');
  const std::string big =
      R"(<tool_call>{"arguments": {"place": ")" + long_text + R"("}, "name": "weather"}</tool_call>)";
  AnswerParser parser(of(ToolStyle::kHermes));
  std::vector<AnswerPart> got = parser.push(big);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(got[0].kind == AnswerPart::Kind::kText && got[0].text == big);
  got = parser.push(R"(<tool_call>{"name": "now", "arguments": {"a": ")" + long_text + R"("}}</tool_call>)");
  ASSERT_EQ(got.size(), 2u);  // the name first: nothing waits
  EXPECT_TRUE(parser.calls_whole());

  const std::string tags = "<function=weather><parameter=list>" + long_text + "</parameter></function>";
  EXPECT_FALSE(read_pieces(of(ToolStyle::kQwenXml), {tags}).whole);
  const Read read = read_pieces(of(ToolStyle::kQwenXml, false), {tags});
  ASSERT_EQ(read.parts.size(), 1u);
  EXPECT_EQ(read.parts[0].text, tags);

  std::string deep = R"(<tool_call>{"name": "now", "arguments": {"a": )" + std::string(100'000, '[');
  EXPECT_FALSE(read_pieces(of(ToolStyle::kHermes), {deep}).whole);
  std::string many;
  for (uint32_t i = 0; i <= AnswerParser::kCallsMax; ++i) many += "<function=now></function>";
  const Read calls = read_pieces(of(ToolStyle::kQwenXml), {many});
  EXPECT_EQ(calls.calls, AnswerParser::kCallsMax);
  EXPECT_EQ(calls.parts.back().text, "<function=now></function>");
}

TEST(AnswerParts, WithoutAListAnyNameIsTaken) {
  const AnswerParserOptions any{.style = ToolStyle::kHermes};
  EXPECT_EQ(parts(any, R"(<tool_call>{"name": "a-B_1", "arguments": {}}</tool_call>)"), "C0(a-B_1)A0{}");
  const std::string bad = R"(<tool_call>{"name": "a b", "arguments": {}}</tool_call>)";
  EXPECT_EQ(parts(any, bad), "T(" + bad + ")");
}

TEST(JsonScan, KnowsWhatIsJson) {
  for (const char* good :
       {"{}", " [] ", "0", "-0.5E+7", "\"\\u00fc\\ud83d\\ude00\\/\"", "[1, {\"a\": [true, false, null]}]", "1e308",
        "{\"a\": 1, \"a\": 2}", "\"\xC3\xBC\"", "12 "}) {
    EXPECT_TRUE(is_json(good)) << good;
    EXPECT_TRUE(ordered_json::accept(good)) << good;
  }
  for (const char* bad : {"",
                          " ",
                          "{",
                          "[1,]",
                          "{,}",
                          "{\"a\"}",
                          "{\"a\" 1}",
                          "{1: 2}",
                          "01",
                          "1.",
                          ".5",
                          "-",
                          "1e",
                          "+1",
                          "1e999",
                          "tru",
                          "truex",
                          "nul",
                          "\"",
                          "\"\\x\"",
                          "\"\\u12g4\"",
                          "\"\\ud800\"",
                          "\"\\ud800x\"",
                          "\"\\udc00\"",
                          "\"\\ud800\\n\"",
                          "\"a\nb\"",
                          "[1 2]",
                          "1 2",
                          "{} {}",
                          "]",
                          "NaN",
                          "'a'",
                          "[1}"}) {
    EXPECT_FALSE(is_json(bad)) << bad;
    EXPECT_FALSE(ordered_json::accept(bad)) << bad;
  }
}

}  // namespace
}  // namespace baton

// Formats of requests: read from bodies, and compiled for a tokenizer.
#include "baton/api/grammar.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "baton/api/openai.h"

namespace baton {
namespace {

std::string file(const char* name) {
  std::ifstream in(std::string(BATON_SOURCE_DIR) + "/tests/data/text/" + name, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TextModel text_model() {
  TextModel model;
  const auto spec =
      tokenizer_spec_from_json(file("dictionary_tokenizer.json"), file("dictionary_tokenizer_config.json"));
  EXPECT_TRUE(spec) << spec.error().message;
  auto tokenizer = Tokenizer::create(*spec);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  model.tokenizer.emplace(*std::move(tokenizer));
  model.stop_ids.assign(model.tokenizer->stop_ids().begin(), model.tokenizer->stop_ids().end());
  return model;
}

AnswerFormat schema_of(const char* text) {
  return {.kind = AnswerFormat::Kind::kJsonSchema, .schema = nlohmann::ordered_json::parse(text)};
}

// The text's tokens are let through one after the other, and then an end.
bool lets_through(const TextModel& model, TokenConstraint* constraint, const std::string& text) {
  const auto ids = model.tokenizer->encode(text, false);
  EXPECT_TRUE(ids);
  std::vector<uint32_t> mask(static_cast<size_t>(model.tokenizer->vocab_size() + 31) / 32);
  const auto allowed = [&](int32_t id) { return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0; };
  for (const int32_t id : *ids) {
    constraint->allow(mask);
    if (!allowed(id)) return false;
    EXPECT_TRUE(constraint->accept(id));
  }
  constraint->allow(mask);
  return allowed(model.stop_ids.front());
}

TEST(FormatCompiler, EachKind) {
  const TextModel model = text_model();
  auto compiler = *FormatCompiler::create(model);
  EXPECT_EQ(*compiler->constraint({}), nullptr);
  const auto check = [&](const AnswerFormat& format, const std::string& good, const std::string& bad) {
    auto constraint = compiler->constraint(format);
    ASSERT_TRUE(constraint) << constraint.error().message;
    EXPECT_TRUE(lets_through(model, constraint->get(), good)) << good;
    (*constraint)->reset();
    EXPECT_FALSE(lets_through(model, constraint->get(), bad)) << bad;
  };
  check({.kind = AnswerFormat::Kind::kJsonObject}, R"({"a": [1, true, "the word"]})", "the word");
  check(schema_of(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})"), R"({"a": 12})",
        R"({"a": "x"})");
  check({.kind = AnswerFormat::Kind::kRegex, .text = "[a-z ]+\\."}, "the word.", "The word.");
  check({.kind = AnswerFormat::Kind::kGrammar, .text = "root ::= (\"yes\" | \"no\") \"!\""}, "no!", "no");
  const auto tools = nlohmann::ordered_json::parse(R"([{"type":"function","function":{"name":"f"}}])");
  auto call = compiler->tool_calls(ToolStyle::kHermes, tools, "", false);
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_TRUE(lets_through(model, call->get(), "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_EQ(compiler->tool_calls(ToolStyle::kNone, tools, "", false).error().code, Code::kUnsupported);
  const auto behind = compiler->behind("</think>", *compiler->constraint({.kind = AnswerFormat::Kind::kJsonObject}));
  EXPECT_TRUE(lets_through(model, behind.get(), "so it is</think>\n\n{}"));
  EXPECT_EQ(compiler->behind("</think>", nullptr), nullptr);
}

// No control token is ever let through, but for those that end an answer where it may end.
TEST(FormatCompiler, NoControlTokens) {
  const TextModel model = text_model();
  auto compiler = *FormatCompiler::create(model);
  auto constraint = *compiler->constraint({.kind = AnswerFormat::Kind::kRegex, .text = "(.|\n)+"});
  std::vector<uint32_t> mask(static_cast<size_t>(model.tokenizer->vocab_size() + 31) / 32);
  constraint->allow(mask);
  int controls = 0;
  for (int32_t id = 0; id < model.tokenizer->vocab_size(); ++id) {
    const bool allowed = (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
    if (!model.tokenizer->is_special(id)) continue;
    ++controls;
    EXPECT_FALSE(allowed) << id;
  }
  EXPECT_GT(controls, 0);
}

TEST(FormatCompiler, ErrorsNameThePlace) {
  const TextModel model = text_model();
  auto compiler = *FormatCompiler::create(model);
  const auto told = [&](const AnswerFormat& format) {
    const auto made = compiler->constraint(format);
    return made ? "made" : made.error().message;
  };
  EXPECT_EQ(told(schema_of(R"({"properties":{"a":{"not":{}}}})")), "schema: #/properties/a/not: not supported");
  EXPECT_EQ(told({.kind = AnswerFormat::Kind::kRegex, .text = "(?=a)"}).find("regex: at byte 2"), 0u);
  EXPECT_EQ(told({.kind = AnswerFormat::Kind::kGrammar, .text = "root ::= a"}).find("grammar: line 1"), 0u);
}

using openai::Json;

std::string refused(const char* body) {
  const auto read = openai::read_format(Json::parse(body));
  if (read) return "accepted";
  EXPECT_EQ(read.error().status, 400);
  EXPECT_NE(read.error().message.find("'" + read.error().param), std::string::npos) << read.error().message;
  return read.error().param;
}

TEST(OpenAiFormat, Read) {
  const auto kind = [](const char* body) { return openai::read_format(Json::parse(body))->kind; };
  using Kind = AnswerFormat::Kind;
  EXPECT_EQ(kind("{}"), Kind::kAny);
  EXPECT_EQ(kind(R"({"response_format":null,"regex":null})"), Kind::kAny);
  EXPECT_EQ(kind(R"({"response_format":{"type":"text"}})"), Kind::kAny);
  EXPECT_EQ(kind(R"({"response_format":{"type":"json_object"}})"), Kind::kJsonObject);
  EXPECT_EQ(kind(R"({"response_format":{"type":"json_object","schema":{"type":"null"}}})"), Kind::kJsonSchema);
  EXPECT_EQ(kind(R"({"regex":"a+"})"), Kind::kRegex);
  EXPECT_EQ(kind(R"({"response_format":{"type":"regex","pattern":"a+"}})"), Kind::kRegex);
  EXPECT_EQ(kind(R"({"grammar":"root ::= \"a\""})"), Kind::kGrammar);
  EXPECT_EQ(kind(R"({"response_format":{"type":"grammar","grammar":"root ::= \"a\""}})"), Kind::kGrammar);
  EXPECT_EQ(kind(R"({"response_format":{"type":"text"},"regex":"a"})"), Kind::kRegex);
  const auto schema = openai::read_format(Json::parse(R"({"response_format":
      {"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"null"}}}})"));
  ASSERT_TRUE(schema);
  EXPECT_EQ(schema->schema, Json::parse(R"({"type":"null"})"));
}

TEST(OpenAiFormat, RefusalsNameTheField) {
  EXPECT_EQ(refused(R"({"response_format":"json"})"), "response_format");
  EXPECT_EQ(refused(R"({"response_format":{}})"), "response_format.type");
  EXPECT_EQ(refused(R"({"response_format":{"type":"xml"}})"), "response_format.type");
  EXPECT_EQ(refused(R"({"response_format":{"type":"json_schema"}})"), "response_format.json_schema");
  EXPECT_EQ(refused(R"({"response_format":{"type":"json_schema","json_schema":{"name":"n"}}})"),
            "response_format.json_schema.schema");
  EXPECT_EQ(refused(R"({"response_format":{"type":"json_schema","json_schema":{"name":"a b","schema":{}}}})"),
            "response_format.json_schema.name");
  EXPECT_EQ(refused(R"({"response_format":{"type":"json_schema","json_schema":{"name":"a","strict":1,"schema":{}}}})"),
            "response_format.json_schema.strict");
  EXPECT_EQ(refused(R"({"response_format":{"type":"regex"}})"), "response_format.pattern");
  EXPECT_EQ(refused(R"({"regex":1})"), "regex");
  EXPECT_EQ(refused(R"({"grammar":""})"), "grammar");
  EXPECT_EQ(refused(R"({"regex":"a","grammar":"b"})"), "regex");
  EXPECT_EQ(refused(R"({"response_format":{"type":"json_object"},"regex":"a"})"), "regex");
}

}  // namespace
}  // namespace baton

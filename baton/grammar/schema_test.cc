// Schemas against values that fit and that do not; random answers for a validator that is not ours.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "baton/grammar/json_schema.h"
#include "baton/grammar/testing.h"
#include "tests/support/smoke.h"

namespace baton::grammar {
namespace {

using Json = nlohmann::ordered_json;

Result<std::shared_ptr<const Grammar>> compiled(const Json& schema, TerminalStore* store) {
  Draft draft(store);
  JsonPieces pieces(&draft);
  const uint32_t root = draft.add_rule("root");
  BATON_TRY(const ExprId body, schema_value(schema, &draft, &pieces));
  draft.define(root, body);
  return draft.finish(root);
}

bool fits(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar, false);
  return matcher.push(text) && matcher.can_end();
}

// Of tests/data/grammar/schema_cases.json: values that fit the schema, and that do not.
struct Case {
  Json schema;
  std::vector<std::string> good, bad;
};

std::vector<Case> cases() {
  std::ifstream in(std::string(BATON_SOURCE_DIR) + "/tests/data/grammar/schema_cases.json");
  std::vector<Case> out;
  for (const Json& one : Json::parse(in)) out.push_back({one["schema"], one["good"], one["bad"]});
  return out;
}

TEST(Schema, FitsWhatItSays) {
  TerminalStore store;
  for (const Case& c : cases()) {
    const auto grammar = compiled(c.schema, &store);
    ASSERT_TRUE(grammar) << c.schema << ": " << grammar.error().message;
    for (const std::string& text : c.good) {
      ASSERT_TRUE(Json::accept(text)) << text;
      EXPECT_TRUE(fits(*grammar, text)) << c.schema << "\n" << text;
    }
    for (const std::string& text : c.bad) EXPECT_FALSE(fits(*grammar, text)) << c.schema << "\n" << text;
  }
}

TEST(Schema, RefusalsNameTheirPlace) {
  struct Refused {
    const char *schema, *told;
    Code code = Code::kUnsupported;
  };
  const Refused refused[] = {
      {R"({"not":{}})", "#/not"},
      {R"({"properties":{"a":{"if":{}}}})", "#/properties/a/if"},
      {R"({"type":"array","contains":{}})", "#/contains"},
      {R"({"type":"array","uniqueItems":true})", "#/uniqueItems"},
      {R"({"type":"array","items":[{}]})", "#/items"},
      {R"({"propertyNames":{"pattern":"a"}})", "#/propertyNames"},
      {R"({"dependentRequired":{}})", "#/dependentRequired"},
      {R"({"unevaluatedProperties":{}})", "#/unevaluatedProperties"},
      {R"({"$dynamicRef":"#a"})", "#/$dynamicRef"},
      {R"({"$ref":"http://x/y"})", "#/$ref"},
      {R"({"$ref":"#anchor"})", "#/$ref"},
      {R"({"$ref":"#/$defs/none"})", "#/$ref", Code::kInvalidInput},
      {R"({"type":"string","format":"regex"})", "#/format"},
      {R"x({"type":"string","pattern":"(?=a)"})x", "#/pattern"},
      {R"({"type":"string","pattern":"("})", "#/pattern", Code::kInvalidInput},
      {R"({"type":"number","multipleOf":0.3})", "#/multipleOf"},
      {R"({"type":"number","multipleOf":0})", "#/multipleOf", Code::kInvalidInput},
      {R"({"const":12345678901234567890123456789})", "#/const"},
      {R"({"const":{"a":[1,-9223372036854775809]}})", "#/const/a/1"},
      {R"({"properties":{"a":{"enum":[1,18446744073709551616]}}})", "#/properties/a/enum/1"},
      {R"({"enum":["a",1e300]})", "#/enum/1"},
      {R"({"type":"integer","minimum":12345678901234567890123})", "#/minimum"},
      {R"({"type":"integer","maximum":-12345678901234567890123})", "#/maximum"},
      {R"({"type":["integer","null"],"exclusiveMaximum":18446744073709551616})", "#/exclusiveMaximum"},
      {R"({"type":"strin"})", "#/type", Code::kInvalidInput},
      {R"({"type":[]})", "#/type", Code::kInvalidInput},
      {R"({"properties":[]})", "#/properties", Code::kInvalidInput},
      {R"({"properties":{"a":1}})", "#/properties", Code::kInvalidInput},
      {R"({"anyOf":[]})", "#/anyOf", Code::kInvalidInput},
      {R"({"anyOf":[{"minLength":-1}]})", "#/anyOf/0/minLength", Code::kInvalidInput},
      {R"({"minItems":1.5})", "#/minItems", Code::kInvalidInput},
      {R"({"required":[1]})", "#/required", Code::kInvalidInput},
      {R"({"enum":[]})", "#/enum", Code::kInvalidInput},
      {R"({"exclusiveMinimum":true})", "#/exclusiveMinimum"},
      {R"({"type":"object","additionalProperties":true,"minProperties":3})", "#/minProperties"},
      {R"({"type":"string","minLength":5,"maxLength":3})", "no finite text", Code::kInvalidInput},
      {R"({"allOf":[{"type":"string"},{"type":"null"}]})", "no finite text", Code::kInvalidInput},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no finite text", Code::kInvalidInput},
      {R"({"$ref":"#"})", "no finite text", Code::kInvalidInput},
      {R"({"allOf":[{"$ref":"#"},{"type":"null"}]})", "itself"},
      {"1", "#: a schema", Code::kInvalidInput},
      {"null", "#: a schema", Code::kInvalidInput},
      {R"({"type":"array","minItems":900000000})", "grammar nodes"},
      {R"({"type":"string","pattern":"^(((a{0,1000}){0,1000}){0,1000}){0,1000}$"})", "#/pattern"},
      {R"({"type":"string","pattern":"(a|b)*a(a|b){40}"})", "#/pattern"},
  };
  for (const Refused& c : refused) {
    TerminalStore store;
    const auto grammar = compiled(Json::parse(c.schema), &store);
    ASSERT_FALSE(grammar) << c.schema;
    EXPECT_EQ(grammar.error().code, c.code) << c.schema << ": " << grammar.error().message;
    EXPECT_NE(grammar.error().message.find(c.told), std::string::npos) << c.schema << ": " << grammar.error().message;
  }
}

TEST(Schema, NumbersOf64BitsAreExact) {
  for (const char* number : {"18446744073709551615", "9223372036854775808", "-9223372036854775808", "-1", "1.5"}) {
    TerminalStore store;
    const auto grammar = compiled(Json{{"const", Json::parse(number)}}, &store);
    ASSERT_TRUE(grammar) << number;
    EXPECT_TRUE(fits(*grammar, number)) << number;
  }
  TerminalStore store;
  const auto above = compiled(Json::parse(R"({"type":"integer","minimum":18446744073709551615})"), &store);
  ASSERT_TRUE(above) << above.error().message;
  EXPECT_TRUE(fits(*above, "18446744073709551615"));
  EXPECT_FALSE(fits(*above, "18446744073709551614"));
}

// Compiles within a time that has some room for a busy machine.
bool timed(const Json& schema, TerminalStore* store) {
  const auto start = std::chrono::steady_clock::now();
  const bool made = compiled(schema, store).has_value();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(seconds, 20.0);
  return made;
}

// Each row of the table in docs/constrained.md says what a schema with that keyword alone comes to.
TEST(Schema, TheTableIsTrue) {
  const std::map<std::string, const char*> examples = {{"type", R"("null")"},
                                                       {"enum", "[1]"},
                                                       {"const", "1"},
                                                       {"$ref", R"("#/$defs/a")"},
                                                       {"allOf", "[{}]"},
                                                       {"anyOf", "[{}]"},
                                                       {"oneOf", "[{}]"},
                                                       {"nullable", "true"},
                                                       {"properties", "{}"},
                                                       {"required", "[]"},
                                                       {"items", "{}"},
                                                       {"prefixItems", "[{}]"},
                                                       {"additionalProperties", "{}"},
                                                       {"minItems", "1"},
                                                       {"maxItems", "2"},
                                                       {"patternProperties", "{}"},
                                                       {"minProperties", "1"},
                                                       {"maxProperties", "1"},
                                                       {"uniqueItems", "true"},
                                                       {"minLength", "1"},
                                                       {"maxLength", "1"},
                                                       {"pattern", R"("a")"},
                                                       {"format", R"("date")"},
                                                       {"minimum", "1"},
                                                       {"maximum", "1"},
                                                       {"multipleOf", "2"},
                                                       {"exclusiveMinimum", "1"},
                                                       {"exclusiveMaximum", "1"},
                                                       {"unevaluatedProperties", "{}"}};
  std::ifstream in(std::string(BATON_SOURCE_DIR) + "/docs/constrained.md");
  std::string line;
  TerminalStore store;
  int followed = 0, refused = 0;
  while (std::getline(in, line)) {
    const size_t end = line.find("` | ");
    if (!line.starts_with("| `") || end == std::string::npos) continue;
    const std::string name = line.substr(3, end - 3), says = line.substr(end + 4, line.find(" |", end + 4) - end - 4);
    if (says != "followed" && says != "refused") continue;
    Json schema = {{"$defs", {{"a", true}}}};
    const auto example = examples.find(name);
    schema[name] = example == examples.end() ? Json::object() : Json::parse(example->second);
    const auto grammar = compiled(schema, &store);
    EXPECT_EQ(grammar.has_value(), says == "followed") << name << ": " << (grammar ? "" : grammar.error().message);
    if (!grammar) {
      EXPECT_NE(grammar.error().message.find("#/" + name), std::string::npos) << grammar.error().message;
    }
    ++(says == "followed" ? followed : refused);
  }
  EXPECT_EQ(followed + refused, 44);  // those of kKeywords in schema_merge.cc
}

TEST(Schema, HostileOnesEnd) {
  TerminalStore store;
  Json deep = true;
  for (int i = 0; i < 500; ++i) deep = Json{{"items", deep}};
  EXPECT_FALSE(timed(deep, &store));
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 30'000; ++i) wide["properties"][fmt::format("p{}", i)] = {{"type", "integer"}};
  EXPECT_FALSE(timed(wide, &store));  // 30,000 optional ones
  Json many = {{"enum", Json::array()}};
  for (int i = 0; i < 5000; ++i) many["enum"].push_back(fmt::format("value number {}", i * 7919));
  EXPECT_TRUE(timed(many, &store));
  Json product = Json::object();
  product["allOf"] = Json::array();
  for (int i = 0; i < 20; ++i) product["allOf"].push_back({{"anyOf", {{{"minLength", i}}, {{"maxLength", 50 + i}}}}});
  EXPECT_FALSE(timed(product, &store));  // 2^20 combinations
  Json chain = {{"$ref", "#/$defs/d0"}, {"$defs", Json::object()}};
  for (int i = 0; i < 3000; ++i) chain["$defs"][fmt::format("d{}", i)] = {{"$ref", fmt::format("#/$defs/d{}", i + 1)}};
  chain["$defs"]["d3000"] = {{"type", "null"}};
  EXPECT_TRUE(timed(chain, &store));
  chain["$defs"]["d3000"] = {{"$ref", "#/$defs/d0"}};
  EXPECT_FALSE(timed(chain, &store));
  Json grows = Json::parse(R"({"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"properties":{"x":{"$ref":"#/$defs/a"}}},
      {"properties":{"x":{"$ref":"#/$defs/b"}}}]},"b":{"properties":{"x":{"$ref":"#/$defs/a"}}}}})");
  static_cast<void>(timed(grows, &store));  // an answer, whichever
}

// Answers drawn through the masks fit by our own matcher, and by a validator that reads them from a file where
// BATON_GRAMMAR_SAMPLES names one (schema_samples_test.py).
TEST(Schema, RandomAnswers) {
  const auto vocabulary = test_vocabulary(test_words());
  const char* file = std::getenv("BATON_GRAMMAR_SAMPLES");
  std::ofstream out;
  if (file != nullptr) out.open(file);
  TerminalStore store;
  Random random(11);
  for (const Case& c : cases()) {
    const auto grammar = *compiled(c.schema, &store);
    int whole = 0;
    for (int i = 0; i < scaled(30, 4); ++i) {
      GrammarConstraint constraint(vocabulary, grammar);
      bool ended = false;
      const std::string text = random_walk(&constraint, *vocabulary, &random, 60, &ended);
      if (!ended) continue;
      ++whole;
      EXPECT_TRUE(Json::accept(text)) << c.schema << "\n" << text;
      EXPECT_TRUE(fits(grammar, text));
      if (out.is_open()) out << Json{{"schema", c.schema}, {"answer", text}}.dump() << '\n';
    }
    EXPECT_GT(whole, 0) << c.schema;
  }
}

}  // namespace
}  // namespace baton::grammar

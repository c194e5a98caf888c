// The matcher against a slow one by the book; masks against trying each token.
#include "baton/grammar/matcher.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "baton/grammar/json_grammar.h"
#include "baton/grammar/regex.h"
#include "baton/grammar/testing.h"
#include "tests/support/smoke.h"

namespace baton::grammar {
namespace {

struct Compiled {
  TerminalStore store;
  Draft draft{&store};
  RegexId regex(std::string_view pattern, Spelling spelling = Spelling::kText, RegexReach reach = RegexReach::kWhole) {
    auto made = parse_regex(pattern, spelling, reach, &draft.regex());
    EXPECT_TRUE(made) << made.error().message;
    return *made;
  }
};

bool matches(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar, false);
  return matcher.push(text) && matcher.can_end();
}

std::shared_ptr<const Grammar> json_grammar(Compiled* c) {
  JsonPieces pieces(&c->draft);
  const uint32_t root = c->draft.add_rule("root");
  c->draft.define(root, pieces.any_object());
  auto made = c->draft.finish(root);
  EXPECT_TRUE(made) << made.error().message;
  return *made;
}

std::shared_ptr<const Grammar> regex_grammar(Compiled* c, std::string_view pattern) {
  const uint32_t root = c->draft.add_rule("root");
  c->draft.define(root, c->draft.terminal(c->regex(pattern)));
  auto made = c->draft.finish(root);
  EXPECT_TRUE(made) << made.error().message;
  return *made;
}

// The mask holds exactly the tokens that can be pushed.
void expect_exact(const Vocabulary& vocabulary, const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar, false);
  ASSERT_TRUE(matcher.push(text)) << text;
  std::vector<uint32_t> mask(vocabulary.words());
  matcher.allow(vocabulary, mask);
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.words() * 32); ++id) {
    if (vocabulary.bytes(id).empty()) continue;
    Matcher tried = matcher;
    EXPECT_EQ(allows(mask, id), tried.push(vocabulary.bytes(id)))
        << "behind '" << text << "': '" << vocabulary.bytes(id) << "'";
  }
}

TEST(Matcher, JsonObjects) {
  Compiled c;
  const auto grammar = json_grammar(&c);
  for (const char* text :
       {"{}", "{ }", "{\"a\":1}", "{\"a\": [1, 2.5e-3, -0]}", "{\n  \"a\": {\"b\": null},\n  \"c\": true\n}",
        "{\"\\u00e9\\n\": \"\xc3\xa9\xf0\x9f\x98\x80\\ud83d\\ude00\"}", "{\"a\":[[[]]]}"}) {
    EXPECT_TRUE(matches(grammar, text)) << text;
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  }
  for (const char* text :
       {"", "[]", "{", "{\"a\"}", "{\"a\":1,}", "{\"a\":01}", "{\"a\":1}}", " {}", "{}  ", "{\"a\":\"\n\"}",
        "{\"a\":\"\\x\"}", "{\"a\":\"\xc3\"}", "{\"a\":\"\\ud83d\"}", "{\"a\":  1}", "{\"a\":tru}"}) {
    EXPECT_FALSE(matches(grammar, text)) << text;
  }
}

TEST(Matcher, MasksAreExact) {
  const auto vocabulary = test_vocabulary(test_words());
  Compiled c;
  const auto grammar = json_grammar(&c);
  for (const char* text :
       {"", "{", "{\"", "{\"a", "{\"a\"", "{\"a\":", "{\"a\": \"x", "{\"a\":12", "{\"a\":-", "{\"a\":[1", "{\"a\":[1,",
        "{\"a\":\"\\", "{\"a\":\"\\u0", "{\"a\":\"\xf0", "{\"a\":\n ", "{\"a\":[{}", "{\"a\":{\"b\":tr", "{\"a\":1}"}) {
    expect_exact(*vocabulary, grammar, text);
  }
}

TEST(Matcher, RandomJsonIsJson) {
  const auto vocabulary = test_vocabulary(test_words());
  Compiled c;
  const auto grammar = json_grammar(&c);
  Random random(7);
  int whole = 0;
  for (int i = 0; i < scaled(200, 20); ++i) {
    GrammarConstraint constraint(vocabulary, grammar);
    bool ended = false;
    const std::string text = random_walk(&constraint, *vocabulary, &random, 100, &ended);
    if (!ended) continue;
    ++whole;
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  }
  EXPECT_GT(whole, scaled(150, 10));
}

TEST(Matcher, CountedStringsAsWrittenOut) {
  for (const auto& [min, max] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 0}, {0, 3}, {2, 3}, {3, kUnbounded}, {70, 80}}) {
    Compiled c;
    const uint32_t root = c.draft.add_rule("root");
    c.draft.define(root, JsonPieces(&c.draft).string(min, max));
    const auto grammar = *c.draft.finish(root);
    for (uint32_t n = 0; n < 90; ++n) {
      std::string text = "\"";
      for (uint32_t i = 0; i < n; ++i) text += i % 3 == 0 ? "x" : i % 3 == 1 ? "\xc3\xa9" : "\\u00e9";
      EXPECT_EQ(matches(grammar, text + "\""), n >= min && n <= max) << n;
    }
    const auto vocabulary = test_vocabulary(test_words());
    for (const char* text : {"\"", "\"ab", "\"abc", "\"a\\u0"}) {
      if (Matcher(grammar, false).push(text)) expect_exact(*vocabulary, grammar, text);
    }
  }
}

// S = a S b | a S c | a: as many ways as there are texts, and one stack.
TEST(Matcher, AmbiguityCostsNothing) {
  Compiled c;
  const uint32_t root = c.draft.add_rule("s");
  Draft& d = c.draft;
  d.define(root, d.alt({d.seq({d.terminal("a"), d.rule(root), d.terminal("b")}),
                        d.seq({d.terminal("a"), d.rule(root), d.terminal("c")}), d.terminal("a"),
                        d.seq({d.rule(d.add_rule("t")), d.terminal("c")})}));
  d.define(1, d.seq({d.terminal("a"), d.rule(root)}));
  const auto grammar = *c.draft.finish(root);
  std::string text(200, 'a'), tail;
  for (int i = 0; i < 199; ++i) tail += "bc"[i % 2];
  EXPECT_TRUE(matches(grammar, text + tail));
  EXPECT_FALSE(matches(grammar, text + tail + "b"));
  EXPECT_FALSE(matches(grammar, text + tail.substr(1)));
}

// Two ways through one terminal come to the same state, with different things behind them.
TEST(Matcher, WaysThatMeetKeepBothEnds) {
  Compiled c;
  Draft& d = c.draft;
  const uint32_t root = d.add_rule("r");
  const ExprId digits = d.terminal(c.regex("[0-9]+"));
  d.define(root, d.alt({d.seq({digits, d.rule(root), d.terminal("x")}), d.terminal("y")}));
  const auto grammar = *d.finish(root);
  for (const char* text : {"y", "1yx", "12yx", "12yxx", "123yx", "123yxx", "123yxxx"}) {
    EXPECT_TRUE(matches(grammar, text)) << text;
  }
  for (const char* text : {"1y", "1yxx", "12yxxx", "12y"}) EXPECT_FALSE(matches(grammar, text)) << text;
}

// A terminal that ends within a token, and large subtrees behind it: masks within masks.
TEST(Matcher, MasksWithinMasks) {
  std::vector<std::string> words;
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) {
      for (const char* front : {" ", "+ ", " + ", "(", ") "}) words.push_back(front + std::string{a, b});
      words.push_back(std::string{' ', a, b, ' ', a, b, ')'});
    }
  }
  const auto vocabulary = test_vocabulary(words);
  Compiled c;
  Draft& d = c.draft;
  const uint32_t sum = d.add_rule("sum"), item = d.add_rule("item");
  d.define(sum, d.seq({d.rule(item), d.repeat(d.seq({d.terminal(c.regex(" [-+ ] ?")), d.rule(item)}), 0, kUnbounded)}));
  d.define(item, d.alt({d.terminal(c.regex("[a-y]+")), d.seq({d.terminal("("), d.rule(sum), d.terminal(")")})}));
  const auto grammar = *d.finish(sum);
  for (const char* text : {"", "a", "a ", "a +", "a + ", "a + (b", "(a ", "(ab)"})
    expect_exact(*vocabulary, grammar, text);
}

TEST(Matcher, WhatCannotBeIsLeftOut) {
  Compiled c;
  Draft& d = c.draft;
  const uint32_t root = d.add_rule("root"), endless = d.add_rule("endless");
  d.define(endless, d.seq({d.terminal("x"), d.rule(endless)}));
  d.define(root, d.alt({d.rule(endless), d.terminal("y"), d.seq({d.terminal("z"), d.alt({})})}));
  const auto grammar = *d.finish(root);
  Matcher matcher(grammar, false);
  EXPECT_FALSE(matcher.push("x"));
  EXPECT_FALSE(matcher.push("z"));
  EXPECT_TRUE(matcher.push("y"));
  Compiled none;
  const uint32_t r = none.draft.add_rule("r");
  none.draft.define(r, none.draft.seq({none.draft.terminal("x"), none.draft.rule(r)}));
  EXPECT_EQ(none.draft.finish(r).error().code, Code::kInvalidInput);
}

TEST(Matcher, RulesThatBeginWithThemselves) {
  Compiled c;
  Draft& d = c.draft;
  const uint32_t a = d.add_rule("a"), b = d.add_rule("b");
  d.define(a, d.alt({d.rule(b), d.terminal("x")}));
  d.define(b, d.seq({d.optional(d.terminal("y")), d.rule(a)}));
  const auto made = d.finish(a);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kUnsupported);
  EXPECT_NE(made.error().message.find("'a'"), std::string::npos) << made.error().message;
}

TEST(Matcher, NullableRules) {
  Compiled c;
  Draft& d = c.draft;
  const uint32_t root = d.add_rule("root"), none = d.add_rule("none"), maybe = d.add_rule("maybe");
  d.define(none, d.seq({}));
  d.define(maybe, d.seq({d.optional(d.terminal("m")), d.rule(none)}));
  d.define(root, d.seq({d.rule(maybe), d.rule(maybe), d.terminal(c.regex("[0-9]*")), d.rule(none)}));
  const auto grammar = *d.finish(root);
  for (const char* text : {"", "m", "mm", "mm12", "7"}) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : {"mmm", "1m"}) EXPECT_FALSE(matches(grammar, text)) << text;
}

TEST(Matcher, StopsOnlyAtAnEnd) {
  const auto vocabulary = test_vocabulary({"ab"});
  Compiled c;
  GrammarConstraint constraint(vocabulary, regex_grammar(&c, "ab?"));
  std::vector<uint32_t> mask(vocabulary->words());
  constraint.allow(mask);
  EXPECT_FALSE(allows(mask, kTestStop));
  EXPECT_TRUE(allows(mask, kTestStop + 1));
  EXPECT_FALSE(constraint.accept(kTestStop));
  EXPECT_FALSE(constraint.accept('b'));
  ASSERT_TRUE(constraint.accept('a'));
  constraint.allow(mask);
  EXPECT_TRUE(allows(mask, kTestStop));
  EXPECT_TRUE(allows(mask, 'b'));
  EXPECT_FALSE(allows(mask, 'a'));
  ASSERT_TRUE(constraint.accept('b'));
  constraint.allow(mask);
  for (int32_t id = 0; id < 288; ++id) EXPECT_EQ(allows(mask, id), id == kTestStop) << id;
  ASSERT_TRUE(constraint.accept(kTestStop));
  constraint.allow(mask);
  EXPECT_TRUE(allows(mask, kTestStop));
  EXPECT_FALSE(constraint.accept('a'));
  constraint.reset();
  EXPECT_TRUE(constraint.accept('a'));
}

// A vocabulary that lacks what is asked for: an error, and no wrong answer.
TEST(Matcher, NoTokenGoesOn) {
  const std::vector<Vocabulary::Token> tokens = {{0, "a"}, {1, "b"}};
  const auto vocabulary = std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{2});
  Compiled c;
  GrammarConstraint constraint(vocabulary, regex_grammar(&c, "ac"));
  std::vector<uint32_t> mask(vocabulary->words());
  ASSERT_TRUE(constraint.accept(0));
  constraint.allow(mask);
  EXPECT_EQ(mask[0], 4u);
  const Status told = constraint.accept(2);
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code, Code::kUnsupported);
}

TEST(Matcher, DepthHasABound) {
  Compiled c;
  const auto grammar = json_grammar(&c);
  std::string deep = "{\"a\":";
  for (uint32_t i = 0; i < Matcher::kDepthMax + 100; ++i) deep += '[';
  EXPECT_FALSE(Matcher(grammar, false).push(deep));
  EXPECT_TRUE(Matcher(grammar, false).push(deep.substr(0, 300)));
}

// Long answers do not grow what the matcher keeps: stacks that nothing needs go.
TEST(Matcher, LongAnswers) {
  Compiled c;
  Draft& d = c.draft;
  const uint32_t root = d.add_rule("s");
  d.define(root, d.seq({d.terminal("a"), d.optional(d.rule(root)), d.optional(d.terminal("b"))}));
  const auto grammar = *d.finish(root);
  Matcher matcher(grammar, false);
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(matcher.push("a"));
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(matcher.push("b")) << i;
  EXPECT_FALSE(matcher.push("b"));
  Compiled other;
  const auto json = json_grammar(&other);
  Matcher list(json, false);
  ASSERT_TRUE(list.push("{\"a\":["));
  for (int i = 0; i < scaled(200'000, 2000); ++i) ASSERT_TRUE(list.push("{\"b\":[[1]]},")) << i;
  ASSERT_TRUE(list.push("1]}"));
  EXPECT_TRUE(list.can_end());
}

TEST(Constraint, FreeUntilTheMarker) {
  const auto vocabulary = test_vocabulary(test_words());
  Compiled c;
  const auto grammar = json_grammar(&c);
  BehindMarker constraint("</think>", -1, vocabulary, grammar);
  std::vector<uint32_t> mask(vocabulary->words());
  const auto id_of = [&](std::string_view text) {
    for (int32_t id = 0; id < static_cast<int32_t>(vocabulary->words() * 32); ++id) {
      if (vocabulary->bytes(id) == text) return id;
    }
    return -1;
  };
  constraint.allow(mask);
  EXPECT_FALSE(allows(mask, kTestStop));
  EXPECT_TRUE(allows(mask, 'z'));
  for (const char* text : {"the", "</", "</", "think"}) {
    constraint.allow(mask);
    ASSERT_TRUE(allows(mask, id_of(text)));
    ASSERT_TRUE(constraint.accept(id_of(text)));
  }
  constraint.allow(mask);
  EXPECT_TRUE(allows(mask, id_of(">\n\n")));
  ASSERT_TRUE(constraint.accept(id_of(">\n\n")));
  constraint.allow(mask);
  EXPECT_TRUE(allows(mask, '{'));
  EXPECT_TRUE(allows(mask, '\n'));
  EXPECT_FALSE(allows(mask, 'z'));
  EXPECT_FALSE(allows(mask, kTestStop));
  for (const char* text : {"{\"", "a\"", ":", "12", "}"}) {
    if (id_of(text) >= 0) {
      ASSERT_TRUE(constraint.accept(id_of(text))) << text;
    }
  }
  constraint.allow(mask);
  EXPECT_TRUE(allows(mask, kTestStop));
  constraint.reset();
  constraint.allow(mask);
  EXPECT_TRUE(allows(mask, 'z'));
  // A token that ends the marker and goes on with what the grammar has not.
  const auto other = test_vocabulary({">{\"", ">z"});
  BehindMarker short_marker("k>", 'q', other, grammar);
  ASSERT_TRUE(short_marker.accept('k'));
  std::vector<uint32_t> bits(other->words());
  short_marker.allow(bits);
  EXPECT_TRUE(allows(bits, kTestStop + 1));
  EXPECT_FALSE(allows(bits, kTestStop + 2));
  EXPECT_FALSE(short_marker.accept(kTestStop + 2));
  ASSERT_TRUE(short_marker.accept('q'));
  short_marker.allow(bits);
  EXPECT_FALSE(allows(bits, 'z'));
}

}  // namespace
}  // namespace baton::grammar

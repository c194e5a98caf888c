// Grammars of llama.cpp's notation, and regular expressions.
#include "baton/grammar/gbnf.h"

#include <gtest/gtest.h>

#include "baton/grammar/matcher.h"
#include "baton/grammar/regex.h"

namespace baton::grammar {
namespace {

Result<std::shared_ptr<const Grammar>> from_gbnf(std::string_view text) {
  TerminalStore store;
  Draft draft(&store);
  BATON_TRY(const ExprId body, gbnf_root(text, &draft));
  const uint32_t root = draft.add_rule("(all)");
  draft.define(root, body);
  return draft.finish(root);
}
Result<std::shared_ptr<const Grammar>> from_regex(std::string_view pattern, RegexReach reach = RegexReach::kWhole) {
  TerminalStore store;
  Draft draft(&store);
  BATON_TRY(const RegexId id, parse_regex(pattern, Spelling::kText, reach, &draft.regex()));
  const uint32_t root = draft.add_rule("root");
  draft.define(root, draft.terminal(id));
  return draft.finish(root);
}
bool whole(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar, false);
  return matcher.push(text) && matcher.can_end();
}

struct Texts {
  const char* source;
  std::vector<std::string> good, bad;
};

TEST(Gbnf, Texts) {
  const Texts cases[] = {
      {"root ::= \"a\" | \"b\" \"c\"", {"a", "bc"}, {"", "b", "ac"}},
      {"# first\nroot ::= item+ # behind\n\nitem ::= [a-c] [^a-c\\n]\n", {"ax", "axb "}, {"", "aa", "a\n"}},
      {"root ::= (\n  \"x\"\n  | \"y\"\n)* \"z\"", {"z", "xyz"}, {"x"}},
      {"root ::= \"x\"\n  | \"y\"\n", {"x", "y"}, {"xy"}},
      {"root ::= \"ab\"{2} [0-9]{1,3} \"c\"? .{2,}", {"abab1xy", "abab123cxyz"}, {"ab1xy", "abab1x", "ababxy"}},
      {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
       {"1", "(1+22)+(3)"},
       {"(1", "1+", "()"}},
      {"root ::= \"\\x41\\u00e9\\U0001F600\\\"\\\\\" [\\]\\-x]",
       {"A\xc3\xa9\xf0\x9f\x98\x80\"\\]", "A\xc3\xa9\xf0\x9f\x98\x80\"\\-"},
       {"A"}},
      {"root ::= a-b\na-b ::= \"\" | \"q\" a-b", {"", "qqq"}, {"p"}},
      {"root ::= s s\ns ::= \"a\"? | \"(\" s \")\"", {"", "a", "aa", "(a)", "()(())"}, {"aaa", "("}},
  };
  for (const Texts& c : cases) {
    const auto grammar = from_gbnf(c.source);
    ASSERT_TRUE(grammar) << c.source << ": " << grammar.error().message;
    for (const std::string& text : c.good) EXPECT_TRUE(whole(*grammar, text)) << c.source << "\n" << text;
    for (const std::string& text : c.bad) EXPECT_FALSE(whole(*grammar, text)) << c.source << "\n" << text;
  }
}

TEST(Gbnf, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "no rule 'root'"},
      {"a ::= \"x\"", "no rule 'root'"},
      {"root ::= a\n\n", "line 1: rule 'a' is not defined"},
      {"root ::= \"a", "line 1: it ends within"},
      {"\nroot ::= [a", "line 2: it ends within"},
      {"root ::= (\"a\"", "line 1: '(' without ')'"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: rule 'root' is there already"},
      {"root = \"a\"", "line 1: '::='"},
      {"root ::= \"\\q\"", "means nothing"},
      {"root ::= [b-a]", "ends before it begins"},
      {"root ::= \"a\"{3,1}", "begins no {m}"},
      {"root ::= \"a\"{99999999999}", "more than 10000 times"},
      {"root ::= root \"a\" | \"b\"", "can begin with itself"},
      {"root ::= a\na ::= b? c\nb ::= \"x\"\nc ::= a \"y\" | \"z\"", "can begin with itself"},
      {"root ::= \"a\" root", "no finite text"},
      {"root ::= \"a\" $", "'$' is not understood"},
  };
  for (const auto& c : cases) {
    const auto grammar = from_gbnf(c.first);
    ASSERT_FALSE(grammar) << c.first;
    EXPECT_NE(grammar.error().message.find(c.second), std::string::npos) << c.first << ": " << grammar.error().message;
  }
  std::string deep = "root ::= ";
  for (int i = 0; i < 5000; ++i) deep += '(';
  EXPECT_FALSE(from_gbnf(deep));
  EXPECT_FALSE(from_gbnf("root ::= ((([a-z]{1,9999}){1,9999}){1,9999}){1,9999} root | \"a\""));
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 3000; ++i) chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  EXPECT_TRUE(from_gbnf(chain + "r3000 ::= \"a\""));
}

TEST(Regex, Texts) {
  const Texts cases[] = {
      {"abc", {"abc"}, {"ab", "abcd"}},
      {"^a|bc$", {"a", "bc"}, {"abc"}},
      {"[A-F\\d_.-]+", {"AF09_.-"}, {"", "G"}},
      {"\\w+\\s\\W", {"a_1 !", "x\t\xc3\xa9"}, {"a b", "! !"}},
      {"\\D\\S", {"xy", "\xc3\xa9\xe2\x82\xac"}, {"1a", "x ", "x\xc2\xa0"}},
      {"(?:ab)*?c{2}(?<n>d{1,2})e{2,}", {"ccdee", "ababccddeee"}, {"cdee", "ccdde"}},
      {".", {"a", "\xf0\x9f\x98\x80"}, {"\n", "", "\x80", "ab"}},
      {"[^a]", {"b", "\n", "\xe2\x82\xac"}, {"a", "\xff"}},
      {"\\x41\\u00e9\\u{1F600}\\ud83d\\ude00", {"A\xc3\xa9\xf0\x9f\x98\x80\xf0\x9f\x98\x80"}, {"A"}},
      {"[\\u0400-\\u04ff]{2}", {"\xd0\x96\xd0\xb6"}, {"ab", "\xd0\x96"}},
      {"", {""}, {"a"}},
      {"a||b", {"", "a", "b"}, {"ab"}},
      {"\\.\\*\\[\\]\\(\\)\\\\\\/", {".*[]()\\/"}, {"a"}},
      {"[]a]", {}, {"a", "]"}},
  };
  for (const Texts& c : cases) {
    const auto grammar = from_regex(c.source);
    if (c.good.empty()) {
      EXPECT_FALSE(grammar && whole(*grammar, c.bad[0]));
      continue;
    }
    ASSERT_TRUE(grammar) << c.source << ": " << grammar.error().message;
    for (const std::string& text : c.good) EXPECT_TRUE(whole(*grammar, text)) << c.source << "\n" << text;
    for (const std::string& text : c.bad) EXPECT_FALSE(whole(*grammar, text)) << c.source << "\n" << text;
  }
  EXPECT_TRUE(whole(*from_regex("b", RegexReach::kSearch), "abc"));
  EXPECT_FALSE(whole(*from_regex("^b", RegexReach::kSearch), "abc"));
}

TEST(Regex, Refusals) {
  for (const char* pattern :
       {"(?=a)", "(?!a)", "(?<=a)", "(?i)a", "\\1", "\\ba", "\\p{L}", "a$b", "a^", "(^a)", "a*+"}) {
    const auto grammar = from_regex(pattern);
    ASSERT_FALSE(grammar) << pattern;
    EXPECT_EQ(grammar.error().code, Code::kUnsupported) << pattern << ": " << grammar.error().message;
  }
  for (const char* pattern :
       {"(", ")", "[", "[z-a]", "*", "a**", "a{2,1}", "a{", "\\", "\\x4", "\\q", "\xff", "a{999999}", "(?<a"}) {
    const auto grammar = from_regex(pattern);
    ASSERT_FALSE(grammar) << pattern;
    EXPECT_EQ(grammar.error().code, Code::kInvalidInput) << pattern << ": " << grammar.error().message;
  }
  EXPECT_FALSE(from_regex("((((a{1,1000}){1,1000}){1,1000}){1,1000}"));
  EXPECT_FALSE(from_regex("((((a{1,1000}){1,1000}){1,1000}){1,1000})"));
  EXPECT_FALSE(from_regex(std::string(5000, '(') + "a" + std::string(5000, ')')));
}

// Too large for one automaton: a graph of smaller ones, with the same texts.
TEST(Regex, LargeOnesBecomeGraphs) {
  const auto grammar = from_regex("(a|b)*a(a|b){14}");
  ASSERT_TRUE(grammar) << grammar.error().message;
  EXPECT_TRUE(whole(*grammar, "bbbabababababababb"));
  EXPECT_FALSE(whole(*grammar, "bbbbbbbbbbbbbbbbbbbbb"));
  EXPECT_GT((*grammar)->terminals.size(), 2u);
}

}  // namespace
}  // namespace baton::grammar

// Streaming: whole characters only, the replacement rule of Python, stop strings across any cuts.
#include "baton/text/detokenizer.h"

#include <gtest/gtest.h>

#include "baton/base/random.h"
#include "baton/text/byte_alphabet.h"
#include "baton/text/utf8.h"

namespace baton {
namespace {

constexpr std::string_view kBad = "\xef\xbf\xbd";

std::string replaced(std::string_view bytes, size_t cut) {
  Utf8Stream stream;
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += cut) stream.push(bytes.substr(at, cut), &out);
  stream.finish(&out);
  return out;
}

TEST(Utf8Stream, ReplacesAsPythonDoes) {
  const std::string bad(kBad);
  // bytes.decode(errors="replace") of CPython 3.11.
  const std::pair<std::string, std::string> cases[] = {
      {"abc", "abc"},
      {"\xe6\x9d\xb1", "\xe6\x9d\xb1"},
      {"\xe6\x9d", bad},
      {"\xe6", bad},
      {"\xe6\x9d"
       "a",
       bad + "a"},
      {"\xe6"
       "a",
       bad + "a"},
      {"\x80", bad},
      {"\x80\x80", bad + bad},
      {"\xff\xfe", bad + bad},
      {"\xc0\x80", bad + bad},
      {"\xc1\xbf", bad + bad},
      {"\xe0\x80\x80", bad + bad + bad},
      {"\xe0\xa0", bad},
      {"\xed\xa0\x80", bad + bad + bad},
      {"\xed\x9f\xbf", "\xed\x9f\xbf"},
      {"\xf0\x9f\x99\x82", "\xf0\x9f\x99\x82"},
      {"\xf0\x9f\x99", bad},
      {"\xf0\x9f\x99x", bad + "x"},
      {"\xf0\x9f\xf0\x9f\x99\x82", bad + "\xf0\x9f\x99\x82"},
      {"\xf0\x80\x80\x80", bad + bad + bad + bad},
      {"\xf4\x90\x80\x80", bad + bad + bad + bad},
      {"\xf5\x80\x80\x80", bad + bad + bad + bad},
      {"a\xc3"
       "\xc3\xa9",
       "a" + bad + "\xc3\xa9"},
  };
  for (const auto& [bytes, expected] : cases) {
    for (size_t cut = 1; cut <= 5; ++cut) EXPECT_EQ(replaced(bytes, cut), expected) << bytes << " cut " << cut;
  }
}

TEST(Utf8Stream, CutsDoNotMatterAndTheResultIsValid) {
  Random random(2);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (size_t i = random.below(30); i > 0; --i) {
      constexpr uint8_t kInteresting[] = {0x41, 0x80, 0xbf, 0xc3, 0xe0, 0xa0, 0xed, 0xf0, 0x90, 0xf4, 0x8f, 0xff};
      bytes.push_back(static_cast<char>(kInteresting[random.below(std::size(kInteresting))]));
    }
    const std::string whole = replaced(bytes, 1000);
    EXPECT_TRUE(is_utf8(whole));
    for (const size_t cut : {1u, 2u, 3u, 7u}) EXPECT_EQ(replaced(bytes, cut), whole);
  }
}

Tokenizer byte_tokenizer() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  TokenizerSpec spec;
  spec.tokens.assign(texts.begin(), texts.end());
  spec.added.push_back({256, "<end>", true, false, false, false, false});
  return Tokenizer::create(spec).value();
}

TEST(Detokenizer, NeverShowsHalfACharacter) {
  const Tokenizer tokenizer = byte_tokenizer();
  const std::string text = "a\u00e9\u6771\U0001F642z";
  Detokenizer detokenizer(tokenizer);
  std::string all;
  for (const char c : text) {
    const std::string part = detokenizer.push(static_cast<uint8_t>(c)).value();
    EXPECT_TRUE(is_utf8(part));
    all += part;
  }
  EXPECT_EQ(all + detokenizer.finish(), text);
  EXPECT_EQ(detokenizer.push(0xe6).value(), "");
  EXPECT_EQ(detokenizer.push(256).value(), "");
  EXPECT_EQ(detokenizer.finish(), kBad);
  EXPECT_EQ(detokenizer.finish(), "");
  Detokenizer shows_all(tokenizer, false);
  EXPECT_EQ(shows_all.push(256).value(), "<end>");
  EXPECT_FALSE(shows_all.push(257).has_value());
  EXPECT_FALSE(shows_all.push(-1).has_value());
}

struct Seen {
  std::string text;
  std::optional<size_t> match;
};

Seen run(const std::vector<std::string>& stops, std::string_view text, size_t cut) {
  StopStrings watch = StopStrings::create(stops).value();
  Seen seen;
  for (size_t at = 0; at < text.size(); at += cut) {
    const auto output = watch.push(text.substr(at, cut));
    seen.text += output.text;
    if (output.match) seen.match = output.match;
  }
  if (!watch.matched()) seen.text += watch.finish();
  return seen;
}

TEST(StopStrings, FindsAndDrops) {
  for (size_t cut = 1; cut < 12; ++cut) {
    const Seen stopped = run({"END", "\n\n"}, "some text\nEND and more", cut);
    EXPECT_EQ(stopped.text, "some text\n");
    EXPECT_EQ(stopped.match, 0u);
    EXPECT_EQ(run({"END", "\n\n"}, "a\n\nb", cut).text, "a");
    EXPECT_EQ(run({"END"}, "aEN bEND", cut).text, "aEN b");
    EXPECT_EQ(run({"END"}, "aEEEND", cut).text, "aEE");
    const Seen none = run({"END", "xyz"}, "never EN", cut);
    EXPECT_EQ(none.text, "never EN");
    EXPECT_FALSE(none.match.has_value());
    EXPECT_EQ(run({}, "plain", cut).text, "plain");
  }
}

TEST(StopStrings, HoldsBackOnlyWhatMayBeABeginning) {
  StopStrings watch = StopStrings::create({"</s>", "stop"}).value();
  EXPECT_EQ(watch.push("hello <").text, "hello ");
  EXPECT_EQ(watch.push("/").text, "");
  EXPECT_EQ(watch.push("x s").text, "</x ");
  EXPECT_EQ(watch.push("tart").text, "start");
  EXPECT_EQ(watch.push("st").text, "");
  EXPECT_EQ(watch.finish(), "st");
  const auto output = watch.push("a</s>b");
  EXPECT_EQ(output.text, "a");
  EXPECT_EQ(output.match, 0u);
  EXPECT_TRUE(watch.matched());
  EXPECT_EQ(watch.push("more").text, "");
}

// What comes before the first match, wherever the text is cut.
TEST(StopStrings, EqualsASearchOfTheWholeText) {
  Random random(4);
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](size_t length_max) {
      std::string text;
      for (size_t i = 1 + random.below(length_max); i > 0; --i)
        text.push_back(static_cast<char>('a' + random.below(2)));
      return text;
    };
    std::vector<std::string> stops;
    for (size_t i = 1 + random.below(3); i > 0; --i) stops.push_back(word(6));
    const std::string text = word(30);
    size_t first = std::string::npos;
    for (const std::string& stop : stops) first = std::min(first, text.find(stop));
    const Seen seen = run(stops, text, 1 + random.below(5));
    EXPECT_EQ(seen.text, text.substr(0, first)) << text;
  }
}

TEST(StopStrings, LimitsAreNamed) {
  EXPECT_FALSE(StopStrings::create({"ok", ""}).has_value());
  EXPECT_FALSE(StopStrings::create(std::vector<std::string>(65, "x")).has_value());
  EXPECT_FALSE(StopStrings::create({std::string(1 << 20, 'x')}).has_value());
}

}  // namespace
}  // namespace baton

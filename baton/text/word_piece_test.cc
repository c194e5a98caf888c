// WordPiece: the ids of another implementation, a table by hand, vocab.txt, and files that are wrong.
#include "baton/text/word_piece.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "baton/text/tokenizer.h"

namespace baton {
namespace {

using nlohmann::json;

json word_piece_data() {
  std::ifstream stream(std::string(BATON_SOURCE_DIR) + "/tests/data/text/wordpiece.json", std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return json::parse(text.str());
}

Result<Tokenizer> load_word_piece(const std::string& text, const std::string& config = "") {
  BATON_TRY(const TokenizerSpec spec, tokenizer_spec_from_json(text, config));
  return Tokenizer::create(spec);
}

Result<Tokenizer> load_lines(std::string_view text, std::string_view config = "") {
  BATON_TRY(const TokenizerSpec spec, tokenizer_spec_from_vocab_txt(text, config));
  return Tokenizer::create(spec);
}

// Lines 0 to 4 are BERT's special tokens.
constexpr std::string_view kLines =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n##a\nthe\n!\ncafe\n\xe6\x9d\xb1\n";

TEST(WordPiece, VariantsEncodeAsTokenizers) {
  const json data = word_piece_data();
  size_t compared = 0;
  for (const json& variant : data["cases"]) {
    json file = data["base"];
    for (const auto& [key, value] : variant["change"].items()) {
      if (key == "model") {
        file["model"].update(value);
      } else {
        file[key] = value;
      }
    }
    const auto tokenizer = load_word_piece(file.dump());
    ASSERT_TRUE(tokenizer.has_value()) << variant["name"] << ": " << tokenizer.error().message;
    for (size_t i = 0; i < data["texts"].size(); ++i, ++compared) {
      const auto ids = tokenizer->encode(data["texts"][i].get<std::string>(), true);
      ASSERT_TRUE(ids.has_value()) << ids.error().message;
      EXPECT_EQ(json(tokenizer->with_ends(*ids)), variant["ids"][i]) << variant["name"] << " of " << data["texts"][i];
    }
  }
  EXPECT_GT(compared, 100u);
}

TEST(WordPiece, TableByHand) {
  const Tokenizer tokenizer = load_lines(kLines).value();
  const std::pair<std::string_view, std::vector<int32_t>> table[] = {
      {"", {}},
      {"the", {9}},
      {"unaffable", {5, 6, 7}},
      {"unaffa", {5, 6, 8}},
      {"unaffx", {1}},   // no pieces: the whole word is unknown
      {"affable", {1}},  // "##aff" does not begin a word
      {"THE Caf\xc3\xa9!", {9, 11, 10}},
      {"the!the", {9, 10, 9}},
      {"un\xe6\x9d\xb1un", {5, 12, 5}},
      {"un\xff"
       "affable",
       {5, 6, 7}},                // what is no UTF-8 goes as U+FFFD does
      {"un##aff", {5, 1, 1, 1}},  // no text makes a piece inside a word
  };
  for (const auto& [text, ids] : table) EXPECT_EQ(tokenizer.encode(text, false).value(), ids) << text;
  EXPECT_EQ(tokenizer.with_ends({9}), (std::vector<int32_t>{2, 9, 3}));
  EXPECT_EQ(tokenizer.with_ends({}), (std::vector<int32_t>{2, 3}));
}

TEST(WordPiece, TextMakesNoControlTokens) {
  const std::string lines = std::string(kLines) + "[\n]\ncls\n";
  const Tokenizer tokenizer = load_lines(lines).value();
  EXPECT_EQ(tokenizer.encode("[CLS]", false).value(), (std::vector<int32_t>{13, 15, 14}));
  EXPECT_EQ(tokenizer.encode("[CLS]", true).value(), (std::vector<int32_t>{2}));
}

TEST(WordPiece, DecodesWordsWithSpaces) {
  const Tokenizer tokenizer = load_lines(kLines).value();
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{2, 9, 5, 6, 7, 10, 3}, true).value(), "the unaffable !");
  EXPECT_EQ(tokenizer.token_text(6), "##aff");
  EXPECT_EQ(tokenizer.token_bytes(6), "aff");
}

TEST(WordPiece, ConfigOfVocabTxt) {
  const Tokenizer cased = load_lines("[UNK]\n[CLS]\n[SEP]\nThe\nthe\n", R"({"do_lower_case": false})").value();
  EXPECT_EQ(cased.encode("The the", false).value(), (std::vector<int32_t>{3, 4}));
  const Tokenizer named =
      load_lines("<unk>\n<s>\n</s>\r\na\n",
                 R"({"unk_token": "<unk>", "cls_token": {"content": "<s>"}, "sep_token": "</s>", "eos_token": "a"})")
          .value();
  EXPECT_EQ(named.with_ends(named.encode("a b", false).value()), (std::vector<int32_t>{1, 3, 0, 2}));
}

TEST(WordPiece, FingerprintSeesEachRule) {
  const auto print_of = [](const char* change) {
    json file = word_piece_data()["base"];
    file.merge_patch(json::parse(change));
    return load_word_piece(file.dump()).value().fingerprint();
  };
  std::set<uint64_t> prints;
  const char* changes[] = {R"({})",
                           R"({"normalizer": {"clean_text": false}})",
                           R"({"normalizer": {"handle_chinese_chars": false}})",
                           R"({"normalizer": {"strip_accents": false}})",
                           R"({"normalizer": {"lowercase": false, "strip_accents": true}})",
                           R"({"model": {"max_input_chars_per_word": 99}})",
                           R"({"model": {"continuing_subword_prefix": "#"}})"};
  for (const char* change : changes) prints.insert(print_of(change));
  EXPECT_EQ(prints.size(), std::size(changes));
}

TEST(WordPiece, LongWordsTakeBoundedTime) {
  json file = word_piece_data()["base"];
  file["model"]["max_input_chars_per_word"] = 1000;
  const Tokenizer tokenizer = load_word_piece(file.dump()).value();
  const std::string word(1000, 'a');
  EXPECT_EQ(tokenizer.encode(word, false).value().size(), 1000u);
  EXPECT_EQ(tokenizer.encode(word + "a", false).value().size(), 1u);
}

TEST(WordPiece, BadFilesAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"model": {"vocab": null}})", "'vocab'"},
      {R"({"model": {"unk_token": null}})", "'unk_token' is missing"},
      {R"({"model": {"unk_token": "zz"}})", "'unk_token' is not in the vocabulary"},
      {R"({"model": {"max_input_chars_per_word": 0}})", "max_input_chars_per_word is 0"},
      {R"({"model": {"max_input_chars_per_word": -1}})", "max_input_chars_per_word"},
      {R"({"model": {"max_input_chars_per_word": 1000000000}})", "max_input_chars_per_word is 1000000000"},
      {R"({"model": {"continuing_subword_prefix": 1}})", "'continuing_subword_prefix' must be a string"},
      {R"({"normalizer": {"type": "ByteLevel"}})", "ByteLevel"},
      {R"({"normalizer": {"lowercase": 1}})", "'lowercase'"},
      {R"({"pre_tokenizer": {"type": "UnicodeScripts"}})", "UnicodeScripts"},
      {R"({"decoder": {"type": "ByteLevel"}})", "ByteLevel"},
      {R"({"post_processor": {"type": "BertProcessing", "cls": "x"}})", "'cls' must be a text and an id"},
      {R"({"post_processor": {"type": "BertProcessing", "cls": ["a", 1], "sep": ["b", -1]}})", "id must be"},
      {R"({"post_processor": {"type": "BertProcessing", "cls": ["a", 99999], "sep": ["b", 1]}})", "outside"},
  };
  for (const auto& [patch, word] : cases) {
    json file = word_piece_data()["base"];
    const json changes = json::parse(patch);
    // Another processor has other fields; the file's own must not be left beside them.
    if (changes.contains("post_processor")) file.erase("post_processor");
    file.merge_patch(changes);
    const auto tokenizer = load_word_piece(file.dump());
    ASSERT_FALSE(tokenizer.has_value()) << patch;
    EXPECT_NE(tokenizer.error().message.find(word), std::string::npos) << patch << ": " << tokenizer.error().message;
  }
  const std::pair<const char*, const char*> lines[] = {
      {"", "[UNK]"}, {"[UNK]\n[CLS]\n", "[SEP]"}, {"[UNK]\n[SEP]\n", "[CLS]"}};
  for (const auto& [text, word] : lines) {
    const auto tokenizer = load_lines(text);
    ASSERT_FALSE(tokenizer.has_value()) << text;
    EXPECT_NE(tokenizer.error().message.find(word), std::string::npos) << tokenizer.error().message;
  }
  EXPECT_FALSE(load_lines(kLines, "nonsense").has_value());
  EXPECT_FALSE(load_lines(kLines, R"({"do_lower_case": 1})").has_value());
}

}  // namespace
}  // namespace baton

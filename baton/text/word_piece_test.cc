// WordPiece: the ids of another implementation, a table by hand, vocab.txt, and files that are wrong.
#include "baton/text/word_piece.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
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

json changed_file(const json& data, const json& variant) {
  json file = data["base"];
  for (const auto& [key, value] : variant["change"].items()) {
    if (key == "model") {
      file["model"].update(value);
    } else {
      file[key] = value;
    }
  }
  return file;
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
    const auto tokenizer = load_word_piece(changed_file(data, variant).dump());
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

// transformers makes tokenizers of BERT's classes of tokenizer_config.json and the vocabulary: the ids are those of the
// variant that says the same, whatever tokenizer.json says.
TEST(WordPiece, TokenizerConfigGoesBeforeTokenizerJson) {
  const json data = word_piece_data();
  const std::pair<const char*, const char*> said[] = {
      {R"({"tokenizer_class": "BertTokenizer"})", "as it is"},
      {R"({"tokenizer_class": "BertTokenizerFast", "do_lower_case": false})", "cased"},
      {R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false, "strip_accents": true})",
       "cased without accents"},
      {R"({"tokenizer_class": "DistilBertTokenizer", "strip_accents": false})", "lower with accents"},
      {R"({"tokenizer_class": "BertTokenizer", "tokenize_chinese_chars": false})", "ideographs together"}};
  for (const auto& [config, name] : said) {
    const auto same = [&, wanted = name](const json& variant) { return variant["name"] == wanted; };
    const json& wanted = *std::find_if(data["cases"].begin(), data["cases"].end(), same);
    for (const json& variant : data["cases"]) {
      // Tokens that are added are tokenizer.json's.
      if (variant["change"].contains("added_tokens")) continue;
      const auto tokenizer = load_word_piece(changed_file(data, variant).dump(), config);
      ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
      for (size_t i = 0; i < data["texts"].size(); ++i) {
        const auto ids = tokenizer->encode(data["texts"][i].get<std::string>(), true);
        ASSERT_TRUE(ids.has_value());
        EXPECT_EQ(json(tokenizer->with_ends(*ids)), wanted["ids"][i]) << config << variant["name"] << data["texts"][i];
      }
    }
  }
}

TEST(WordPiece, ClassesThatTakeTokenizerJsonAsItIs) {
  const std::string cased = changed_file(word_piece_data(), json::parse(R"({"change": {"normalizer": null}})")).dump();
  const auto ids = [&](const char* config, bool bert_model) {
    const auto spec = tokenizer_spec_from_json(cased, config, bert_model);
    return Tokenizer::create(*spec)->encode("Hello", false).value();
  };
  const auto upper = ids("", false), lower = ids("", true);
  EXPECT_NE(upper, lower);
  EXPECT_EQ(ids(R"({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": true})", true), upper);
  EXPECT_EQ(ids(R"({"do_lower_case": false})", true), upper);
  EXPECT_EQ(ids(R"({"tokenizer_class": "BertTokenizer"})", false), lower);
}

TEST(WordPiece, TokenizerConfigNamesTheEndsAndTheUnknown) {
  const std::string file = word_piece_data()["base"].dump();
  const auto named = load_word_piece(file, R"({"tokenizer_class": "BertTokenizer", "unk_token": "[MASK]",
      "cls_token": {"content": "the"}, "sep_token": "[PAD]"})");
  ASSERT_TRUE(named.has_value()) << named.error().message;
  const auto ids = named->with_ends(named->encode("\xf0\x9f\x98\x80", false).value());
  EXPECT_EQ(ids, (std::vector<int32_t>{named->find("the"), 4, 0}));
  const auto missing = load_word_piece(file, R"({"tokenizer_class": "BertTokenizer", "cls_token": "[NOPE]"})");
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().message.find("cls_token '[NOPE]'"), std::string::npos) << missing.error().message;
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

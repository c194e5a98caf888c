// tokenizer.json and tokenizer_config.json: what is taken from where, and files that are wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "baton/text/pretokenizer.h"
#include "baton/text/tokenizer.h"
#include "tests/support/smoke.h"

namespace baton {
namespace {

using nlohmann::json;

json base_file() {
  return json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b"]}
  })");
}

Result<Tokenizer> load(const std::string& text, const std::string& config = "") {
  BATON_TRY(const TokenizerSpec spec, tokenizer_spec_from_json(text, config));
  return Tokenizer::create(spec);
}

TEST(TokenizerJson, MergesAsTextsOrPairs) {
  json file = base_file();
  EXPECT_EQ(load(file.dump()).value().encode("abc", true).value(), (std::vector<int32_t>{2, 3}));
  file["model"]["merges"] = json::parse(R"([["a", "b"]])");
  EXPECT_EQ(load(file.dump()).value().encode("abc", true).value(), (std::vector<int32_t>{2, 3}));
}

TEST(TokenizerJson, OrderOfTheFileDoesNotMatter) {
  const std::string text = R"({"model": {"merges": ["a b"], "vocab": {"ab": 2, "b": 1, "a": 0}, "type": "BPE"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": false}]}})";
  EXPECT_EQ(load(text).value().encode("ab", true).value(), (std::vector<int32_t>{2}));
}

TEST(TokenizerJson, ConfigNamesSpecialTokens) {
  const std::string config = R"({"bos_token": null, "eos_token": {"content": "<s>"}, "pad_token": "c",
    "added_tokens_decoder": {"4": {"content": "<s>", "special": true},
                             "9": {"content": "<only here>", "special": true}}})";
  const Tokenizer tokenizer = load(base_file().dump(), config).value();
  EXPECT_EQ(tokenizer.bos_id(), -1);
  EXPECT_EQ(tokenizer.eos_id(), 4);
  EXPECT_EQ(tokenizer.pad_id(), 3);
  EXPECT_EQ(tokenizer.vocab_size(), 10);
  EXPECT_EQ(tokenizer.encode("ab<only here>", true).value(), (std::vector<int32_t>{2, 9}));
  // 5 to 8 are holes.
  EXPECT_EQ(std::vector(tokenizer.unused_ids().begin(), tokenizer.unused_ids().end()),
            (std::vector<int32_t>{5, 6, 7, 8}));
}

TEST(TokenizerJson, TemplateProcessingDecidesOnBos) {
  json file = base_file();
  file["post_processor"] = json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}})");
  const Tokenizer tokenizer = load(file.dump()).value();
  EXPECT_TRUE(tokenizer.add_bos());
  EXPECT_FALSE(tokenizer.add_eos());
  EXPECT_EQ(tokenizer.bos_id(), 4);
}

TEST(TokenizerJson, BadFilesAreRefusedByName) {
  struct Case {
    std::string_view patch;  // JSON merge patch on the base file, or the file itself when it does not begin with {
    std::string_view word;
    Code code = Code::kInvalidInput;
  };
  const Case cases[] = {
      {"", "tokenizer.json"},
      {"[]", "not a JSON object"},
      {"nonsense", "byte"},
      {"[[[[", "byte"},
      {R"({"model": null})", "'model'"},
      {R"({"model": {"type": "WordPiece"}})", "decoder", Code::kUnsupported},
      {R"({"model": {"type": "Unigram"}})", "decoder", Code::kUnsupported},
      {R"({"model": {"type": "WordLevel"}})", "WordLevel", Code::kUnsupported},
      {R"({"model": {"type": 1}})", "'type'"},
      {R"({"model": {"vocab": null}})", "'vocab'"},
      {R"({"model": {"vocab": []}})", "'vocab'"},
      {R"({"model": {"vocab": {"z": -1}}})", "is -1"},
      {R"({"model": {"vocab": {"z": 4294967296}}})", "4294967296"},
      {R"({"model": {"vocab": {"z": 2097152}}})", "2097152"},
      {R"({"model": {"vocab": {"z": 1.5}}})", "a number inside model.vocab"},
      {R"({"model": {"vocab": {"z": "1"}}})", "a string inside model.vocab"},
      {R"({"model": {"vocab": {"z": {}}}})", "an object inside model.vocab"},
      {R"({"model": {"vocab": {"z": 1}}})", "same id 1"},
      {R"({"model": {"merges": null}})", "'merges'"},
      {R"({"model": {"merges": ["ab"]}})", "merges[0]"},
      {R"({"model": {"merges": [["a"]]}})", "merges[0]"},
      {R"({"model": {"merges": [["a", "b", "c"]]}})", "merges[0]"},
      {R"({"model": {"merges": [[["a"], "b"]]}})", "an array inside model.merges"},
      {R"({"model": {"merges": [1]}})", "a number inside model.merges"},
      {R"({"model": {"merges": ["a z"]}})", "merge 0: 'z' is not a token"},
      {R"({"model": {"merges": ["b c"]}})", "merge 0: 'bc' is not a token"},
      {R"({"model": {"merges": [" b"]}})", "merges[0]"},
      {R"({"model": {"continuing_subword_prefix": "##"}})", "continuing_subword_prefix", Code::kUnsupported},
      {R"({"model": {"dropout": 0.1}})", "dropout", Code::kUnsupported},
      {R"({"model": {"unk_token": "zz"}})", "unk_token"},
      {R"({"model": {"ignore_merges": 1}})", "ignore_merges"},
      {R"({"normalizer": {"type": "ByteLevel"}})", "ByteLevel", Code::kUnsupported},
      {R"({"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x"}})", "Replace: the string"},
      {R"({"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": "x"}})", "pattern '('"},
      {R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "x"}})", "no base64"},
      {R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"}})",
       "precompiled_charsmap: an array"},
      {R"({"normalizer": {"type": "Sequence", "normalizers": 3}})", "normalizers"},
      {R"({"normalizer": 3})", "normalizer"},
      {R"({"pre_tokenizer": null})", "decoder", Code::kUnsupported},
      {R"({"pre_tokenizer": {"type": "Metaspace"}})", "Metaspace"},
      {R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "_"}})", "replacement '_'", Code::kUnsupported},
      {R"({"pre_tokenizer": {"type": "UnicodeScripts"}})", "UnicodeScripts", Code::kUnsupported},
      {R"({"pre_tokenizer": {"type": "Digits"}})", "decoder", Code::kUnsupported},
      {R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]}})",
       "after ByteLevel", Code::kUnsupported},
      {R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
          {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"},
          {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}})",
       "pattern '(a'"},
      {R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
          {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Sideways"}, {"type": "ByteLevel"}]}})",
       "Sideways"},
      {R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
          {"type": "Split", "pattern": "a", "behavior": "Isolated"}, {"type": "ByteLevel"}]}})",
       "'pattern'"},
      {R"({"decoder": {"type": "Metaspace"}})", "Metaspace", Code::kUnsupported},
      {R"({"post_processor": {"type": "RobertaProcessing"}})", "'cls' must be a text and an id"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>"}}]}})", "<x>"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}],
          "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}}})",
       "'single' has no Sequence"},
      {R"({"post_processor": {"type": "Sequence", "processors": [
          {"type": "BertProcessing", "cls": ["<s>", 4], "sep": ["<s>", 4]},
          {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}], "special_tokens": {}}]}})",
       "TemplateProcessing behind BertProcessing", Code::kUnsupported},
      {R"({"extra_step": {"type": "X"}})", "field 'extra_step'", Code::kUnsupported},
      {R"({"version": "9.0"})", "'version'", Code::kUnsupported},
      {R"({"model": {"surprise": true}})", "model: nothing here reads the field 'surprise'", Code::kUnsupported},
      {R"({"pre_tokenizer": {"type": "ByteLevel", "new_option": true}})", "pre_tokenizer ByteLevel: nothing here reads",
       Code::kUnsupported},
      {R"({"normalizer": {"type": "Sequence", "normalizers": [], "x": 0}})", "normalizer Sequence: nothing here reads",
       Code::kUnsupported},
      {R"({"normalizer": {"type": "NFC", "form": 2}})", "field 'form'", Code::kUnsupported},
      {R"({"decoder": {"type": "ByteLevel", "cleanup": true}})", "field 'cleanup'", Code::kUnsupported},
      {R"({"post_processor": {"type": "ByteLevel", "cls": 1}})", "post_processor ByteLevel: nothing here reads",
       Code::kUnsupported},
      {R"({"added_tokens": [{"id": 5, "content": "x", "lower": true}]})", "field 'lower'", Code::kUnsupported},
      {R"({"added_tokens": {}})", "added_tokens"},
      {R"({"added_tokens": [{"content": "x"}]})", "'id'"},
      {R"({"added_tokens": [{"id": 4}]})", "'content'"},
      {R"({"added_tokens": [{"id": -4, "content": "x"}]})", "added_tokens[0]"},
      {R"({"added_tokens": [{"id": 4294967300, "content": "x"}]})", "added_tokens[0]"},
      {R"({"added_tokens": [{"id": 1, "content": "x"}]})", "belongs to 'b'"},
      {R"({"added_tokens": [{"id": 5, "content": "x"}, {"id": 6, "content": "x"}]})", "two ids"},
      {R"({"added_tokens": [{"id": 5, "content": "x", "special": "yes"}]})", "special"},
      {R"({"added_tokens": [1]})", "added_tokens[0]"},
  };
  for (const Case& c : cases) {
    std::string text(c.patch);
    if (text.starts_with("{")) {
      json file = base_file();
      const json patch = json::parse(text);
      for (const auto& [key, value] : patch.items()) {
        if (key == "model" && value.is_object()) {
          for (const auto& [inner, part] : value.items()) {
            if (inner == "vocab" && part.is_object()) {
              file[key][inner].update(part);
            } else {
              file[key][inner] = part;
            }
          }
        } else {
          file[key] = value;
        }
      }
      text = file.dump();
    }
    const auto tokenizer = load(text);
    ASSERT_FALSE(tokenizer.has_value()) << c.patch;
    EXPECT_NE(tokenizer.error().message.find(c.word), std::string::npos)
        << c.patch << ": " << tokenizer.error().message;
    EXPECT_EQ(tokenizer.error().code, c.code) << c.patch << ": " << tokenizer.error().message;
  }
}

TEST(TokenizerJson, BadConfigsAreRefusedByName) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"nonsense", "not a JSON object"},
      {"[]", "not a JSON object"},
      {R"({"eos_token": "nope"})", "eos_token: 'nope'"},
      {R"({"eos_token": 3})", "eos_token"},
      {R"({"eos_token": {"text": "x"}})", "eos_token"},
      {R"({"added_tokens_decoder": []})", "added_tokens_decoder"},
      {R"({"added_tokens_decoder": {"x": {"content": "y"}}})", "'x'"},
      {R"({"added_tokens_decoder": {"-1": {"content": "y"}}})", "'-1'"},
      {R"({"added_tokens_decoder": {"99999999999": {"content": "y"}}})", "99999999999"},
      {R"({"added_tokens_decoder": {"7": 5}})", "'7'"},
      {R"({"add_bos_token": 1})", "add_bos_token"},
  };
  for (const auto& [config, word] : cases) {
    const auto tokenizer = load(base_file().dump(), std::string(config));
    ASSERT_FALSE(tokenizer.has_value()) << config;
    EXPECT_NE(tokenizer.error().message.find(word), std::string::npos) << tokenizer.error().message;
  }
}

// Of GPT-2, Llama 3 and Qwen, as they are written: what changes no ids here, and what is null.
TEST(TokenizerJson, FieldsOfPublishedFilesAreKnown) {
  json file = base_file();
  file.update(json::parse(R"({"version": "1.0", "truncation": {"direction": "Right", "max_length": 8},
    "padding": null, "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false,
      "rstrip": false, "normalized": false, "special": true}],
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": {"type": "Sequence", "processors": [
      {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
      {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}}]},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}})"));
  file["model"].update(json::parse(R"({"dropout": null, "unk_token": null, "continuing_subword_prefix": "",
    "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": true, "new": null})"));
  const auto tokenizer = load(file.dump());
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
}

TEST(TokenizerJson, NormalizersThatGrowTheTextAreNamed) {
  json file = base_file();
  const json step = json::parse(R"({"type": "Replace", "pattern": {"String": "a"}, "content": ""})");
  json grows = step;
  grows["content"] = std::string(30'000, 'a');
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {grows, grows}}};
  const auto tokenizer = load(file.dump());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto ids = tokenizer->encode("a", true);
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.error().message.find("normalizer Replace of 'a': makes more than"), std::string::npos)
      << ids.error().message;
}

TEST(TokenizerJson, DeepNestingIsRefused) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& text : {deep, "{\"x\": " + deep + "}", "{\"model\": {\"merges\": " + deep + "}}",
                                  "{\"model\": {\"vocab\": " + deep + "}}"}) {
    EXPECT_FALSE(tokenizer_spec_from_json(text, "").has_value());
  }
  const auto spec = tokenizer_spec_from_json(base_file().dump(), "{\"x\": " + deep + "}");
  ASSERT_FALSE(spec.has_value());
  EXPECT_NE(spec.error().message.find("nested"), std::string::npos);
}

TEST(TokenizerJson, EveryTruncationIsRefusedOrLoads) {
  const std::string text = base_file().dump();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(tokenizer_spec_from_json(text.substr(0, size), "").has_value()) << size;
  }
}

// ---- Patterns.

Status split_with(std::string_view pattern, std::string_view text) {
  PretokenizerStep step;
  step.pattern = pattern;
  BATON_TRY(const Pretokenizer pretokenizer, Pretokenizer::create(std::span(&step, 1)));
  std::vector<std::string_view> pieces;
  return pretokenizer.split(text, &pieces);
}

TEST(Pretokenizer, RunawayPatternsEndInAnError) {
  const std::string as(50'000, 'a');
  const std::pair<std::string, std::string> cases[] = {
      {"(a+)+$", as + "b"},     {"(a|a)*b", as},           {"(a|aa)+$", as + "b"},
      {"(.*)*x", as},           {"a*a*a*a*a*a*a*a*b", as}, {"(?=(a+))a*b", as},
      {"(a?){200}a{200}b", as}, {"((a*)*)*b", as},         {"a+[bc]", std::string(2'000'000, 'a')},
  };
  for (const auto& [pattern, text] : cases) {
    const auto start = std::chrono::steady_clock::now();
    const Status status = split_with(pattern, text);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(seconds, scaled(20, 300)) << pattern;  // about 3 s at most; without limits: for ever
    if (!status) {
      EXPECT_EQ(status.error().code, Code::kInvalidInput) << pattern;
      EXPECT_NE(status.error().message.find(pattern), std::string::npos);
    }
  }
}

TEST(Pretokenizer, PatternsThatMeanSomethingElseAreRefused) {
  for (const std::string_view pattern : {"[a&&b]", "[a[b]]", "\\h", "[\\b]", "\\Bx", "[^\\S]", "[\\W]", "(*COMMIT)",
                                         "(?C1)", "(?R)", "[]a]", "[^]a]", "\\K", "\\C", "\\X", "\\Qx\\E"}) {
    const auto translated = to_pcre2_pattern(pattern);
    ASSERT_FALSE(translated.has_value()) << pattern;
    EXPECT_EQ(translated.error().code, Code::kUnsupported) << pattern;
  }
  for (const std::string_view pattern : {"(", "[a", "a{2,1}", "\\p{Nothing}", "*", "\\"}) {
    EXPECT_FALSE(split_with(pattern, "abc").has_value()) << pattern;
  }
  EXPECT_FALSE(split_with(std::string(20'000, 'a'), "abc").has_value());
  EXPECT_FALSE(split_with(std::string(5'000, '(') + std::string(5'000, ')'), "abc").has_value());
}

TEST(Pretokenizer, EmptyMatchesDoNotLoop) {
  for (const std::string_view pattern : {"", "a*", "x?", "(?=b)", "\\p{L}*", "(?<=a)"}) {
    EXPECT_TRUE(split_with(pattern, "aabbaa \u00e9\u00e9").has_value()) << pattern;
  }
}

}  // namespace
}  // namespace baton

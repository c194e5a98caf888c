// BPE over characters, unigram and charsmaps: ids and texts of SentencePiece and of Hugging Face's tokenizers, long
// runs, spaces at the beginning, streams, and files that are wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "baton/base/random.h"
#include "baton/text/charsmap.h"
#include "baton/text/detokenizer.h"
#include "baton/text/piece_bpe.h"
#include "baton/text/piece_trie.h"
#include "baton/text/protobuf_reader.h"
#include "baton/text/tokenizer.h"
#include "baton/text/utf8.h"

namespace baton {
namespace {

using nlohmann::json;

std::string piece_data(const std::string& name) {
  std::ifstream stream(std::string(BATON_SOURCE_DIR) + "/tests/data/text/" + name, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

const json& fixtures() {
  static const json& data = *new json(json::parse(piece_data("pieces.json")));
  return data;
}

Tokenizer of_model(const std::string& name, const std::string& config = "") {
  const auto spec = tokenizer_spec_from_sentencepiece(piece_data(name + ".model"), config, SentencePieceLayout::kPlain);
  if (!spec) ADD_FAILURE() << spec.error().message;
  return Tokenizer::create(*spec).value();
}

std::string to_base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) {
      out.push_back(at + i > bytes.size() ? '=' : kAlphabet[bits >> (18 - 6 * i) & 63]);
    }
  }
  return out;
}

std::string charsmap_of(const std::string& model) {
  ProtobufReader reader(model);
  while (!reader.at_end()) {
    const auto field = reader.next().value();
    if (field.number != 3) continue;
    ProtobufReader spec(field.bytes);
    while (!spec.at_end()) {
      const auto inner = spec.next().value();
      if (inner.number == 2) return std::string(inner.bytes);
    }
  }
  return "";
}

json file_of(const std::string& name) {
  json file = fixtures()["files"][name]["file"];
  if (name == "xlmr") {
    file["normalizer"]["precompiled_charsmap"] = to_base64(charsmap_of(piece_data("unigram.model")));
  }
  return file;
}

Result<Tokenizer> of_file(const json& file) {
  auto spec = tokenizer_spec_from_json(file.dump(), "");
  if (!spec) return fail(std::move(spec).error());
  return Tokenizer::create(*spec);
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool begins) {
  Detokenizer stream(tokenizer, true, begins);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = stream.push(id).value();
    EXPECT_TRUE(is_utf8(piece));
    text += piece;
  }
  return text + stream.finish();
}

TEST(Pieces, IdsAreSentencePieces) {
  for (const auto& [name, ids] : fixtures()["models"].items()) {
    const Tokenizer tokenizer = of_model(name);
    EXPECT_TRUE(tokenizer.add_bos());
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string text = fixtures()["texts"][i];
      EXPECT_EQ(json(tokenizer.encode(text, false).value()), ids[i]) << name << ": " << text;
    }
  }
}

TEST(Pieces, IdsAndTextsAreThoseOfTokenizers) {
  for (const auto& [name, part] : fixtures()["files"].items()) {
    auto loaded = of_file(file_of(name));
    ASSERT_TRUE(loaded.has_value()) << name << ": " << loaded.error().message;
    const Tokenizer& tokenizer = *loaded;
    for (size_t i = 0; i < part["ids"].size(); ++i) {
      const std::string text = fixtures()["texts"][i];
      const std::vector<int32_t> ids = tokenizer.encode(text, true).value();
      EXPECT_EQ(json(ids), part["ids"][i]) << name << ": " << text;
      EXPECT_EQ(tokenizer.decode(ids, true).value(), part["decoded"][i].get<std::string>()) << name;
      EXPECT_EQ(streamed(tokenizer, ids, true), part["decoded"][i].get<std::string>()) << name;
    }
  }
}

TEST(Pieces, ASpaceIsPutWhereATextBegins) {
  const Tokenizer always = of_model("bpe_bytes"), first = of_model("bpe_bytes", R"({"legacy": false})");
  const auto ids = [](const Tokenizer& tokenizer, std::string_view text, bool begins) {
    return tokenizer.encode(text, true, begins).value();
  };
  const int32_t marked = always.find(std::string(kSpaceMark) + "1");
  EXPECT_EQ(ids(always, "<s>1</s>1", true), (std::vector<int32_t>{1, marked, 2, marked}));
  EXPECT_EQ(ids(first, "<s>1</s>1", true), (std::vector<int32_t>{1, always.find("1"), 2, always.find("1")}));
  EXPECT_EQ(ids(first, "1</s>1", true), (std::vector<int32_t>{marked, 2, always.find("1")}));
  EXPECT_EQ(ids(always, "1", false), (std::vector<int32_t>{always.find("1")}));
  const auto hello = ids(always, "the end", true);
  EXPECT_EQ(always.decode(hello, true).value(), "the end");
  EXPECT_EQ(streamed(always, hello, true), "the end");
  EXPECT_EQ(streamed(always, hello, false), " the end") << "what continues a prompt keeps its space";
  const std::vector<int32_t> later = {always.find("1"), marked};
  EXPECT_EQ(always.decode(later, true).value(), "1 1");
  EXPECT_EQ(streamed(always, later, true), "1 1") << "only where the text begins";
  EXPECT_TRUE(ids(always, "", true).empty());
  const std::vector<int32_t> marks = always.encode("<s></s><unk>", false).value();
  for (const int32_t id : marks) EXPECT_FALSE(always.is_special(id));
}

TEST(Pieces, BytesThatAreNoUtf8ComeBack) {
  const Tokenizer bytes = of_model("bpe_bytes"), none = of_model("unigram");
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    std::string text = "x";
    for (size_t i = random.below(12); i > 0; --i) text.push_back(static_cast<char>(random.below(256)));
    EXPECT_EQ(bytes.decode(bytes.encode(text, false).value(), true).value(), text);
    EXPECT_TRUE(none.encode(text, false).has_value());
  }
}

// An unknown character costs ten more than the worst piece.
TEST(Pieces, UnknownCharactersAreTheLastChoice) {
  TokenizerSpec spec;
  spec.tokens = {"<unk>", "xy", "z", "yz"};
  spec.scores = {0, -1, -20, -0.5};
  spec.unk_id = 0;
  spec.pieces = PieceRules{.model = PieceRules::Model::kUnigram};
  const Tokenizer tokenizer = Tokenizer::create(spec).value();
  EXPECT_EQ(tokenizer.encode("xyz", false).value(), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(tokenizer.encode("xz", false).value(), (std::vector<int32_t>{0, 2}));
  spec.scores = {0, -12, -20, -0.5};  // now the other way is better by half of one
  EXPECT_EQ(Tokenizer::create(spec).value().encode("xyz", false).value(), (std::vector<int32_t>{0, 3}));
}

// The heap and the scan, and words of their own, make what the definition makes.
TEST(Pieces, MergesByDefinition) {
  TokenizerSpec spec;
  const std::vector<std::string> texts = {"a", "b", "\u2581", "ab", "ba", "aa", "aba", "\u2581a", "b\u2581", "aab"};
  spec.tokens.assign(texts.begin(), texts.end());
  spec.scores = {-9, -9, -9, -2, -1, -3, -3, -4, -2.5, -1};
  spec.pieces = PieceRules{PieceRules::Model::kScoredBpe, false, false, false, 0};
  const Tokenizer tokenizer = Tokenizer::create(spec).value();
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> symbols;
    std::string text;
    for (size_t i = 1 + random.below(round % 2 == 0 ? 12 : 60); i > 0; --i) {
      symbols.push_back(texts[random.below(3)]);
      text += symbols.back();
    }
    for (;;) {
      size_t best = symbols.size();
      double best_score = -100;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = std::find(texts.begin(), texts.end(), symbols[i] + symbols[i + 1]);
        if (found == texts.end()) continue;
        const double score = spec.scores[static_cast<size_t>(found - texts.begin())];
        if (score > best_score) best = i, best_score = score;
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    std::vector<int32_t> expected;
    for (const std::string& symbol : symbols) expected.push_back(tokenizer.find(symbol));
    ASSERT_EQ(tokenizer.encode(text, false).value(), expected) << text;
  }
}

TEST(Pieces, LongRunsTakeNoLonger) {
  const std::string mark(kSpaceMark);
  std::string ideographs;
  for (int i = 0; i < 40'000; ++i) ideographs += "\u6771";
  for (const char* name : {"bpe_bytes", "bpe_users", "unigram"}) {
    const Tokenizer tokenizer = of_model(name);
    for (const std::string& run : {std::string(100'000, 'a'), std::string(100'000, ' '), ideographs}) {
      const auto start = std::chrono::steady_clock::now();
      ASSERT_TRUE(tokenizer.encode(run, false).has_value());
      EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 5) << name;
    }
  }
}

TEST(Pieces, BadModelsAreRefusedByField) {
  const std::string model = piece_data("bpe_bytes.model");
  const auto error_of = [](std::string_view bytes, SentencePieceLayout layout = SentencePieceLayout::kPlain) {
    const auto spec = tokenizer_spec_from_sentencepiece(bytes, "", layout);
    return spec ? std::string() : spec.error().message;
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "pieces: there are none"},
      {"{}", "byte 0"},
      {model.substr(0, 31), "byte"},
      {std::string("\x0a\x02\x0a\x00", 4), "pieces[0]: has no text"},
      {std::string("\x0a\x03\x0a\x05x", 5), "field 1 of 5 bytes"},
      {std::string("\x0a\x05\x0a\x01x\x18\x09", 7), "pieces[0].type: is 9"},
      {std::string("\x0a\x05\x0a\x01x\x10\x09", 7), "pieces[0].score: is of another kind"},
      {std::string("\x0a\x03\x0a\x01x\x12\x02\x18\x04", 9), "model_type is 4"},
      {std::string("\x0a\x03\x0a\x01x\x12\x02\x1a\x00", 9), "trainer_spec.model_type: is of another kind"},
      {std::string("\x08\x01", 2), "ModelProto"},
      {std::string("\x0f\x01", 2), "unknown kind"},
  };
  for (const auto& [bytes, word] : cases) {
    EXPECT_NE(error_of(bytes).find(word), std::string::npos) << word << ": " << error_of(bytes);
  }
  EXPECT_NE(error_of(piece_data("bpe_users.model").substr(18), SentencePieceLayout::kXlmRoberta), "");
}

TEST(Pieces, LayoutsPlaceTheirTokens) {
  const std::string model = piece_data("unigram.model");
  const Tokenizer plain = of_model("unigram");
  const Tokenizer xlmr =
      Tokenizer::create(tokenizer_spec_from_sentencepiece(model, "", SentencePieceLayout::kXlmRoberta).value()).value();
  const Tokenizer t5 =
      Tokenizer::create(tokenizer_spec_from_sentencepiece(model, "", SentencePieceLayout::kT5).value()).value();
  EXPECT_EQ(xlmr.find("<pad>"), 1);
  EXPECT_EQ(xlmr.find("<mask>"), plain.vocab_size() + 1);
  EXPECT_EQ(t5.find("<extra_id_99>"), plain.vocab_size());
  EXPECT_EQ(t5.find("<extra_id_0>"), plain.vocab_size() + 99);
  const auto ids = plain.encode("the end", false).value();
  auto shifted = xlmr.encode("the end", false).value();
  for (int32_t& id : shifted) --id;
  EXPECT_EQ(shifted, ids);
  EXPECT_EQ(xlmr.with_ends({}), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(t5.with_ends({}), (std::vector<int32_t>{t5.eos_id()}));
}

TEST(Pieces, ATrieFindsWhatASearchFinds) {
  Random random(8);
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (size_t n = 1 + random.below(5); n > 0; --n)
      text.push_back(static_cast<char>(random.below(i % 2 == 0 ? 3 : 256)));
    texts.push_back(text);
  }
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t i = 0; i < texts.size(); ++i) entries.emplace_back(texts[i], static_cast<int32_t>(i));
  const PieceTrie trie(entries);
  for (const std::string& probe : texts) {
    const std::string text = probe + "\x01\x02";
    std::vector<int32_t> found, expected;
    trie.each_prefix(text, [&](size_t length, int32_t value) {
      EXPECT_EQ(texts[static_cast<size_t>(value)], text.substr(0, length));
      found.push_back(value);
    });
    for (size_t length = 1; length <= text.size(); ++length) {
      const auto at = std::lower_bound(texts.begin(), texts.end(), text.substr(0, length));
      if (at != texts.end() && *at == text.substr(0, length))
        expected.push_back(static_cast<int32_t>(at - texts.begin()));
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(Pieces, EverySplitRuleCompiles) {
  ASSERT_GE(pretokenizer_preset_names().size(), 75u);
  for (const std::string& name : pretokenizer_preset_names()) {
    TokenizerSpec spec;
    spec.tokens = {"a"};
    spec.unk_id = 0;
    spec.pretokenizer = pretokenizer_preset(name).value().steps;
    const auto tokenizer = Tokenizer::create(spec);
    ASSERT_TRUE(tokenizer.has_value()) << name << ": " << tokenizer.error().message;
    EXPECT_TRUE(tokenizer->encode("It's 1234567 \u6771\u4eac\n\n  x_y", false).has_value()) << name;
  }
}

}  // namespace
}  // namespace baton

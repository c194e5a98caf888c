// What `baton convert` writes, read again: tokenizers of every kind give the folder's ids, and a file that would be
// another model is noticed.
#include "baton/tools/convert.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include "baton/api/text_model.h"
#include "baton/base/random.h"
#include "baton/model/container.h"
#include "baton/model/gguf_writer.h"
#include "baton/tools/convert_check.h"
#include "tests/support/golden.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

std::string whole_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

Json json_of(const fs::path& path) { return Json::parse(whole_file(path)); }

class Convert : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("baton-convert-{}", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "source");
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path source() const { return folder_ / "source"; }
  fs::path file() const { return folder_ / "model.gguf"; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(source() / name) << text; }
  // A model of 8192 tokens, without a tokenizer.
  void take_weights() const {
    for (const char* name : {"model.safetensors", "config.json"})
      fs::create_symlink(data_folder() / "golden" / "dictionary-3m" / name, source() / name);
  }

  fs::path folder_;
};

// ---- Tokenizers.

// 220 nasty texts, and as many again and more made of their parts, of control tokens and of bytes.
std::vector<std::string> odd_texts() {
  const Json pieces = json_of(data_folder() / "text" / "pieces.json");
  std::vector<std::string> texts = pieces["texts"];
  const size_t given = texts.size();
  const std::string parts[] = {" ",     "  ",      "\n",  "<s>",   "</s>",         "<unk>",
                               "<sep>", "<|end|>", "ing", "\xff",  "\xe2\x96\x81", "\xe2\x96\x81\xe2\x96\x81",
                               "\t",    "x",       "",    "<0x41>"};
  Random random(17);
  while (texts.size() < given + 480) {
    std::string text;
    for (size_t i = 1 + random.below(4); i > 0; --i) {
      const std::string& from = texts[random.below(given)];
      const size_t begin = random.below(from.size() + 1);
      text += from.substr(begin, random.below(20)) + parts[random.below(std::size(parts))];
    }
    texts.push_back(text);
  }
  return texts;
}

class ConvertTokenizers : public Convert {
 protected:
  void SetUp() override {
    Convert::SetUp();
    take_weights();
    texts_ = odd_texts();
    ASSERT_GE(texts_.size(), 700u);
  }
  // Converts, and compares every text in every way that a text is encoded and decoded; what was lost.
  std::vector<std::string> same_ids(const std::string& what) {
    const auto report = convert_to_gguf(source(), file(), {});
    EXPECT_TRUE(report) << what << ": " << report.error().message;
    if (!report) return {};
    const auto before = load_text_model(source()), after = load_text_model(file());
    EXPECT_TRUE(before && after) << what << (before ? after.error().message : before.error().message);
    if (!before || !after) return {};
    const Tokenizer &a = *before->tokenizer, &b = *after->tokenizer;
    EXPECT_EQ(before->stop_ids, after->stop_ids) << what;
    EXPECT_EQ(before->bos_text, after->bos_text) << what;
    EXPECT_EQ(a.add_bos(), b.add_bos()) << what;
    EXPECT_EQ(a.add_eos(), b.add_eos()) << what;
    size_t differ = 0;
    for (const std::string& text : texts_) {
      for (const bool special : {false, true}) {
        for (const bool begins : {false, true}) {
          const auto mine = a.encode(text, special, begins), theirs = b.encode(text, special, begins);
          differ += mine.has_value() != theirs.has_value() || (mine && *mine != *theirs) ? 1 : 0;
          if (mine && theirs) differ += a.decode(*mine, false).value() != b.decode(*theirs, false).value() ? 1 : 0;
        }
      }
      if (differ == 1) ADD_FAILURE() << what << ": " << testing::PrintToString(text);
    }
    EXPECT_EQ(differ, 0u) << what;
    return report->lost;
  }
  Json file_of(const std::string& name) const {
    return json_of(data_folder() / "text" / "pieces.json")["files"][name]["file"];
  }
  GgufMetadata keys() {
    container_ = std::make_unique<Container>(std::move(*open_container(file())));
    return container_->gguf;
  }

  std::vector<std::string> texts_;
  std::unique_ptr<Container> container_;
};

TEST_F(ConvertTokenizers, SentencePieceFilesGiveTheSameIds) {
  for (const char* name : {"bpe_bytes", "bpe_users", "unigram"}) {
    fs::copy_file(data_folder() / "text" / (std::string(name) + ".model"), source() / "tokenizer.model",
                  fs::copy_options::overwrite_existing);
    for (const char* config : {"{}", R"({"legacy": false, "add_bos_token": false})", R"({"add_eos_token": true})"}) {
      write("tokenizer_config.json", config);
      same_ids(fmt::format("{} {}", name, config));
    }
    EXPECT_EQ(keys().text("tokenizer.ggml.model").value(), std::string_view(name) == "unigram" ? "t5" : "llama")
        << name;
    EXPECT_NE(container_->gguf.find("tokenizer.ggml.scores"), nullptr);
    EXPECT_EQ(container_->gguf.find("tokenizer.ggml.merges"), nullptr);
  }
}

TEST_F(ConvertTokenizers, FilesOfMergesGiveTheSameIds) {
  for (const char* name : {"llama", "first", "gemma"}) {
    write("tokenizer.json", file_of(name).dump());
    const auto lost = same_ids(name);
    EXPECT_EQ(keys().text("tokenizer.ggml.model").value(), "llama") << name;
    EXPECT_EQ(container_->gguf.boolean("tokenizer.ggml.add_space_prefix").value(), std::string_view(name) != "gemma");
    EXPECT_EQ(container_->gguf.find("tokenizer.ggml.merges"), nullptr) << name << ": scores say what merges do";
    EXPECT_EQ(lost.empty(), std::string_view(name) != "first") << name;
  }
}

// Merges that no scores order: they are written too, and what llama.cpp makes of it is said.
TEST_F(ConvertTokenizers, MergesThatScoresCannotOrderAreKept) {
  Json half = file_of("llama");
  Json kept = Json::array();
  for (size_t i = 0; i < half["model"]["merges"].size(); ++i) {
    if (i % 5 != 0) kept.push_back(half["model"]["merges"][i]);
  }
  half["model"]["merges"] = kept;
  // Two ways to make one token, far from each other.
  Json apart = file_of("gemma");
  Json& merges = apart["model"]["merges"];
  const auto made_of = [&](size_t i) { return merges[i][0].get<std::string>() + merges[i][1].get<std::string>(); };
  for (size_t i = 1; i < merges.size(); ++i) {
    if (made_of(i) != made_of(i - 1)) continue;
    merges.push_back(merges[i]);
    merges.erase(i);
    break;
  }
  const Json* both[] = {&half, &apart};  // a list of such objects in braces would be an array of pairs
  for (const Json* tokenizer : both) {
    write("tokenizer.json", tokenizer->dump());
    const auto lost = same_ids(tokenizer == &half ? "some merges" : "apart");
    EXPECT_EQ(keys().boolean("tokenizer.baton.ranked_merges").value(), true);
    EXPECT_NE(container_->gguf.find("tokenizer.ggml.merges"), nullptr);
    ASSERT_FALSE(lost.empty());
    EXPECT_NE(fmt::format("{}", fmt::join(lost, "\n")).find("merges: llama.cpp"), std::string::npos);
  }
}

// As Gemma has it: runs of spaces are tokens that users defined, whose merges come first and mixed.
TEST_F(ConvertTokenizers, MergesOfDefinedTokensMayBeMixed) {
  const std::string one(kSpaceMark);
  const auto run = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += one;
    return text;
  };
  for (const bool apart : {false, true}) {
    Json tokenizer = file_of("gemma");
    Json& vocab = tokenizer["model"]["vocab"];
    Json merges = Json::array();
    for (const auto& [left, right] : {std::pair(3, 1), {2, 2}, {2, 1}, {1, 3}, {1, 2}, {1, 1}})
      merges.push_back({run(static_cast<size_t>(left)), run(static_cast<size_t>(right))});
    for (const size_t length : {2u, 3u, 4u}) {
      const size_t id = vocab.size();
      ASSERT_FALSE(vocab.contains(run(length)));
      vocab[run(length)] = id;
      tokenizer["added_tokens"].push_back(
          {{"id", id}, {"content", run(length)}, {"special", false}, {"normalized", false}});
    }
    for (const Json& merge : tokenizer["model"]["merges"]) merges.push_back(merge);
    if (apart) {  // not so where others stand between them
      merges.push_back(merges[3]);
      merges.erase(3);
    }
    tokenizer["model"]["merges"] = merges;
    write("tokenizer.json", tokenizer.dump());
    for (size_t length = 1; length < 12; ++length) texts_.push_back("a" + std::string(length, ' ') + "b");
    EXPECT_EQ(same_ids(apart ? "apart" : "mixed").empty(), !apart);
    EXPECT_EQ(keys().find("tokenizer.ggml.merges") == nullptr, !apart);
  }
}

// Phi-3's control tokens take the white space behind them; no other file's do, whatever its name.
TEST_F(ConvertTokenizers, FlagsOfAddedTokensAreKept) {
  fs::rename(source(), folder_ / "phi-3-tiny");
  fs::create_directory_symlink(folder_ / "phi-3-tiny", source());
  for (const bool strips : {true, false}) {
    Json tokenizer = file_of("llama");
    const int32_t first = static_cast<int32_t>(tokenizer["model"]["vocab"].size());
    const auto add = [&](int32_t id, const char* text, bool special, bool normalized) {
      tokenizer["added_tokens"].push_back({{"id", id},
                                           {"content", text},
                                           {"special", special},
                                           {"normalized", normalized},
                                           {"rstrip", strips},
                                           {"lstrip", strips && !special},
                                           {"single_word", false}});
    };
    add(first, "<|end|>", true, false);
    add(first + 1, "<sep>", false, false);
    add(first + 2, "<w>", false, true);
    write("tokenizer.json", tokenizer.dump());
    const auto lost = same_ids(strips ? "strips" : "does not strip");
    EXPECT_EQ(lost.empty(), !strips);
  }
}

TEST_F(ConvertTokenizers, WhatGgufCannotSayIsRefusedByItsPart) {
  Json nfkc = file_of("gemma"), precompiled = file_of("xlmr"), split = file_of("llama"), unmarked = file_of("gemma");
  nfkc["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}, nfkc["normalizer"]}}};
  precompiled["normalizer"]["precompiled_charsmap"] = "";
  split["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", true}};
  unmarked["normalizer"] = nullptr;
  const std::pair<Json, const char*> cases[] = {
      {nfkc, "a step of the normalizer"}, {split, "pre_tokenizer"}, {unmarked, "pre_tokenizer"}};
  for (const auto& [tokenizer, part] : cases) {
    write("tokenizer.json", tokenizer.dump());
    const auto report = convert_to_gguf(source(), file(), {});
    ASSERT_FALSE(report) << part;
    EXPECT_EQ(report.error().code, Code::kUnsupported);
    EXPECT_NE(report.error().message.find(part), std::string::npos) << report.error().message;
    EXPECT_FALSE(fs::exists(file()));
  }
}

// ---- The file is the folder's model.

// A GGUF file like another, without some keys, or with a tensor's values changed.
void rewrite(const fs::path& from, const fs::path& to, const std::string& without, const std::string& changed = "") {
  const auto opened = open_container(from);
  ASSERT_TRUE(opened) << opened.error().message;
  GgufWriter writer;
  bool found = without.empty();
  for (size_t i = 0; i < opened->gguf.entries.size(); ++i) {
    const std::string key(opened->gguf.entries[i].first);
    found = found || key.ends_with(without);
    if (without.empty() || !key.ends_with(without)) writer.put_raw(key, opened->gguf.raw[i]);
  }
  ASSERT_TRUE(found) << without;
  for (const TensorView& tensor : opened->tensors) {
    writer.add_tensor(std::string(tensor.name), tensor.dtype, tensor.shape,
                      [&tensor, &changed]() -> Result<std::vector<std::byte>> {
                        std::vector<std::byte> bytes(tensor.data.begin(), tensor.data.end());
                        if (tensor.name == changed) bytes[2] ^= std::byte{0x10};
                        return bytes;
                      });
  }
  const auto status = writer.write(to);
  ASSERT_TRUE(status) << status.error().message;
}

TEST_F(Convert, EveryFamilyIsTheSameModel) {
  for (const std::string& name : family_names()) {
    const auto report = convert_to_gguf(family_folder(name), file(), {});
    EXPECT_TRUE(report) << name << ": " << report.error().message;
    EXPECT_TRUE(fs::exists(file())) << name;
    fs::remove(file());
  }
}

// A key that is forgotten, or a value of a vector: the first difference is named.
TEST_F(Convert, AFileThatLacksSomethingIsNoticed) {
  struct Case {
    const char *family, *without, *named;
  };
  const Case cases[] = {{"gemma2", ".attn_logit_softcapping", "cap is 50"},
                        {"gemma2", ".final_logit_softcapping", "cap is 30"},
                        {"gemma2", ".attention.sliding_window", "window is"},
                        {"gemma2", ".attention.scale", "scale is"},
                        {"granite", ".residual_scale", "its kind is"},
                        {"granite", ".embedding_scale", "its kind is"},
                        {"granite", ".logit_scale", ""},
                        {"granite", ".attention.scale", "scale is"},
                        {"ministral3", ".attention.temperature_scale", ""},
                        {"phi3", ".rope.dimension_count", "rotary is"},
                        {"qwen3", ".rope.freq_base", "rope_theta is"},
                        {"mistral", ".context_length", "context length"}};
  for (const auto& [family, without, named] : cases) {
    SCOPED_TRACE(fmt::format("{} without {}", family, without));
    ConvertOptions options;
    options.matrix_type = DType::kF32;
    const auto report = convert_to_gguf(family_folder(family), file(), options);
    ASSERT_TRUE(report) << report.error().message;
    const fs::path less = folder_ / "less.gguf";
    rewrite(file(), less, without);
    const auto before = load_model(family_folder(family)), after = load_model(less);
    ASSERT_TRUE(before);
    if (!after) continue;  // the reader needs the key
    const Status same = check_converted(**before, **after);
    ASSERT_FALSE(same);
    EXPECT_NE(same.error().message.find(named), std::string::npos) << same.error().message;
  }
}

TEST_F(Convert, AVectorOfOtherValuesIsNoticed) {
  for (const char* tensor : {"blk.1.attn_norm.weight", "output_norm.weight"}) {
    ASSERT_TRUE(convert_to_gguf(family_folder("llama3"), file(), {}));
    const fs::path other = folder_ / "other.gguf";
    rewrite(file(), other, "", tensor);
    const auto before = load_model(family_folder("llama3")), after = load_model(other);
    ASSERT_TRUE(before && after);
    const Status same = check_converted(**before, **after);
    ASSERT_FALSE(same);
    EXPECT_NE(same.error().message.find("norm.weight[0] is"), std::string::npos) << same.error().message;
  }
}

// A folder that changes while it is read: the file is of neither model, and goes.
TEST_F(Convert, AFileOfAnotherModelIsRemoved) {
  const fs::path weights = source() / "model.safetensors";
  fs::copy_file(family_folder("llama3") / "model.safetensors", weights);
  fs::copy_file(family_folder("llama3") / "config.json", source() / "config.json");
  const auto opened = open_container(source());
  ASSERT_TRUE(opened);
  const auto matrix = std::find_if(opened->tensors.begin(), opened->tensors.end(), [](const TensorView& tensor) {
    return tensor.name == "model.layers.1.mlp.down_proj.weight";
  });
  ASSERT_NE(matrix, opened->tensors.end());
  const auto offset = matrix->data.data() - opened->files[0].bytes().data();
  ConvertOptions options;
  options.matrix_type = DType::kF32;
  options.on_tensor = [&](size_t done, size_t total, std::string_view) {
    if (done != total) return;
    std::fstream stream(weights, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(offset);
    const float value = 123;
    stream.write(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto report = convert_to_gguf(source(), file(), options);
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message.find("the file would be another model"), std::string::npos)
      << report.error().message;
  EXPECT_NE(report.error().message.find("model.layers.1.mlp.down_proj.weight[0] is"), std::string::npos)
      << report.error().message;
  EXPECT_FALSE(fs::exists(file()));
}

}  // namespace
}  // namespace baton::test

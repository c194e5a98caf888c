// Whole files: types, values, metadata, refusals. The bytes of the formats are tested in baton/quant, the choice of
// types in baton/tools/recipe_test.cc.
#include "baton/tools/quantize.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include "baton/base/bytes.h"
#include "baton/base/random.h"
#include "baton/model/container.h"
#include "baton/model/gguf_writer.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

class QuantizeTest : public testing::Test {
 protected:
  QuantizeTest() {
    folder_ = fs::path(testing::TempDir()) / fmt::format("baton_quantize_{}_{}", ::getpid(),
                                                         testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
    source_ = folder_ / "source.gguf";
  }
  ~QuantizeTest() override {
    std::error_code error;
    fs::remove_all(folder_, error);
  }

  // Names in no particular order, metadata of every kind.
  void write_source(DType dtype, float poison = 0.5f) {
    GgufWriter writer;
    writer.put_string("general.architecture", "llama");
    writer.put_u32("general.file_type", 1);
    writer.put_u32("llama.block_count", 2);
    writer.put_u32("llama.attention.head_count", 4);
    writer.put_i32("custom.signed", -7);
    writer.put_u64("custom.wide", uint64_t{1} << 40);
    writer.put_strings("custom.texts", {"a", "", "b c"});
    writer.put_bool("custom.truth", true);
    Random random(1);
    const auto add = [&](const char* name, DType type, std::vector<uint64_t> shape) {
      uint64_t elements = 1;
      for (const uint64_t length : shape) elements *= length;
      std::vector<float> values(elements);
      for (float& value : values) value = random.uniform(-1, 1);
      if (std::string_view(name) == "blk.1.ffn_up.weight") values[700] = poison;
      const Format& format = format_of(type);
      std::vector<std::byte> bytes(elements / format.block_elements * format.block_bytes);
      format.encode(values.data(), bytes.data(), elements);
      values_[name] = values;
      writer.add_tensor(name, type, std::move(shape), [bytes]() -> Result<std::vector<std::byte>> { return bytes; });
    };
    add("blk.1.ffn_up.weight", dtype, {6, 512});
    add("blk.1.ffn_norm.weight", DType::kF32, {512});
    add("blk.0.ffn_up.weight", dtype, {3, 512});
    add("blk.0.attn_v.weight", dtype, {2, 96});
    add("token_embd.weight", dtype, {40, 256});
    ASSERT_TRUE(writer.write(source_));
  }
  Result<QuantizeReport> quantize(QuantizeOptions options) {
    return quantize_to_gguf(source_, folder_ / "out.gguf", options);
  }
  std::string content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t files() {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_, source_;
  std::map<std::string, std::vector<float>> values_;
};

TEST_F(QuantizeTest, WritesTheRecipesTypes) {
  write_source(DType::kF32);
  std::vector<std::string> seen;
  QuantizeOptions options{.type = "Q4_K_M", .threads = 2};
  options.on_tensor = [&](size_t done, size_t total, std::string_view name) {
    EXPECT_EQ(total, 5u);
    seen.emplace_back(name);
    EXPECT_EQ(seen.size(), done);
  };
  const auto report = quantize(options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(seen, (std::vector<std::string>{"token_embd.weight", "blk.0.attn_v.weight", "blk.0.ffn_up.weight",
                                            "blk.1.ffn_norm.weight", "blk.1.ffn_up.weight"}));
  EXPECT_EQ(report->tensors, 5u);
  EXPECT_EQ(report->bytes, fs::file_size(folder_ / "out.gguf"));
  EXPECT_EQ(report->bytes_in, (6 * 512 + 512 + 3 * 512 + 2 * 96 + 40 * 256) * 4u);
  EXPECT_EQ(report->types, (std::map<std::string, uint64_t>{{"F32", 1}, {"Q4_K", 2}, {"Q6_K", 1}, {"Q8_0", 1}}));
  EXPECT_EQ(report->recipe_hash.size(), 16u);
  ASSERT_EQ(report->notes.size(), 1u);
  EXPECT_EQ(report->notes[0],
            "1 tensor with rows of 96, no multiple of 256: Q8_0 instead of Q6_K (blk.0.attn_v.weight)");

  const auto out = open_container(folder_ / "out.gguf");
  ASSERT_TRUE(out) << out.error().message;
  for (const TensorView& tensor : out->tensors) {
    const auto& wanted = values_.at(std::string(tensor.name));
    const Format& format = format_of(tensor.dtype);
    ASSERT_EQ(tensor.elements(), wanted.size());
    std::vector<std::byte> encoded(tensor.data.size());
    format.encode(wanted.data(), encoded.data(), wanted.size());
    EXPECT_TRUE(std::equal(encoded.begin(), encoded.end(), tensor.data.begin())) << tensor.name;
  }
}

TEST_F(QuantizeTest, KeepsMetadataAsItIs) {
  write_source(DType::kBF16);
  ASSERT_TRUE(quantize({.type = "Q8_0"}));
  const auto source = open_container(source_);
  const auto out = open_container(folder_ / "out.gguf");
  ASSERT_TRUE(source && out);
  for (size_t i = 0; i < source->gguf.entries.size(); ++i) {
    const std::string_view key = source->gguf.entries[i].first;
    if (key == "general.file_type") continue;
    const auto at = out->gguf.index.find(key);
    ASSERT_NE(at, out->gguf.index.end()) << key;
    EXPECT_EQ(as_text(out->gguf.raw[at->second]), as_text(source->gguf.raw[i])) << key;  // width too
  }
  EXPECT_EQ(*out->gguf.unsigned_integer("general.file_type").value(), 7u);
  EXPECT_EQ(*out->gguf.unsigned_integer("general.quantization_version").value(), 2u);
}

TEST_F(QuantizeTest, ThreadsDoNotChangeTheFile) {
  write_source(DType::kF16);
  ASSERT_TRUE(quantize({.type = "Q5_K_M", .threads = 1}));
  const std::string one = content(folder_ / "out.gguf");
  ASSERT_TRUE(quantize({.type = "Q5_K_M", .threads = 3}));
  EXPECT_EQ(content(folder_ / "out.gguf"), one);
  ASSERT_TRUE(quantize({.type = "q5_k", .threads = 3}));
  EXPECT_EQ(content(folder_ / "out.gguf"), one);
}

TEST_F(QuantizeTest, RulesOfTheUser) {
  write_source(DType::kF32);
  const auto plain = quantize({.type = "Q8_0"});
  const auto report = quantize(
      {.type = "Q8_0", .rules = {{"ffn_up", DType::kQ4_0}, {R"(blk\.1\.)", DType::kQ5_0}, {"nothing", DType::kF16}}});
  ASSERT_TRUE(plain && report);
  EXPECT_EQ(report->types, (std::map<std::string, uint64_t>{{"F32", 1}, {"Q4_0", 2}, {"Q8_0", 2}}));  // the first wins
  EXPECT_EQ(report->notes, std::vector<std::string>{"no tensor matches 'nothing'"});
  EXPECT_NE(report->recipe_hash, plain->recipe_hash);
  const auto pure = quantize({.type = "Q4_0", .pure = true});
  ASSERT_TRUE(pure);
  EXPECT_EQ(pure->types, (std::map<std::string, uint64_t>{{"F32", 1}, {"Q4_0", 4}}));
}

TEST_F(QuantizeTest, RefusesWithAReason) {
  write_source(DType::kQ8_0);
  const auto message = [&](QuantizeOptions options) {
    const auto report = quantize(std::move(options));
    return report ? std::string("written") : report.error().message;
  };
  const auto says = [](const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(says(message({.type = "Q4_K_M"}), "or add --allow-requantize"));
  EXPECT_TRUE(says(message({.type = "Q9"}), "'Q9'; there are: "));
  EXPECT_TRUE(says(message({.type = "Q9"}), "Q4_K_M"));
  EXPECT_TRUE(says(message({.type = "Q8_0", .rules = {{"a(", DType::kQ4_0}}}), "missing closing parenthesis"));
  EXPECT_EQ(quantize_to_gguf(folder_ / "no.gguf", folder_ / "out.gguf", {.type = "Q8_0"}).error().code,
            Code::kNotFound);
  EXPECT_TRUE(says(quantize_to_gguf(source_, source_, {.type = "Q8_0"}).error().message, "another name"));
  EXPECT_EQ(files(), 1u);                           // nothing was left behind
  EXPECT_EQ(message({.type = "Q8_0"}), "written");  // same types: a copy
  EXPECT_EQ(message({.type = "Q4_K_M", .allow_requantize = true}), "written");
}

TEST_F(QuantizeTest, RefusesWhatTheTypeCannotHold) {
  for (const float poison : {std::nanf(""), INFINITY, -INFINITY, 7e4f}) {
    write_source(DType::kF32, poison);
    const auto report = quantize({.type = "Q4_K_M"});
    ASSERT_FALSE(report);
    EXPECT_NE(report.error().message.find("blk.1.ffn_up.weight"), std::string::npos) << report.error().message;
    EXPECT_EQ(files(), 1u);
  }
  EXPECT_TRUE(quantize({.type = "BF16"}));
}

// A file that may grow to 4 KiB stands for a full disk.
TEST_F(QuantizeTest, AFullDiskKeepsNothing) {
  write_source(DType::kF32);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto report = quantize({.type = "Q8_0"});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message.find("cannot write"), std::string::npos) << report.error().message;
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace baton

// What the readers and the GGUF writer make of good files: contents, orders, splits, shards, odd names, speed.
// The bad files are in tests/bad_input_*_test.cc.
#include "baton/model/container.h"
#include "tests/support/smoke.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "baton/base/bytes.h"
#include "baton/base/random.h"
#include "baton/model/gguf_writer.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BATON_SANITIZED
#endif
#endif
#if defined(BATON_SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr bool kPlainBuild = false;
#else
constexpr bool kPlainBuild = true;
#endif

class ContainerTest : public testing::Test {
 protected:
  ContainerTest() {
    folder_ = fs::path(testing::TempDir()) / fmt::format("baton_container_{}_{}", ::getpid(),
                                                         testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  ~ContainerTest() override {
    std::error_code error;
    fs::remove_all(folder_, error);
  }
  fs::path write(const std::string& name, std::string_view bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  fs::path folder_;
};

std::string safetensors(const std::string& header, std::string_view data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data);
}

GgufWriter::Produce bytes_of(size_t count, uint8_t first) {
  return [=]() -> Result<std::vector<std::byte>> {
    std::vector<std::byte> bytes(count);
    for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + i);
    return bytes;
  };
}

TEST_F(ContainerTest, GgufRoundTrip) {
  GgufWriter writer;
  writer.put_string("general.architecture", "llama");
  writer.put_u32("a.u32", 7);
  writer.put_i32("a.i32", -7);
  writer.put_u64("a.u64", uint64_t{1} << 60);
  writer.put_f32("a.f32", 1e-5f);
  writer.put_bool("a.bool", true);
  writer.put_strings("a.strings", {"x", "", "\xc4\xa0y"});
  writer.put_i32s("a.i32s", {1, -2, 3});
  writer.put_f32s("a.f32s", {});
  writer.add_tensor("a", DType::kF32, {3}, bytes_of(12, 1));
  writer.add_tensor("b.weight", DType::kQ8_0, {2, 64}, bytes_of(136, 50));
  writer.add_tensor("c", DType::kF16, {2, 3, 4}, bytes_of(48, 9));
  const fs::path path = folder_ / "m.gguf";
  std::string seen;
  ASSERT_TRUE(writer.write(path, [&](size_t done, size_t total, std::string_view name) {
    seen += fmt::format("{}/{} {};", done, total, name);
  }));
  EXPECT_EQ(seen, "1/3 a;2/3 b.weight;3/3 c;");

  const auto opened = open_container(path);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->kind, ContainerKind::kGguf);
  const GgufMetadata& gguf = opened->gguf;
  EXPECT_EQ(gguf.entries.size(), 9u);
  EXPECT_EQ(gguf.entries[1].first, "a.u32");
  EXPECT_EQ(*gguf.text("general.architecture").value(), "llama");
  EXPECT_EQ(*gguf.unsigned_integer("a.u32").value(), 7u);
  EXPECT_EQ(*gguf.unsigned_integer("a.u64").value(), uint64_t{1} << 60);
  EXPECT_EQ(*gguf.real("a.f32").value(), static_cast<double>(1e-5f));
  EXPECT_EQ(*gguf.real("a.i32").value(), -7.0);
  EXPECT_TRUE(*gguf.boolean("a.bool").value());
  EXPECT_EQ(std::get<std::vector<std::string_view>>(gguf.array("a.strings").value()->items),
            (std::vector<std::string_view>{"x", "", "\xc4\xa0y"}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(gguf.array("a.i32s").value()->items), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_TRUE(std::get<std::vector<double>>(gguf.array("a.f32s").value()->items).empty());
  // Absent is not an error; another kind or a negative number is.
  EXPECT_EQ(gguf.unsigned_integer("none").value(), std::nullopt);
  EXPECT_EQ(gguf.array("none").value(), nullptr);
  EXPECT_NE(gguf.unsigned_integer("a.i32").error().message.find("'a.i32' is -7"), std::string::npos);
  EXPECT_NE(gguf.unsigned_integer("a.f32").error().message.find("'a.f32' is a real number"), std::string::npos);
  EXPECT_FALSE(gguf.text("a.u32"));
  EXPECT_FALSE(gguf.boolean("a.u32"));
  EXPECT_FALSE(gguf.real("a.strings"));
  EXPECT_FALSE(gguf.array("a.u32"));

  ASSERT_EQ(opened->tensors.size(), 3u);
  const TensorView* tensor = opened->find("b.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::kQ8_0);
  EXPECT_EQ(tensor->shape, (std::vector<uint64_t>{2, 64}));
  EXPECT_EQ(tensor->elements(), 128u);
  ASSERT_EQ(tensor->data.size(), 136u);
  EXPECT_EQ(static_cast<uint8_t>(tensor->data[135]), static_cast<uint8_t>(50 + 135));
  EXPECT_EQ((opened->find("c")->data.data() - tensor->data.data()) % 32, 0);
  EXPECT_EQ(opened->find("d"), nullptr);
}

TEST_F(ContainerTest, TheWriterRefusesWhatReadersWould) {
  const auto message = [&](auto&& fill) {
    GgufWriter writer;
    fill(writer);
    const auto status = writer.write(folder_ / "x.gguf");
    EXPECT_FALSE(fs::exists(folder_ / "x.gguf"));
    return status ? std::string() : status.error().message;
  };
  const auto none = bytes_of(4, 0);
  EXPECT_NE(message([&](GgufWriter& w) { w.put_u32("k", 1), w.put_u32("k", 1); }).find("twice"), std::string::npos);
  EXPECT_NE(message([&](GgufWriter& w) { w.put_u32("", 1); }).find("empty"), std::string::npos);
  EXPECT_NE(
      message([&](GgufWriter& w) { w.add_tensor(std::string(64, 'n'), DType::kF32, {1}, none); }).find("1 to 63 bytes"),
      std::string::npos);
  EXPECT_NE(message([&](GgufWriter& w) { w.add_tensor("t", DType::kF32, {}, none); }).find("1 to 4 dim"),
            std::string::npos);
  EXPECT_NE(message([&](GgufWriter& w) {
              w.add_tensor("t", DType::kF32, {0, 4}, none);
            }).find("zero"),
            std::string::npos);
  EXPECT_NE(message([&](GgufWriter& w) {
              w.add_tensor("t", DType::kQ4_K, {2, 128}, none);
            }).find("block of 256"),
            std::string::npos);
  EXPECT_NE(message([&](GgufWriter& w) {
              w.add_tensor("t", DType::kMLX4_G64, {2, 64}, none);
            }).find("'t' is MLX4_G64, which GGUF files cannot hold; write F32"),
            std::string::npos);
  EXPECT_NE(message([&](GgufWriter& w) {
              w.add_tensor("t", DType::kF32, {1}, none), w.add_tensor("t", DType::kF32, {1}, none);
            }).find("twice"),
            std::string::npos);
  EXPECT_NE(message([&](GgufWriter& w) { w.add_tensor("t", DType::kF32, {2}, none); }).find("declared as 8"),
            std::string::npos);
  EXPECT_NE(message([&](GgufWriter& w) {
              w.add_tensor("t", DType::kF32, {1}, [] { return fail(Code::kCorrupt, "gone"); });
            }).find("tensor 't': gone"),
            std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(ContainerTest, GgufSplitsOpenFromAnyPart) {
  for (int part = 0; part < 3; ++part) {
    GgufWriter writer;
    if (part == 0) writer.put_string("general.architecture", "llama");
    writer.put_u32("split.no", static_cast<uint32_t>(part));
    writer.put_u32("split.count", 3);
    writer.put_i32("split.tensors.count", 3);
    writer.add_tensor(fmt::format("t{}", part), DType::kF32, {2}, bytes_of(8, static_cast<uint8_t>(10 * part)));
    ASSERT_TRUE(writer.write(folder_ / fmt::format("m-{:05}-of-00003.gguf", part + 1)));
  }
  for (const char* name : {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto opened = open_container(folder_ / name);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(opened->files.size(), 3u);
    EXPECT_EQ(opened->path.filename(), "m-00001-of-00003.gguf");
    EXPECT_EQ(*opened->gguf.text("general.architecture").value(), "llama");
    ASSERT_NE(opened->find("t2"), nullptr);
    EXPECT_EQ(static_cast<uint8_t>(opened->find("t2")->data[0]), 20);
  }
}

// A known type of ggml without a decoder is listed; its neighbours stay readable.
TEST_F(ContainerTest, GgufListsUnreadableTypes) {
  GgufWriter writer;
  writer.add_tensor("ids", DType::kF32, {4}, bytes_of(16, 0));
  writer.add_tensor("w", DType::kF32, {4}, bytes_of(16, 0));
  const fs::path path = folder_ / "m.gguf";
  ASSERT_TRUE(writer.write(path));
  std::string bytes = *read_file(path, 1 << 20);
  const size_t at = bytes.find("ids") + 3 + 4 + 8;
  store_as<uint32_t>(bytes.data() + at, 26);
  Container container;
  ASSERT_TRUE(parse_gguf(as_bytes(bytes), "m", container));
  EXPECT_EQ(container.unreadable, std::vector<std::string>{"ids: type I32"});
  EXPECT_EQ(container.find("ids"), nullptr);
  EXPECT_NE(container.find("w"), nullptr);
}

TEST_F(ContainerTest, FolderWithOddShardNames) {
  write("config.json", R"({"model_type": "qwen3_5"})");
  write("generation_config.json", R"({"eos_token_id": [1, 2]})");
  // An odd header length: the data is not aligned.
  write("model.safetensors-00001-of-00002.safetensors",
        safetensors(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[4,8]},)"
                    R"("a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}} )",
                    "12345678"));
  write("model.safetensors-00002-of-00002.safetensors",
        safetensors(R"({"c":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                    R"("d":{"dtype":"F32","shape":[],"data_offsets":[8,12]}})",
                    "123456789012"));
  write("model.safetensors.index.json", R"({"metadata": {"total_size": 20, "note": {"x": [1, [2]]}}, "weight_map": {
    "a": "model.safetensors-00001-of-00002.safetensors", "b": "model.safetensors-00001-of-00002.safetensors",
    "c": "model.safetensors-00002-of-00002.safetensors", "d": "model.safetensors-00002-of-00002.safetensors"}})");
  auto opened = open_container(folder_);
  ASSERT_TRUE(opened) << opened.error().message;
  // Views must outlive a move of the container.
  const Container container = std::move(*opened);
  EXPECT_EQ(container.kind, ContainerKind::kSafetensors);
  EXPECT_EQ(container.config["model_type"], "qwen3_5");
  EXPECT_EQ(container.generation_config["eos_token_id"].size(), 2u);
  ASSERT_EQ(container.tensors.size(), 3u);
  EXPECT_EQ(container.tensors[0].name, "a");
  EXPECT_EQ(container.tensors[0].dtype, DType::kF16);
  EXPECT_EQ(as_text(container.find("b")->data), "5678");
  EXPECT_EQ(container.find("b")->dtype, DType::kBF16);
  EXPECT_TRUE(container.find("d")->shape.empty());
  EXPECT_EQ(container.find("d")->elements(), 1u);
  EXPECT_EQ(container.unreadable, std::vector<std::string>{"c: type I64"});
}

TEST_F(ContainerTest, FolderWithOneFileOfAnyName) {
  const auto file = write("model.safetensors-00001-of-00001.safetensors",
                          safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"));
  write("config.json", "{}");
  for (const fs::path& path : {folder_, file}) {
    const auto opened = open_container(path);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(opened->tensors.size(), 1u);
    EXPECT_TRUE(opened->generation_config.is_null());
  }
}

// As MLX writes it when there are no notes. A tensor may not be null.
TEST_F(ContainerTest, SafetensorsWithNullMetadata) {
  const std::string tensor = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  for (const std::string& header :
       {R"({"__metadata__":null,)" + tensor + "}", "{" + tensor + R"(,"__metadata__":null})"}) {
    Container container;
    const std::string bytes = safetensors(header, "1234");
    const auto status = parse_safetensors(as_bytes(bytes), "m", container);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_NE(container.find("a"), nullptr);
  }
  Container container;
  const std::string bytes = safetensors("{" + tensor + R"(,"b":null})", "1234");
  EXPECT_NE(parse_safetensors(as_bytes(bytes), "m", container).error().message.find("null is out of place"),
            std::string::npos);
}

// A download cache keeps its files elsewhere and links to them.
TEST_F(ContainerTest, FolderWithLinkedShard) {
  fs::create_directories(folder_ / "blobs");
  fs::create_directories(folder_ / "snapshot");
  write("blobs/0123", safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"));
  write("snapshot/config.json", "{}");
  fs::create_symlink("../blobs/0123", folder_ / "snapshot" / "model.safetensors");
  const auto opened = open_container(folder_ / "snapshot");
  ASSERT_TRUE(opened) << opened.error().message;
}

// The largest vocabulary in use: tokens, merges and types are 0.75 M items. Views into the mapping, so it is quick.
TEST_F(ContainerTest, LargeVocabularyLoadsQuickly) {
  std::vector<std::string> words;
  Random random(1);
  for (int i = 0; i < 248320; ++i) words.push_back(fmt::format("w{:x}", random.next() >> 40));
  const std::vector<std::string_view> views(words.begin(), words.end());
  GgufWriter writer;
  writer.put_strings("tokenizer.ggml.tokens", views);
  writer.put_strings("tokenizer.ggml.merges", views);
  writer.put_i32s("tokenizer.ggml.token_type", std::vector<int32_t>(views.size(), 1));
  ASSERT_TRUE(writer.write(folder_ / "m.gguf"));
  double best_ms = 1e9;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    const auto opened = open_container(folder_ / "m.gguf");
    ASSERT_TRUE(opened);
    ASSERT_EQ(
        std::get<std::vector<std::string_view>>(opened->gguf.array("tokenizer.ggml.tokens").value()->items).size(),
        words.size());
    best_ms =
        std::min(best_ms, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  RecordProperty("best_ms", fmt::format("{:.1f}", best_ms));
  // Seven times less on the machine this was written on; sanitizers and an emulated CPU (BATON_SMOKE) take longer.
  if (kPlainBuild && std::getenv("BATON_SMOKE") == nullptr) {
    EXPECT_LT(best_ms, scaled(50, 1000));
  }
}

}  // namespace
}  // namespace baton

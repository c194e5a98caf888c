// Importance matrices: what is measured on a tiny hybrid, files in both formats, and their use in quantize.
#include "baton/tools/imatrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <map>
#include <numeric>

#include "baton/base/bytes.h"
#include "baton/base/random.h"
#include "baton/model/container.h"
#include "baton/model/gguf_writer.h"
#include "baton/tools/convert.h"
#include "baton/tools/quantize.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

class ImatrixTest : public testing::Test {
 protected:
  ImatrixTest() {
    folder_ = fs::path(testing::TempDir()) / fmt::format("baton_imatrix_{}_{}", ::getpid(),
                                                         testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  ~ImatrixTest() override {
    std::error_code error;
    fs::remove_all(folder_, error);
  }
  fs::path write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  std::shared_ptr<const Model> tiny() {
    const fs::path source = fs::path(BATON_SOURCE_DIR) / "tests/data/golden/tiny-qwen3.5";
    ConvertOptions options;
    options.matrix_type = DType::kF32;
    EXPECT_TRUE(convert_to_gguf(source, folder_ / "tiny.gguf", options));
    auto model = load_model(folder_ / "tiny.gguf");
    EXPECT_TRUE(model) << model.error().message;
    return *model;
  }
  fs::path folder_;
};

std::vector<float> vector_named(const Model& model, const std::string& source) {
  for (const Weight& weight : model.weights) {
    if (weight.source != source) continue;
    std::vector<float> values(static_cast<size_t>(weight.columns));
    format_of(weight.dtype).decode(weight.data, values.data(), values.size());
    return values;
  }
  ADD_FAILURE() << "no tensor " << source;
  return {};
}

TEST_F(ImatrixTest, MeasuresTheInputsOfEachMatrix) {
  const auto model = tiny();
  Random random(3);
  std::vector<int32_t> ids(70);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(model->spec.vocab)));
  ImportanceOptions options;
  options.window = 32;
  options.threads = 2;
  uint64_t chunks = 0;
  options.on_chunk = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, 2u);
    chunks = done;
  };
  const auto matrix = measure_importance(model, ids, options);
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ(chunks, 2u);
  EXPECT_EQ(matrix->chunks, 2u);
  EXPECT_EQ(matrix->entries.count("output.weight"), 0u);
  EXPECT_EQ(matrix->entries.count("token_embd.weight"), 0u);

  // Matrices that read the same register have the same entry.
  const auto means = [&](const std::string& name) { return matrix->means(name); };
  EXPECT_EQ(means("blk.0.ffn_gate.weight"), means("blk.0.ffn_up.weight"));
  EXPECT_EQ(means("blk.0.attn_qkv.weight"), means("blk.0.attn_gate.weight"));
  EXPECT_EQ(means("blk.0.attn_qkv.weight"), means("blk.0.ssm_beta.weight"));
  EXPECT_NE(means("blk.0.ffn_gate.weight"), means("blk.0.attn_qkv.weight"));
  for (const auto& [name, entry] : matrix->entries) EXPECT_EQ(entry.counts, std::vector<double>{64}) << name;

  // The inputs come from an RMS norm: without its weights their mean square is 1.
  const auto norm = vector_named(*model, "blk.1.post_attention_norm.weight");
  const auto inputs = means("blk.1.ffn_up.weight");
  ASSERT_EQ(inputs.size(), norm.size());
  double sum = 0;
  for (size_t i = 0; i < norm.size(); ++i) sum += inputs[i] / (static_cast<double>(norm[i]) * norm[i]);
  EXPECT_NEAR(sum / static_cast<double>(norm.size()), 1.0, 1e-3);

  // One thread, one chunk at a time: the same numbers.
  options.threads = 1;
  options.chunks_max = 1;
  options.on_chunk = {};
  const auto first = measure_importance(model, ids, options);
  const auto second = measure_importance(model, std::span(ids).subspan(32), options);
  ASSERT_TRUE(first && second);
  for (const auto& [name, entry] : matrix->entries) {
    const auto& a = first->entries.at(name).sums;
    const auto& b = second->entries.at(name).sums;
    for (size_t i = 0; i < entry.sums.size(); ++i) {
      EXPECT_NEAR(entry.sums[i], a[i] + b[i], 1e-9 * (1 + entry.sums[i])) << name;
    }
  }
}

// More rows than a pass holds, so that the second goes on from the first one's state; the last layer's matrices count
// too, though nobody asks for logits.
TEST_F(ImatrixTest, TheHostSeesWhatRefSees) {
  const auto model = tiny();
  Random random(5);
  std::vector<int32_t> ids(300);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(model->spec.vocab)));
  ImportanceOptions options;
  options.window = 300;
  options.unit = "ref";
  const auto expected = measure_importance(model, ids, options);
  options.unit = "cpu";
  options.threads = 1;
  const auto one = measure_importance(model, ids, options);
  options.threads = 3;
  const auto three = measure_importance(model, ids, options);
  ASSERT_TRUE(expected && one && three);
  ASSERT_EQ(expected->entries.size(), one->entries.size());
  for (const auto& [name, entry] : expected->entries) {
    ASSERT_EQ(one->entries.count(name), 1u) << name;
    const auto& sums = one->entries.at(name).sums;
    EXPECT_EQ(sums, three->entries.at(name).sums) << name << ": threads";
    EXPECT_EQ(one->entries.at(name).counts, entry.counts);
    ASSERT_EQ(sums.size(), entry.sums.size());
    const double mean = std::accumulate(entry.sums.begin(), entry.sums.end(), 0.0) / static_cast<double>(sums.size());
    EXPECT_GT(mean, 0) << name;
    for (size_t i = 0; i < sums.size(); ++i)
      EXPECT_NEAR(sums[i], entry.sums[i], 2e-3 * (entry.sums[i] + mean)) << name << " " << i;
  }
}

// Rows of 1,024 values lie further apart than that, as those of any multiple of 4 KiB do.
TEST_F(ImatrixTest, TheHostSeesWhatRefSeesInPaddedRows) {
  constexpr uint64_t kHidden = 1024, kVocab = 32, kInner = 32, kHead = 16;
  GgufWriter writer;
  writer.put_string("general.architecture", "llama");
  for (const auto& [key, value] : std::map<std::string, uint32_t>{{"block_count", 1},
                                                                  {"embedding_length", kHidden},
                                                                  {"feed_forward_length", kInner},
                                                                  {"context_length", 64},
                                                                  {"attention.head_count", 1},
                                                                  {"attention.head_count_kv", 1},
                                                                  {"attention.key_length", kHead},
                                                                  {"attention.value_length", kHead},
                                                                  {"rope.dimension_count", kHead},
                                                                  {"vocab_size", kVocab}}) {
    writer.put_u32("llama." + key, value);
  }
  writer.put_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  Random random(6);
  std::map<std::string, std::vector<float>> values;
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape) {
    uint64_t count = 1;
    for (const uint64_t n : shape) count *= n;
    for (uint64_t i = 0; i < count; ++i) values[name].push_back(random.normal() * 0.1f);
    writer.add_tensor(name, DType::kF32, std::move(shape), [&values, name]() -> Result<std::vector<std::byte>> {
      const auto bytes = std::as_bytes(std::span(values[name]));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    });
  };
  add("token_embd.weight", {kVocab, kHidden});
  add("output_norm.weight", {kHidden});
  add("blk.0.attn_norm.weight", {kHidden});
  add("blk.0.ffn_norm.weight", {kHidden});
  for (const char* name : {"attn_q", "attn_k", "attn_v"}) add(fmt::format("blk.0.{}.weight", name), {kHead, kHidden});
  add("blk.0.attn_output.weight", {kHidden, kHead});
  for (const char* name : {"ffn_gate", "ffn_up"}) add(fmt::format("blk.0.{}.weight", name), {kInner, kHidden});
  add("blk.0.ffn_down.weight", {kHidden, kInner});
  ASSERT_TRUE(writer.write(folder_ / "wide.gguf"));
  const auto model = load_model(folder_ / "wide.gguf");
  ASSERT_TRUE(model) << model.error().message;

  std::vector<int32_t> ids(20);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(kVocab));
  ImportanceOptions options;
  options.window = 20;
  options.unit = "ref";
  const auto expected = measure_importance(*model, ids, options);
  options.unit = "cpu";
  const auto seen = measure_importance(*model, ids, options);
  ASSERT_TRUE(expected && seen);
  ASSERT_EQ(expected->entries.size(), seen->entries.size());
  for (const auto& [name, entry] : expected->entries) {
    const auto& sums = seen->entries.at(name).sums;
    for (size_t i = 0; i < entry.sums.size(); ++i)
      EXPECT_NEAR(sums[i], entry.sums[i], 1e-2 * (entry.sums[i] + 0.1)) << name << " " << i;
  }
}

TEST_F(ImatrixTest, RefusesShortTextsAndOtherContainers) {
  const auto model = tiny();
  const std::vector<int32_t> ids(10, 1);
  ImportanceOptions options;
  EXPECT_EQ(measure_importance(model, ids, options).error().code, Code::kInvalidInput);
  options.window = 4;
  options.stopped = [] { return true; };
  EXPECT_EQ(measure_importance(model, ids, options).error().code, Code::kCancelled);
  options.stopped = {};
  options.unit = "ane";
  EXPECT_EQ(measure_importance(model, ids, options).error().code, Code::kUnsupported);
  const auto folder = load_model(fs::path(BATON_SOURCE_DIR) / "tests/data/golden/tiny-qwen3.5");
  ASSERT_TRUE(folder);
  EXPECT_EQ(measure_importance(*folder, ids, options).error().code, Code::kUnsupported);
}

TEST_F(ImatrixTest, FilesKeepEverything) {
  ImportanceMatrix matrix;
  matrix.datasets = {"a text", "another"};
  matrix.chunks = 7;
  matrix.chunk_tokens = 512;
  matrix.entries["blk.0.ffn_up.weight"] = {{1, 2, 3.5, 0}, {4}};
  matrix.entries["blk.0.ffn_up_exps.weight"] = {{1, 2, 3, 0, 0, 0}, {1, 0}};
  ASSERT_TRUE(write_importance(matrix, folder_ / "m.gguf"));
  const auto read = read_importance(folder_ / "m.gguf");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->datasets, matrix.datasets);
  EXPECT_EQ(read->chunks, 7u);
  EXPECT_EQ(read->chunk_tokens, 512u);
  EXPECT_EQ(read->means("blk.0.ffn_up.weight"), (std::vector<float>{0.25f, 0.5f, 0.875f, 0}));
  EXPECT_EQ(read->means("blk.0.ffn_up_exps.weight"), (std::vector<float>{1, 2, 3, 1, 1, 1}));  // uncounted: ones
  EXPECT_TRUE(read->means("other").empty());

  matrix.entries["blk.0.ffn_up_exps.weight"].sums[4] = 5;
  ASSERT_TRUE(write_importance(matrix, folder_ / "m.gguf"));
  EXPECT_NE(read_importance(folder_ / "m.gguf").error().message.find("sums of no calls"), std::string::npos);
}

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

TEST_F(ImatrixTest, ReadsTheOlderFormat) {
  const std::string name = "blk.0.ffn_up.weight";
  const std::string entry = raw<int32_t>(19) + name + raw<int32_t>(4) + raw<int32_t>(2) + raw(2.0f) + raw(6.0f);
  const std::string tail = raw<int32_t>(9) + raw<int32_t>(4) + "text";
  const auto read = read_importance(write("m.dat", raw<int32_t>(1) + entry + tail));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->means(name), (std::vector<float>{0.5f, 1.5f}));
  EXPECT_EQ(read->chunks, 9u);
  EXPECT_EQ(read->datasets, std::vector<std::string>{"text"});
  EXPECT_TRUE(read_importance(write("short.dat", raw<int32_t>(1) + entry)));
}

TEST_F(ImatrixTest, RefusesWhatIsNoMatrix) {
  const std::string entry = raw<int32_t>(1) + "a" + raw<int32_t>(1) + raw<int32_t>(1);
  const std::pair<const char*, std::string> cases[] = {
      {"older format", ""},
      {"older format", "hello, this is no matrix"},
      {"name", raw<int32_t>(1) + raw<int32_t>(0)},
      {"name", raw<int32_t>(1) + raw<int32_t>(1 << 30)},
      {"values", raw<int32_t>(1) + entry},
      {"nan", raw<int32_t>(1) + entry + raw(std::nanf(""))},
      {"inf", raw<int32_t>(1) + entry + raw(INFINITY)},
      {"-1", raw<int32_t>(1) + entry + raw(-1.0f)},
      {"3e+38", raw<int32_t>(1) + entry + raw(3e38f)},
      {"mean square of an activation is 0,", raw<int32_t>(1) + entry + raw(0.0f)},
      {"0 sums", raw<int32_t>(1) + raw<int32_t>(1) + "a" + raw<int32_t>(1) + raw<int32_t>(0)},
  };
  for (const auto& [part, bytes] : cases) {
    const auto read = read_importance(write("bad", bytes));
    ASSERT_FALSE(read) << part;
    const std::string& message = read.error().message;
    EXPECT_NE(message.find("bad"), std::string::npos) << message;
    EXPECT_TRUE(bytes.empty() || message.find(part) != std::string::npos) << message;
  }
  EXPECT_EQ(read_importance(folder_ / "none").error().code, Code::kNotFound);
  GgufWriter model;
  model.put_string("general.architecture", "llama");
  ASSERT_TRUE(model.write(folder_ / "model.gguf"));
  EXPECT_NE(read_importance(folder_ / "model.gguf").error().message.find("general.type"), std::string::npos);
  GgufWriter orphan;
  orphan.put_string("general.type", "imatrix");
  orphan.add_tensor("a.in_sum2", DType::kF32, {1},
                    []() -> Result<std::vector<std::byte>> { return std::vector<std::byte>(4); });
  ASSERT_TRUE(orphan.write(folder_ / "orphan.gguf"));
  EXPECT_NE(read_importance(folder_ / "orphan.gguf").error().message.find("no counts"), std::string::npos);
}

// A matrix with two halves, of which one matters: its error falls, and the other's may rise.
TEST_F(ImatrixTest, QuantizeUsesIt) {
  constexpr size_t kColumns = 512, kRows = 32;
  Random random(8);
  std::vector<float> values(kColumns * kRows);
  for (float& value : values) value = random.normal();
  GgufWriter writer;
  writer.put_string("general.architecture", "llama");
  writer.put_u32("llama.block_count", 1);
  const auto produce = [&]() -> Result<std::vector<std::byte>> {
    const auto bytes = std::as_bytes(std::span(values));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  writer.add_tensor("blk.0.ffn_up.weight", DType::kF32, {kRows, kColumns}, produce);
  writer.add_tensor("blk.0.ffn_gate.weight", DType::kF32, {kRows, kColumns}, produce);
  ASSERT_TRUE(writer.write(folder_ / "source.gguf"));

  ImportanceMatrix matrix;
  matrix.file = "m.gguf";
  matrix.chunks = 3;
  auto& entry = matrix.entries["blk.0.ffn_up.weight"];
  for (size_t i = 0; i < kColumns; ++i) entry.sums.push_back(i % 2 == 0 ? 100 : 1);
  entry.counts = {1};
  const auto error_of = [&](const ImportanceMatrix* importance, std::string_view name) {
    QuantizeOptions options{.type = "Q3_K_M", .threads = 2};
    options.importance = importance;
    const auto report = quantize_to_gguf(folder_ / "source.gguf", folder_ / "out.gguf", options);
    EXPECT_TRUE(report) << report.error().message;
    if (importance != nullptr) {
      EXPECT_EQ(report->notes, std::vector<std::string>{"1 tensor quantized without importance, which has no entry for "
                                                        "it: blk.0.ffn_gate.weight"});
    }
    const auto out = open_container(folder_ / "out.gguf");
    const TensorView& tensor = *out->find(name);
    std::vector<float> back(values.size());
    format_of(tensor.dtype).decode(tensor.data.data(), back.data(), back.size());
    EXPECT_EQ(out->gguf.find("quantize.imatrix.file") != nullptr, importance != nullptr);
    double sum = 0;
    for (size_t i = 0; i < back.size(); ++i) sum += (i % 2 == 0 ? 100 : 1) * std::pow(back[i] - values[i], 2);
    return sum;
  };
  EXPECT_LT(error_of(&matrix, "blk.0.ffn_up.weight"), 0.9 * error_of(nullptr, "blk.0.ffn_up.weight"));
  EXPECT_EQ(error_of(&matrix, "blk.0.ffn_gate.weight"), error_of(nullptr, "blk.0.ffn_gate.weight"));

  entry.sums.pop_back();
  QuantizeOptions options{.type = "Q4_K_M"};
  options.importance = &matrix;
  const auto refused = quantize_to_gguf(folder_ / "source.gguf", folder_ / "out.gguf", options);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("another model"), std::string::npos);
}

}  // namespace
}  // namespace baton

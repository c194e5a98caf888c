// A bundled model in every GGUF type that can be written, and random blocks of those that can only be read, on `cpu`
// against `ref` with the same bytes. Types that only folders hold: mlx_folder_test.cc, model/packed_weights_test.cc.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "baton/api/units.h"
#include "baton/base/random.h"
#include "baton/model/gguf_writer.h"
#include "baton/quant/samples_test.h"
#include "baton/tools/convert.h"
#include "tests/support/golden.h"

namespace baton::test {
namespace {

class WrittenFormat : public testing::TestWithParam<DType> {};

std::vector<float> answer(const char* unit_name, std::shared_ptr<const Model> model, std::span<const int32_t> ids) {
  auto unit = create_unit(unit_name);
  auto executor = (*unit)->load(std::move(model), 1);
  EXPECT_TRUE(executor) << executor.error().message;
  EXPECT_EQ((*executor)->placement().text().find("decoded to F32"), std::string::npos);
  auto state = (*executor)->new_state(ids.size());
  return last_logits(**executor, ids, 3, **state);
}

TEST_P(WrittenFormat, CpuAnswersAsRef) {
  const std::filesystem::path out = std::filesystem::temp_directory_path() /
                                    fmt::format("baton_formats_{}_{}.gguf", ::getpid(), to_string(GetParam()));
  ConvertOptions options;
  options.matrix_type = GetParam();
  const auto report = convert_to_gguf(data_folder() / "golden" / "dictionary-3m", out, options);
  ASSERT_TRUE(report) << report.error().message;
  const auto model = load_model(out);
  std::filesystem::remove(out);
  ASSERT_TRUE(model) << model.error().message;
  size_t found = 0;  // rows of 160 do not fit blocks of 256; those of 256 do
  for (const Weight& weight : (*model)->weights) found += weight.dtype == GetParam() ? 1 : 0;
  EXPECT_GE(found, 4u);
  const auto cpu = create_unit("cpu");
  ASSERT_TRUE(cpu);
  const std::vector<int32_t> ids = {5, 17, 200, 3, 91, 44, 128, 7};
  const std::vector<float> wanted = answer("ref", *model, ids), got = answer("cpu", *model, ids);
  EXPECT_LE(max_abs_difference(got, wanted), (*cpu)->caps().logit_tolerance(GetParam()));
  EXPECT_GT(top2_gap(wanted), 0);  // an answer, not zeros
}

std::vector<DType> written() {
  std::vector<DType> types;
  for (const Format& format : formats()) {
    if (format.encode != nullptr && format.ggml_id != kNoGgmlId) types.push_back(format.dtype);
  }
  return types;
}
INSTANTIATE_TEST_SUITE_P(All, WrittenFormat, testing::ValuesIn(written()),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// A llama of one layer whose matrices are blocks of a type: written byte by byte, as this project has no encoder for
// most.
struct BlockFile {
  std::filesystem::path path;
  GgufWriter writer;
  Random random{11};
  DType dtype;

  explicit BlockFile(DType type)
      : path(std::filesystem::temp_directory_path() /
             fmt::format("baton_type_{}_{}.gguf", to_string(type), ::getpid())),
        dtype(type) {
    writer.put_string("general.architecture", "llama");
    for (const auto& [key, value] : {std::pair("block_count", 1u), std::pair("embedding_length", 256u),
                                     std::pair("feed_forward_length", 512u), std::pair("context_length", 128u),
                                     std::pair("attention.head_count", 4u), std::pair("attention.head_count_kv", 2u)}) {
      writer.put_u32(fmt::format("llama.{}", key), value);
    }
    writer.put_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    for (const char* norm : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) vector(norm, 256, 1.0f);
    matrix("token_embd", 131, 256);
    matrix("output", 131, 256);
    for (const auto& [name, rows, columns] :
         {std::tuple("attn_q", 256, 256), std::tuple("attn_k", 128, 256), std::tuple("attn_v", 128, 256),
          std::tuple("attn_output", 256, 256), std::tuple("ffn_gate", 512, 256), std::tuple("ffn_up", 512, 256),
          std::tuple("ffn_down", 256, 512)}) {
      matrix(fmt::format("blk.0.{}", name), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns));
    }
  }
  ~BlockFile() { std::filesystem::remove(path); }

  void add(const std::string& name, DType type, const std::vector<uint64_t>& shape, std::vector<std::byte> bytes) {
    writer.add_tensor(name, type, shape,
                      [bytes = std::move(bytes)]() -> Result<std::vector<std::byte>> { return bytes; });
  }
  void vector(const std::string& name, uint64_t count, float value) {
    const std::vector<float> values(count, value);
    const auto bytes = std::as_bytes(std::span(values));
    add(name + (count == 1 ? "" : ".weight"), DType::kF32, {count}, {bytes.begin(), bytes.end()});
  }
  void matrix(const std::string& name, uint64_t rows, uint64_t columns) {
    std::vector<float> like(rows * columns);
    for (float& value : like) value = random.normal() / 16;
    add(name + ".weight", dtype, {rows, columns}, blocks_like(format_of(dtype), like, random));
  }
  std::shared_ptr<const Model> load() {
    const auto written = writer.write(path);
    EXPECT_TRUE(written) << written.error().message;
    auto model = load_model(path);
    EXPECT_TRUE(model) << model.error().message;
    return model ? *model : nullptr;
  }
};

class ReadFormat : public testing::TestWithParam<DType> {};

TEST_P(ReadFormat, AFileOfItsBlocksAnswersOnCpuAsOnRef) {
  const auto model = BlockFile(GetParam()).load();
  ASSERT_NE(model, nullptr);
  const auto cpu = create_unit("cpu");
  const std::vector<int32_t> ids = {5, 17, 100, 3, 91, 44, 128, 7};
  const std::vector<float> wanted = answer("ref", model, ids), got = answer("cpu", model, ids);
  EXPECT_LE(max_abs_difference(got, wanted), (*cpu)->caps().logit_tolerance(GetParam()));
  EXPECT_GT(top2_gap(wanted), 0);
  float highest = 0;
  for (const float logit : wanted) highest = std::max(highest, std::fabs(logit));
  EXPECT_GT(highest, 0.5f) << "logits too small for the tolerance to say anything";
}

std::vector<DType> only_read() {
  std::vector<DType> types;
  for (const Format& format : formats()) {
    if (format.encode == nullptr && format.ggml_id != kNoGgmlId) types.push_back(format.dtype);
  }
  return types;
}
INSTANTIATE_TEST_SUITE_P(All, ReadFormat, testing::ValuesIn(only_read()),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// NVFP4's second scale lies in a tensor of its own.
TEST(Nvfp4, ATensorOfItsScaleMultiplies) {
  const std::vector<int32_t> ids = {5, 17, 100, 3};
  const auto with = [&](float scale) {
    BlockFile file(DType::kNVFP4);
    if (scale != 0) file.vector("blk.0.attn_v.scale", 1, scale);
    file.vector("blk.0.ffn_up.input_scale", 1, 3);
    const auto model = file.load();
    return model == nullptr ? std::vector<float>() : answer("ref", model, ids);
  };
  const std::vector<float> plain = with(0);
  EXPECT_EQ(with(1), plain);
  EXPECT_GT(max_abs_difference(with(0.25f), plain), 1e-3f);
}

}  // namespace
}  // namespace baton::test

// One model in several containers gives the same logits: as published (multimodal prefix, odd shard names), as MLX
// converts it (+1 folded into norms, squeezed kernels), as GGUF (tiled value heads, permuted rotary rows).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "baton/api/convert.h"
#include "baton/api/units.h"
#include "tests/support/golden.h"
#include "tests/support/safetensors_writer.h"

namespace baton::test {
namespace {

class Containers : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("baton_containers_{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::filesystem::path golden(const std::string& name) { return data_folder() / "golden" / name; }

  // Logits at every position of the golden prompt, on `ref`.
  static std::vector<float> logits_of(const std::filesystem::path& model_path, const std::string& golden_name) {
    const auto model = load_model(model_path);
    EXPECT_TRUE(model) << model.error().message;
    if (!model) return {};
    auto unit = create_unit("ref");
    auto executor = (*unit)->load(*model, 1);
    const auto tensors = read_golden(golden(golden_name) / "golden.safetensors");
    const auto& ids = tensors.at("ids").integers;
    auto state = (*executor)->new_state(ids.size());
    std::vector<float> logits(ids.size() * static_cast<size_t>((*model)->program.vocab));
    const auto status = (*executor)->prefill(**state, ids, logits);
    EXPECT_TRUE(status) << status.error().message;
    return logits;
  }
  static std::vector<float> wanted(const std::string& golden_name) {
    return read_golden(golden(golden_name) / "golden.safetensors").at("logits").reals;
  }

  std::filesystem::path folder_;
};

TEST_F(Containers, MlxConverted) {
  auto tensors = read_float_tensors(golden("tiny-qwen3.5"));
  for (FloatTensor& tensor : tensors) {
    const bool gated = tensor.name.ends_with("linear_attn.norm.weight");
    if (tensor.name.ends_with("norm.weight") && !gated) {
      for (float& value : tensor.values) value += 1.0f;
    }
    if (tensor.name.ends_with("conv1d.weight")) std::swap(tensor.shape[1], tensor.shape[2]);
    tensor.name =
        tensor.name.starts_with("lm_head") ? "language_model." + tensor.name : "language_model." + tensor.name;
  }
  write_safetensors(folder_ / "model.safetensors", tensors);
  std::filesystem::copy(golden("tiny-qwen3.5") / "config.json", folder_ / "config.json");
  EXPECT_LE(max_abs_difference(logits_of(folder_, "tiny-qwen3.5"), wanted("tiny-qwen3.5")), 1e-4f);
}

// Published checkpoints name their shards model.safetensors-0000X-of-0000Y.safetensors; only the index finds them.
TEST_F(Containers, PublishedShardNames) {
  const auto tensors = read_float_tensors(golden("tiny-qwen3.5-multimodal"));
  nlohmann::json index;
  std::vector<FloatTensor> shards[2];
  for (size_t i = 0; i < tensors.size(); ++i) shards[i % 2].push_back(tensors[i]);
  for (int shard = 0; shard < 2; ++shard) {
    const std::string name = fmt::format("model.safetensors-0000{}-of-00002.safetensors", shard + 1);
    write_safetensors(folder_ / name, shards[shard]);
    for (const FloatTensor& tensor : shards[shard]) index["weight_map"][tensor.name] = name;
  }
  std::ofstream(folder_ / "model.safetensors.index.json") << index.dump();
  std::filesystem::copy(golden("tiny-qwen3.5-multimodal") / "config.json", folder_ / "config.json");
  EXPECT_LE(max_abs_difference(logits_of(folder_, "tiny-qwen3.5-multimodal"), wanted("tiny-qwen3.5-multimodal")),
            1e-4f);
}

class ToGguf : public Containers, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, ToGguf, testing::Values("tiny-qwen3.5", "tiny-qwen3.5-multimodal", "tiny-llama"),
                         [](const auto& item) {
                           std::string name = item.param;
                           for (char& letter : name)
                             letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
                           return name;
                         });

// 2 key heads to 6 value heads: a wrong head map or a forgotten column permutation cannot pass.
TEST_P(ToGguf, ConvertedGivesTheSameLogits) {
  const auto file = folder_ / "model.gguf";
  ConvertOptions options;
  options.matrix_type = DType::kF32;
  const auto status = convert_to_gguf(golden(GetParam()), file, options);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_LE(max_abs_difference(logits_of(file, GetParam()), wanted(GetParam())), 1e-4f);
}

}  // namespace
}  // namespace baton::test

// LoRA adapters, of PEFT's and of llama.cpp's form, against the model whose matrices were merged with them here: the
// same logits on ref, within its bounds on cpu. And what is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "baton/api/units.h"
#include "baton/base/random.h"
#include "baton/model/adapter.h"
#include "baton/model/gguf_writer.h"
#include "baton/model/model.h"
#include "baton/tools/convert.h"
#include "tests/support/golden.h"
#include "tests/support/safetensors_writer.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRank = 4;
constexpr float kAlpha = 6;

struct Pair {
  std::string module;  // "model.layers.0.self_attn.v_proj"
  FloatTensor a, b;
};

class Lora : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("baton_lora_{}", ::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "adapter");
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Of every matrix of the layers whose name ends so.
  std::vector<Pair> pairs(const std::vector<std::string>& ends, uint64_t seed) {
    Random random(seed);
    std::vector<Pair> made;
    for (const FloatTensor& tensor : read_float_tensors(base_)) {
      const bool wanted = std::any_of(ends.begin(), ends.end(), [&](const std::string& end) {
        return tensor.name.ends_with(end + ".weight") && (turned_ || tensor.name.find("layers.") != std::string::npos);
      });
      if (!wanted) continue;
      Pair pair{tensor.name.substr(0, tensor.name.size() - 7), {}, {}};
      pair.a.shape = {kRank, tensor.shape[turned_ ? 0 : 1]};
      pair.b.shape = {tensor.shape[turned_ ? 1 : 0], kRank};
      for (FloatTensor* part : {&pair.a, &pair.b}) {
        part->values.resize(part->shape[0] * part->shape[1]);
        for (float& value : part->values) value = 0.2f * random.normal();
      }
      made.push_back(std::move(pair));
    }
    EXPECT_FALSE(made.empty());
    return made;
  }

  fs::path write_peft(const std::vector<Pair>& pairs, const nlohmann::json& more = {},
                      const std::string& without = {}) {
    std::vector<FloatTensor> tensors;
    for (Pair pair : pairs) {
      pair.a.name = "base_model.model." + pair.module + ".lora_A.weight";
      pair.b.name = "base_model.model." + pair.module + ".lora_B.weight";
      tensors.push_back(std::move(pair.a));
      tensors.push_back(std::move(pair.b));
    }
    std::erase_if(tensors, [&](const FloatTensor& tensor) { return tensor.name == without; });
    write_safetensors(folder_ / "adapter" / "adapter_model.safetensors", tensors);
    nlohmann::json config = {{"peft_type", "LORA"}, {"r", kRank}, {"lora_alpha", kAlpha}, {"bias", "none"}};
    config.update(more.is_null() ? nlohmann::json::object() : more);
    std::ofstream(folder_ / "adapter" / "adapter_config.json") << config;
    return folder_ / "adapter";
  }

  // The base with `factor` * B A added to its matrices.
  fs::path write_merged(const std::vector<Pair>& pairs, double factor) {
    std::vector<FloatTensor> tensors = read_float_tensors(base_);
    for (const Pair& pair : pairs) {
      for (FloatTensor& tensor : tensors) {
        if (tensor.name != pair.module + ".weight") continue;
        const uint64_t rows = pair.b.shape[0], columns = pair.a.shape[1];
        for (uint64_t r = 0; r < rows; ++r) {
          for (uint64_t c = 0; c < columns; ++c) {
            double sum = 0;
            for (uint64_t k = 0; k < kRank; ++k) {
              sum += static_cast<double>(pair.b.values[r * kRank + k]) * pair.a.values[k * columns + c];
            }
            float& value = tensor.values[turned_ ? c * rows + r : r * columns + c];
            value = static_cast<float>(value + factor * sum);
          }
        }
      }
    }
    const fs::path merged = folder_ / "merged";
    fs::create_directories(merged);
    fs::copy_file(base_ / "config.json", merged / "config.json", fs::copy_options::overwrite_existing);
    write_safetensors(merged / "model.safetensors", tensors);
    return merged;
  }

  std::vector<float> answer(const std::string& unit, const std::shared_ptr<const Model>& model) {
    const auto created = create_unit(unit);
    if (!created || !model) return {};
    const auto executor = (*created)->load(model, 1);
    EXPECT_TRUE(executor) << executor.error().message;
    const auto state = (*executor)->new_state(64);
    const std::vector<int32_t> ids = {5, 17, 20, 3, 91, 44, 28, 7, 9, 11, 60};
    return last_logits(**executor, ids, 4, **state);
  }
  std::shared_ptr<const Model> load(const fs::path& path, const std::vector<AdapterChoice>& adapters = {}) {
    auto model = load_model(path, 0, ModelUse::kText, adapters);
    EXPECT_TRUE(model) << model.error().message;
    return model ? *model : nullptr;
  }
  void expect_refused(const fs::path& adapter, const char* words) {
    const std::vector<AdapterChoice> adapters = {{adapter}};
    const auto model = load_model(base_, 0, ModelUse::kText, adapters);
    ASSERT_FALSE(model) << words;
    EXPECT_NE(model.error().message.find(words), std::string::npos) << model.error().message;
  }

  fs::path base_ = data_folder() / "golden" / "tiny-llama";
  bool turned_ = false;  // matrices lie [in, out]
  fs::path folder_;
};

const std::vector<std::string> kAll = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};

TEST_F(Lora, APeftFolderIsItsMerge) {
  const std::vector<Pair> made = pairs(kAll, 3);
  const auto merged = load(write_merged(made, 0.5 * kAlpha / kRank));
  const auto adapted = load(base_, {{write_peft(made), 0.5f}});
  const auto plain = load(base_);
  const std::vector<float> wanted = answer("ref", merged), got = answer("ref", adapted), none = answer("ref", plain);
  EXPECT_LE(max_abs_difference(got, wanted), 1e-4f);
  EXPECT_GT(max_abs_difference(none, wanted), 0.1f) << "the adapter changes too little to be noticed";
  EXPECT_LE(max_abs_difference(answer("cpu", adapted), wanted),
            (*create_unit("cpu"))->caps().logit_tolerance(DType::kF32) + 1e-4f);
  EXPECT_NE(adapted->shape_prints.model, plain->shape_prints.model);
}

// PEFT writes fan_in_fan_out for them: so do the base's matrices lie, A and B as ever.
TEST_F(Lora, AnAdapterOfGpt2IsItsMerge) {
  base_ = data_folder() / "golden" / "families" / "gpt2";
  turned_ = true;
  const std::vector<Pair> made = pairs({"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}, 11);
  const auto merged = load(write_merged(made, kAlpha / kRank));
  const auto adapted = load(base_, {{write_peft(made, {{"fan_in_fan_out", true}}), 1.0f}});
  const std::vector<float> wanted = answer("ref", merged);
  ASSERT_FALSE(wanted.empty());
  EXPECT_LE(max_abs_difference(answer("ref", adapted), wanted), 1e-3f);
  EXPECT_GT(max_abs_difference(answer("ref", load(base_)), wanted), 0.1f);
}

TEST_F(Lora, TwoAreAddedAndFingerprintsTellStrengthsApart) {
  const std::vector<Pair> made = pairs({"v_proj", "down_proj"}, 4);
  const fs::path adapter = write_peft(made, {{"use_rslora", true}});
  const auto twice = load(base_, {{adapter, 1.0f}, {adapter, -0.25f}});
  const auto merged = load(write_merged(made, 0.75 * kAlpha / std::sqrt(kRank)));
  EXPECT_LE(max_abs_difference(answer("ref", twice), answer("ref", merged)), 1e-4f);
  const auto once = load(base_, {{adapter, 1.0f}}), half = load(base_, {{adapter, 0.5f}});
  EXPECT_NE(once->shape_prints.model, half->shape_prints.model);
  const auto nothing = load(base_, {{adapter, 0.0f}});
  EXPECT_EQ(answer("ref", nothing), answer("ref", load(base_)));
}

// llama's GGUF files have the rows of q and k in another order; a PEFT folder fits the other matrices.
TEST_F(Lora, GgufAdaptersAndGgufModels) {
  const fs::path gguf = folder_ / "base.gguf", file = folder_ / "adapter.gguf";
  const auto converted = convert_to_gguf(base_, gguf, {.matrix_type = DType::kF32, .on_tensor = {}});
  ASSERT_TRUE(converted) << converted.error().message;
  const std::vector<Pair> made = pairs({"v_proj", "down_proj"}, 5);
  GgufWriter writer;
  writer.put_string("general.type", "adapter");
  writer.put_string("general.architecture", "llama");
  writer.put_string("adapter.type", "lora");
  writer.put_f32("adapter.lora.alpha", kAlpha);
  for (const Pair& pair : made) {
    const size_t at = pair.module.find("layers.") + 7;
    const bool down = pair.module.ends_with("down_proj");
    const std::string name = fmt::format("blk.{}.{}.weight", pair.module.substr(at, pair.module.find('.', at) - at),
                                         down ? "ffn_down" : "attn_v");
    for (const auto& [part, end] : {std::pair(&pair.a, ".lora_a"), std::pair(&pair.b, ".lora_b")}) {
      const auto bytes = std::as_bytes(std::span(part->values));
      writer.add_tensor(name + end, DType::kF32, part->shape, [bytes]() -> Result<std::vector<std::byte>> {
        return std::vector<std::byte>(bytes.begin(), bytes.end());
      });
    }
  }
  const auto written = writer.write(file, {});
  ASSERT_TRUE(written) << written.error().message;
  const std::vector<float> wanted = answer("ref", load(write_merged(made, kAlpha / kRank)));
  const fs::path peft = write_peft(made);
  for (const fs::path& model : {gguf, base_}) {
    for (const fs::path& adapter : {file, peft}) {
      EXPECT_LE(max_abs_difference(answer("ref", load(model, {{adapter}})), wanted), 1e-4f) << model << adapter;
    }
  }
  const std::vector<AdapterChoice> other = {{write_peft(pairs({"q_proj"}, 6))}};
  const auto refused = load_model(gguf, 0, ModelUse::kText, other);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("another order"), std::string::npos) << refused.error().message;
}

TEST_F(Lora, WhatIsNotComputedIsRefused) {
  const std::vector<Pair> made = pairs({"v_proj"}, 7);
  expect_refused(folder_ / "none", "No such file");
  expect_refused(base_, "adapter_config.json");
  expect_refused(write_peft(made, {{"use_dora", true}}), "use_dora");
  expect_refused(write_peft(made, {{"bias", "all"}}), "bias");
  expect_refused(write_peft(made, {{"peft_type", "IA3"}}), "IA3");
  expect_refused(write_peft(made, {{"rank_pattern", {{"v_proj", 8}}}}), "rank_pattern");
  expect_refused(write_peft(made, {{"r", kRank + 1}}), "no pair of rank 5");
  std::vector<Pair> other = made;
  other[0].module = "model.layers.77.self_attn.v_proj";
  expect_refused(write_peft(other), "belongs to no linear layer");
  other = made;
  other[0].a.shape[1] /= 2;
  other[0].a.values.resize(other[0].a.values.size() / 2);
  expect_refused(write_peft(other), "an adapter of another model");
  other = made;
  other[0].b.values[3] = std::nanf("");
  expect_refused(write_peft(other), "no finite numbers");
}

// A matrix whose half is missing, and modules that only end like one of the text model.
TEST_F(Lora, HalvesAndOtherTowersAreRefusedByName) {
  std::vector<Pair> made = pairs({"v_proj"}, 8);
  for (const char* half : {"lora_A", "lora_B"}) {
    const std::string name = fmt::format("base_model.model.{}.{}.weight", made[0].module, half);
    expect_refused(write_peft(made, {}, name), (name + "' is missing").c_str());
  }
  const std::string own = made[0].module;
  const std::string tail = own.substr(own.find("layers."));
  for (const char* tower : {"vision_tower.vision_model.encoder.", "model.vision_tower.encoder.", "visual.",
                            "model.model.", "model.language_model.visual."}) {
    made[0].module = tower + tail;
    expect_refused(write_peft(made), "belongs to no linear layer");
  }
  const std::vector<Pair> plain = pairs({"v_proj"}, 8);
  const std::vector<float> wanted = answer("ref", load(base_, {{write_peft(plain)}}));
  for (const char* prefix : {"", "model.", "model.language_model.", "language_model.model.", "language_model."}) {
    std::vector<Pair> other = plain;
    for (Pair& pair : other) pair.module = prefix + pair.module.substr(pair.module.find("layers."));
    EXPECT_EQ(answer("ref", load(base_, {{write_peft(other)}})), wanted) << prefix;
  }
}

TEST_F(Lora, ConfigurationsThatSayMoreAreRefused) {
  const std::vector<Pair> made = pairs({"v_proj"}, 9);
  expect_refused(write_peft(made, {{"target_parameters", {"mlp.experts.gate_up_proj"}}}), "target_parameters");
  expect_refused(write_peft(made, {{"use_something_new", true}}), "field 'use_something_new' is true");
  expect_refused(write_peft(made, {{"init_lora_weights", "pissa"}}), "init_lora_weights");
  expect_refused(write_peft(made, {{"lora_alpha", 1e30}}), "field 'lora_alpha' is 1e+30");
  // As peft writes it.
  const nlohmann::json usual = nlohmann::json::parse(R"({"alora_invocation_tokens": null, "alpha_pattern": {},
    "arrow_config": null, "auto_mapping": {"base_model_class": "X", "parent_library": "y"}, "corda_config": null,
    "base_model_name_or_path": "x", "ensure_weight_tying": false, "eva_config": null, "exclude_modules": null,
    "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true, "layer_replication": null,
    "layers_pattern": null, "layers_to_transform": null, "loftq_config": {}, "lora_bias": false, "lora_dropout": 0.1,
    "megatron_config": null, "megatron_core": "megatron.core", "modules_to_save": null, "peft_version": "0.18.0",
    "qalora_group_size": 16, "rank_pattern": {}, "revision": null, "target_modules": ["v_proj"],
    "target_parameters": null, "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_dora": false,
    "use_qalora": false, "use_rslora": false})");
  EXPECT_NE(load(base_, {{write_peft(made, usual)}}), nullptr);
}

TEST_F(Lora, GgufAdaptersOfOtherModelsAndKindsAreRefused) {
  const auto write = [&](const char* architecture, float alpha, const char* key) {
    const Pair made = pairs({"layers.0.mlp.down_proj"}, 10)[0];
    const fs::path file = folder_ / "other.gguf";
    GgufWriter writer;
    writer.put_string("general.type", "adapter");
    writer.put_string("general.architecture", architecture);
    writer.put_string("adapter.type", "lora");
    writer.put_f32("adapter.lora.alpha", alpha);
    writer.put_string(key, "x");
    for (const auto& [part, end] : {std::pair(&made.a, ".lora_a"), std::pair(&made.b, ".lora_b")}) {
      const auto bytes = std::as_bytes(std::span(part->values));
      writer.add_tensor(
          std::string("blk.0.ffn_down.weight") + end, DType::kF32, part->shape,
          [bytes]() -> Result<std::vector<std::byte>> { return std::vector<std::byte>(bytes.begin(), bytes.end()); });
    }
    const auto written = writer.write(file, {});
    EXPECT_TRUE(written) << written.error().message;
    return file;
  };
  EXPECT_NE(load(base_, {{write("llama", kAlpha, "adapter.lora.task_name")}}), nullptr);
  expect_refused(write("qwen2", kAlpha, "general.name"), "'general.architecture' is 'qwen2', the model's is 'llama'");
  expect_refused(write("llama", kAlpha, "adapter.alora.invocation_string"), "adapter.alora.invocation_string");
  expect_refused(write("llama", std::nanf(""), "general.name"), "adapter.lora.alpha");
  expect_refused(write("llama", 3e38f, "general.name"), "adapter.lora.alpha");
}

TEST(LoraFlag, PathAndScale) {
  EXPECT_EQ(parse_adapter("a/b")->path, "a/b");
  EXPECT_EQ(parse_adapter("a/b")->scale, 1);
  EXPECT_EQ(parse_adapter("a=b=-0.5")->path, "a=b");
  EXPECT_EQ(parse_adapter("a=b=-0.5")->scale, -0.5f);
  for (const char* wrong : {"", "=1", "a=", "a=x", "a=1x", "a=nan", "a=inf", "a=1e38"})
    EXPECT_FALSE(parse_adapter(wrong)) << wrong;
}

}  // namespace
}  // namespace baton::test

// Decoder families, each by its folder under tests/data/golden/families: a state sealed by one unit in the middle of a
// text and opened by another goes on to the reference's logits; the folder converted to GGUF computes the same; the
// edge of a window; and what a unit lacks is said by name. golden_test and handoff_test have the families too.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "baton/api/units.h"
#include "baton/bridge/bridge.h"
#include "baton/model/arch.h"
#include "baton/model/container.h"
#include "baton/tools/convert.h"
#include "tests/support/golden.h"
#include "tests/support/test_names.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

struct Loaded {
  std::string name;
  std::unique_ptr<Unit> unit;
  std::unique_ptr<Executor> executor;
  float tolerance = 0;
};

class Family : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    tensors_ = read_golden(family_folder(GetParam()) / "golden.safetensors");
    model_ = load(family_folder(GetParam()));
  }
  static std::shared_ptr<const Model> load(const fs::path& path) {
    auto model = load_model(path);
    EXPECT_TRUE(model) << model.error().message;
    return model ? *model : nullptr;
  }
  // Of units that decode, with executors of `model`.
  static std::vector<Loaded> units_of(const std::shared_ptr<const Model>& model) {
    std::vector<Loaded> all;
    for (const UnitEntry* entry : unit_entries()) {
      auto unit = create_test_unit(std::string(entry->name));
      if (!unit || (*unit)->caps().decode_seats_max == 0) continue;
      auto executor = (*unit)->load(model, 1);
      const bool lacks_op = !check_program(entry->name, (*unit)->caps(), model->program);
      EXPECT_EQ(executor.has_value(), !lacks_op) << entry->name;
      if (!executor) continue;
      const float tolerance = entry->name == std::string_view("ref") ? 2e-3f : logit_tolerance_of(**unit, *model);
      all.push_back({std::string(entry->name), std::move(*unit), std::move(*executor), tolerance});
    }
    return all;
  }
  const std::vector<int32_t>& ids() const { return tensors_.at("ids").integers; }
  // The reference's, behind token `at`.
  std::vector<float> wanted(size_t at) const {
    const auto& all = tensors_.at("logits").reals;
    const auto width = static_cast<size_t>(model_->program.vocab);
    return {all.begin() + static_cast<std::ptrdiff_t>(at * width),
            all.begin() + static_cast<std::ptrdiff_t>((at + 1) * width)};
  }
  std::vector<float> logits_of(const std::shared_ptr<const Model>& model, std::span<const int32_t> tokens) const {
    auto unit = create_unit("ref");
    auto executor = (*unit)->load(model, 1);
    auto state = (*executor)->new_state(tokens.size());
    std::vector<float> logits(tokens.size() * static_cast<size_t>(model->program.vocab));
    const auto status = (*executor)->prefill(**state, tokens, logits);
    EXPECT_TRUE(status) << status.error().message;
    return logits;
  }

  GoldenTensors tensors_;
  std::shared_ptr<const Model> model_;
};

INSTANTIATE_TEST_SUITE_P(All, Family, testing::ValuesIn(family_names()),
                         [](const auto& item) { return test_name(item.param); });

TEST_P(Family, SealedInTheMiddleAndOpenedByEachUnit) {
  ASSERT_NE(model_, nullptr);
  constexpr size_t kMiddle = 37;
  const std::vector<Loaded> units = units_of(model_);
  const auto begin = std::span(ids()).first(kMiddle);
  const auto prints = model_->fingerprints();
  ASSERT_TRUE(prints);
  const StateIdentity identity{prints->model, prints->quantization, 1};
  for (const Loaded& from : units) {
    auto state = from.executor->new_state(kMiddle + 5);
    ASSERT_TRUE(from.executor->prefill(**state, begin, {}));
    const auto block = seal_state(**state, identity, begin);
    ASSERT_TRUE(block) << block.error().message;
    for (const Loaded& to : units) {
      SCOPED_TRACE(from.name + " to " + to.name);
      auto into = to.executor->new_state(ids().size());
      SealExpectation expected;
      expected.identity = identity;
      const auto opened = unseal_state(SealSource::borrowed(*block), expected, **into);
      ASSERT_TRUE(opened) << opened.error().message;
      std::vector<float> row(static_cast<size_t>(model_->program.vocab));
      for (size_t at = kMiddle; at < ids().size(); ++at) {
        ASSERT_TRUE(to.executor->decode(**into, ids()[at], row));
        ASSERT_LE(max_abs_difference(row, wanted(at)), from.tolerance + to.tolerance) << "token " << at;
      }
    }
  }
}

TEST_P(Family, ConvertedToGgufItComputesTheSame) {
  ASSERT_NE(model_, nullptr);
  const fs::path file = fs::temp_directory_path() / fmt::format("baton-family-{}-{}.gguf", GetParam(), getpid());
  ConvertOptions options;
  options.matrix_type = DType::kF32;
  const auto report = convert_to_gguf(family_folder(GetParam()), file, options);
  ASSERT_TRUE(report) << report.error().message;
  const auto converted = load(file);
  ASSERT_NE(converted, nullptr);
  EXPECT_EQ(converted->program.ops.size(), model_->program.ops.size());
  EXPECT_LE(max_abs_difference(logits_of(converted, ids()), tensors_.at("logits").reals), 2e-3f);
  fs::remove(file);
}

// With windows in all layers the first token is out of sight behind layers * (window - 1) others, and seen before.
TEST_P(Family, BeyondItsWindowsATokenIsNotSeen) {
  ASSERT_NE(model_, nullptr);
  const auto& windows = model_->spec.blocks.windows;
  if (windows.empty() || std::find(windows.begin(), windows.end(), 0) != windows.end()) return;
  const size_t reach = model_->spec.layers * static_cast<size_t>(windows[0] - 1);
  ASSERT_LT(reach + 1, ids().size());
  std::vector<int32_t> other = ids();
  other[0] = other[0] == 5 ? 6 : 5;
  const auto width = static_cast<size_t>(model_->program.vocab);
  for (const Loaded& loaded : units_of(model_)) {
    SCOPED_TRACE(loaded.name);
    std::vector<float> logits[2];
    for (const bool changed : {false, true}) {
      auto state = loaded.executor->new_state(ids().size());
      logits[changed].resize(ids().size() * width);
      ASSERT_TRUE(loaded.executor->prefill(**state, changed ? other : ids(), logits[changed]));
    }
    const auto differs = [&](size_t at) {
      return !std::equal(logits[0].begin() + static_cast<std::ptrdiff_t>(at * width),
                         logits[0].begin() + static_cast<std::ptrdiff_t>((at + 1) * width),
                         logits[1].begin() + static_cast<std::ptrdiff_t>(at * width));
    };
    EXPECT_TRUE(differs(static_cast<size_t>(windows[0]) - 1));
    for (size_t at = reach + 1; at < ids().size(); ++at) EXPECT_FALSE(differs(at)) << "token " << at;
  }
}

// A family's folder with another configuration.
void write_changed(const std::string& family, const std::function<void(Json&)>& change, const fs::path& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::create_symlink(family_folder(family) / "model.safetensors", folder / "model.safetensors");
  std::ifstream in(family_folder(family) / "config.json");
  Json config = Json::parse(in);
  change(config);
  std::ofstream(folder / "config.json") << config.dump();
}

// With chunks in all layers a token sees those of its own, whatever lies in front of it.
TEST_P(Family, BeyondItsChunkATokenIsNotSeen) {
  ASSERT_NE(model_, nullptr);
  if (!model_->spec.blocks.chunked) return;
  const auto chunk = static_cast<size_t>(model_->spec.blocks.window(0));
  const fs::path folder = fs::temp_directory_path() / fmt::format("baton-chunks-{}-{}", GetParam(), getpid());
  write_changed(
      GetParam(),
      [](Json& config) {
        config["no_rope_layers"] = Json::array_t(config["num_hidden_layers"].get<size_t>(), 1);
        config.erase("layer_types");
      },
      folder);
  const auto chunked = load(folder);
  ASSERT_NE(chunked, nullptr);
  std::vector<int32_t> other = ids();
  other[0] = other[0] == 5 ? 6 : 5;
  const auto width = static_cast<size_t>(chunked->program.vocab);
  for (const Loaded& loaded : units_of(chunked)) {
    SCOPED_TRACE(loaded.name);
    std::vector<float> logits[2];
    for (const bool changed : {false, true}) {
      auto state = loaded.executor->new_state(ids().size());
      logits[changed].resize(ids().size() * width);
      ASSERT_TRUE(loaded.executor->prefill(**state, changed ? other : ids(), logits[changed]));
    }
    const auto begin = static_cast<std::ptrdiff_t>(chunk * width);
    EXPECT_TRUE(std::equal(logits[0].begin() + begin, logits[0].end(), logits[1].begin() + begin));
    EXPECT_FALSE(std::equal(logits[0].begin() + begin - static_cast<std::ptrdiff_t>(width), logits[0].begin() + begin,
                            logits[1].begin() + begin - static_cast<std::ptrdiff_t>(width)));
  }
  fs::remove_all(folder);
}

// Every unit that lacks an op or a trait says which.
TEST_P(Family, AUnitWithoutAnOpNamesIt) {
  ASSERT_NE(model_, nullptr);
  for (const Op& op : model_->program.ops) {
    Caps caps;
    for (const Op& other : model_->program.ops) {
      if (other.kind != op.kind) caps.ops.push_back(other.kind);
    }
    caps.cuts_prompts = false;
    caps.traits.assign(std::begin(kOpTraits), std::end(kOpTraits));
    Status refused = check_program("some", caps, model_->program);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(fmt::format("no op {} ", to_string(op.kind))), std::string::npos)
        << refused.error().message;
    for (const OpTrait trait : traits_of(op)) {
      caps.ops.push_back(op.kind);
      caps.traits.clear();
      for (const OpTrait kept : kOpTraits) {
        if (kept != trait) caps.traits.push_back(kept);
      }
      refused = check_program("some", caps, model_->program);
      ASSERT_FALSE(refused);
      EXPECT_NE(refused.error().message.find(std::string(to_string(trait))), std::string::npos)
          << refused.error().message;
    }
  }
}

// Converted: what GGUF cannot say is refused by its field.
Result<ConvertReport> convert_changed(const std::string& family, const Json& changes, const fs::path& folder) {
  write_changed(
      family, [&](Json& config) { config.update(changes); }, folder);
  ConvertOptions options;
  options.matrix_type = DType::kF32;
  return convert_to_gguf(folder, folder / "out.gguf", options);
}

TEST(Families, WhatGgufCannotSayIsRefusedByItsField) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("baton-unsayable-{}", getpid());
  const Json windows = {{"use_sliding_window", true},
                        {"sliding_window", 4},
                        {"layer_types", {"full_attention", "sliding_attention", "sliding_attention"}}};
  Json five = windows;
  five["layer_types"] = Json::array_t(5, "sliding_attention");
  const std::tuple<const char*, Json, const char*> cases[] = {
      {"smollm3", {{"no_rope_layers", {0, 0, 1, 1, 0}}}, "'no_rope_layers'"},
      {"smollm3", five, "'use_sliding_window'"},
      {"qwen2", windows, "'use_sliding_window'"},
      {"qwen3", windows, "'use_sliding_window'"},
      {"qwen3_moe", {{"use_sliding_window", true}, {"sliding_window", 4}}, "'use_sliding_window'"},
      {"ministral3", {{"sliding_window", 4}}, "'sliding_window'"},
      {"granite", {{"partial_rotary_factor", 0.5}}, "'partial_rotary_factor'"},
      {"gemma2", {{"attn_logit_softcapping", nullptr}}, "'attn_logit_softcapping'"},
      {"gemma2", {{"final_logit_softcapping", nullptr}}, "'final_logit_softcapping'"},
      {"gpt2", {{"activation_function", "gelu"}}, "'activation_function'"},
      {"llama4", {{"no_rope_layers", {1, 0, 1, 1}}}, "'no_rope_layers'"},
      {"llama4", {{"use_qk_norm", false}}, "'use_qk_norm'"},
  };
  for (const auto& [family, changes, field] : cases) {
    const auto report = convert_changed(family, changes, folder);
    ASSERT_FALSE(report) << family << " " << field;
    EXPECT_NE(report.error().message.find(field), std::string::npos) << report.error().message;
    EXPECT_FALSE(fs::exists(folder / "out.gguf"));
  }
  fs::remove_all(folder);
}

// The length of training is a key where positions are not scaled but queries are, and an OLMo 3 without windows is a
// file of OLMo 2: convert compares what it wrote.
TEST(Families, WhatHasNoScaledPositionsIsConvertedWhole) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("baton-unscaled-{}", getpid());
  const Json plain = {{"rope_type", "default"},
                      {"rope_theta", 1e4},
                      {"llama_4_scaling_beta", 0.3},
                      {"original_max_position_embeddings", 32}};
  const std::pair<const char*, Json> cases[] = {{"ministral3", {{"rope_parameters", plain}}},
                                                {"olmo3", {{"layer_types", Json::array_t(3, "full_attention")}}}};
  for (const auto& [family, changes] : cases) {
    const auto report = convert_changed(family, changes, folder);
    ASSERT_TRUE(report) << family << ": " << report.error().message;
    const auto before = load_model(folder), after = load_model(folder / "out.gguf");
    ASSERT_TRUE(before && after) << family;
    EXPECT_EQ((*after)->spec.blocks.position_scale_tokens, (*before)->spec.blocks.position_scale_tokens);
    EXPECT_TRUE((*after)->spec.blocks.windows.empty());
  }
  fs::remove_all(folder);
}

TEST(Families, AWindowAsLongAsTheContextKeepsTheNearBase) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("baton-wide-{}", getpid());
  ASSERT_TRUE(convert_changed("gemma3", {{"sliding_window", 300}}, folder));
  const auto before = load_model(folder), after = load_model(folder / "out.gguf");
  ASSERT_TRUE(before && after);
  EXPECT_EQ((*after)->spec.blocks.positions, (*before)->spec.blocks.positions);
  EXPECT_EQ((*after)->spec.blocks.near_theta, (*before)->spec.blocks.near_theta);
  EXPECT_TRUE((*after)->spec.blocks.windows.empty());
  fs::remove_all(folder);
}

// What llama.cpp takes for granted is what files without these keys mean.
TEST(Families, Llama4FilesOfFewKeysAreAsThePublishedModels) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("baton-llama4-{}", getpid());
  const Json published = {
      {"attention_chunk_size", 8192}, {"floor_scale", 8192}, {"attn_scale", 0.1}, {"max_position_embeddings", 10000}};
  const auto report = convert_changed("llama4", published, folder);
  ASSERT_TRUE(report) << report.error().message;
  for (const std::string& lost : report->lost) EXPECT_EQ(lost.find("chunks"), std::string::npos) << lost;
  std::ifstream in(folder / "out.gguf", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  for (const char* key : {"attention.sliding_window", "attention.sliding_window_pattern", "attention.temperature_scale",
                          "attention.temperature_length", "rope.freq_base"}) {
    const size_t at = bytes.find(fmt::format("llama4.{}", key));
    ASSERT_NE(at, std::string::npos) << key;
    bytes[at] = 'x';  // a key of something else
  }
  std::ofstream(folder / "few.gguf", std::ios::binary) << bytes;
  const auto all = load_model(folder / "out.gguf"), few = load_model(folder / "few.gguf");
  ASSERT_TRUE(all && few);
  EXPECT_EQ((*few)->spec.blocks.windows, (std::vector<int32_t>{8192, 8192, 8192, 0}));
  EXPECT_EQ((*few)->spec.blocks.windows, (*all)->spec.blocks.windows);
  EXPECT_EQ((*few)->spec.blocks.positions, (*all)->spec.blocks.positions);
  EXPECT_EQ((*few)->spec.blocks.position_scale, (*all)->spec.blocks.position_scale);
  EXPECT_EQ((*few)->spec.blocks.position_scale_tokens, 8192);
  EXPECT_EQ((*few)->spec.rope_theta, 500000);
  fs::remove_all(folder);
}

TEST(Families, TheTextOfAMultimodalLlama4IsTheSameModel) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("baton-llama4-text-{}", getpid());
  write_changed(
      "llama4",
      [](Json& config) {
        Json text = config;
        text["attn_temperature_tuning"] = 4;  // as in the first files
        config = {{"model_type", "llama4"}, {"text_config", text}, {"vision_config", {{"image_size", 336}}}};
      },
      folder);
  const auto whole = load_model(folder), text = load_model(family_folder("llama4"));
  ASSERT_TRUE(whole && text);
  EXPECT_EQ((*whole)->fingerprints()->model, (*text)->fingerprints()->model);
  fs::remove_all(folder);
}

// MobileLLM: no experts, no chunks, positions everywhere.
TEST(Families, Llama4WithoutExpertsIsADenseModel) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("baton-llama4-dense-{}", getpid());
  write_changed(
      "llama4",
      [](Json& config) {
        config.update({{"num_hidden_layers", 1},
                       {"moe_layers", Json::array()},
                       {"interleave_moe_layer_step", 0},
                       {"num_local_experts", 0},
                       {"no_rope_layers", {1}},
                       {"attn_temperature_tuning", false},
                       {"layer_types", {"full_attention"}}});
      },
      folder);
  const auto model = load_model(folder);
  ASSERT_FALSE(model);  // of the other layers' tensors: all that it says is read
  EXPECT_NE(model.error().message.find("layers.1."), std::string::npos) << model.error().message;
  fs::remove_all(folder);
}

TEST(Families, EachArchitectureOfTheListHasVectors) {
  std::vector<std::string> seen;
  for (const GoldenCase& item : golden_cases()) {
    const auto model = load_model(item.model);
    ASSERT_TRUE(model) << item.name << ": " << model.error().message;
    seen.push_back((*model)->spec.architecture);
  }
  for (const std::string& name : encoder_names()) {
    const auto model = load_model(encoder_folder(name), 0, ModelUse::kVectors);
    ASSERT_TRUE(model) << name << ": " << model.error().message;
    seen.push_back((*model)->spec.architecture);
  }
  for (const Architecture* architecture : architectures()) {
    EXPECT_NE(std::find(seen.begin(), seen.end(), architecture->name), seen.end()) << architecture->name;
  }
}

}  // namespace
}  // namespace baton::test

// One model in several containers gives the same logits: as published (multimodal prefix, odd shard names), as MLX
// converts it (+1 folded into norms, squeezed kernels), as GGUF (tiled value heads, permuted rotary rows).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>

#include "baton/api/text_model.h"
#include "baton/api/units.h"
#include "baton/model/container.h"
#include "baton/model/gguf_writer.h"
#include "baton/tools/convert.h"
#include "tests/support/golden.h"
#include "tests/support/safetensors_writer.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

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

// Scaled positions and biases, against transformers (scripts/make_position_vectors.py): a tiny model with another
// configuration, and its own weights or with bias tensors added.
class Positions : public Containers {
 protected:
  struct Case {
    std::string name;
    fs::path folder;
    std::vector<float> logits;  // wanted, at positions_
  };
  static constexpr float kTolerance = 2e-3f;

  void SetUp() override {
    Containers::SetUp();
    std::ifstream in(data_folder() / "positions" / "cases.json");
    description_ = Json::parse(in);
    tensors_ = read_golden(data_folder() / "positions" / "vectors.safetensors");
    positions_ = description_["positions"].get<std::vector<size_t>>();
  }

  Case make(const Json& item) {
    const std::string name = item["name"], model = item["model"];
    Case out{name, folder_ / name, tensors_.at(name + ".logits").reals};
    fs::create_directories(out.folder);
    std::ifstream in(golden(model) / "config.json");
    Json config = Json::parse(in);
    config.update(item["changes"]);
    std::ofstream(out.folder / "config.json") << config.dump();
    if (item["biases"].empty()) {
      fs::create_symlink(golden(model) / "model.safetensors", out.folder / "model.safetensors");
      return out;
    }
    auto weights = read_float_tensors(golden(model));
    for (const std::string bias : item["biases"]) {
      const GoldenTensor& values = tensors_.at(name + "." + bias);
      weights.push_back({bias, {values.reals.size()}, values.reals});
    }
    write_safetensors(out.folder / "model.safetensors", weights);
    return out;
  }
  const std::vector<int32_t>& ids() const { return tensors_.at("ids").integers; }

  // The largest difference to the vectors, of a model at `path` on `unit`.
  float difference(const fs::path& path, Unit& unit, const std::vector<float>& wanted) {
    const auto model = load_model(path, ids().size());
    EXPECT_TRUE(model) << model.error().message;
    auto executor = model ? unit.load(*model, 2) : fail(Code::kInternal, "no model");
    EXPECT_TRUE(executor) << executor.error().message;
    if (!executor) return INFINITY;
    const auto vocab = static_cast<size_t>((*model)->program.vocab);
    auto state = (*executor)->new_state(ids().size());
    std::vector<float> logits(ids().size() * vocab), got;
    const auto status = (*executor)->prefill(**state, ids(), logits);
    EXPECT_TRUE(status) << status.error().message;
    for (const size_t position : positions_) {
      const auto row = logits.begin() + static_cast<ptrdiff_t>(position * vocab);
      got.insert(got.end(), row, row + static_cast<ptrdiff_t>(vocab));
    }
    return max_abs_difference(got, wanted);
  }

  Json description_;
  GoldenTensors tensors_;
  std::vector<size_t> positions_;
};

TEST_F(Positions, FoldersAndTheirGgufFilesAnswerAsTransformers) {
  auto unit = create_unit("ref");
  ASSERT_TRUE(unit);
  for (const Json& item : description_["cases"]) {
    const Case one = make(item);
    EXPECT_LE(difference(one.folder, **unit, one.logits), kTolerance) << one.name;
    const auto file = folder_ / "model.gguf";
    ConvertOptions options;
    options.matrix_type = DType::kF32;
    const auto report = convert_to_gguf(one.folder, file, options);
    ASSERT_TRUE(report) << one.name << ": " << report.error().message;
    EXPECT_LE(difference(file, **unit, one.logits), kTolerance) << one.name << " as GGUF";
  }
}

// Every unit, the emulated ones too, on cases that need divisors, magnitude and biases.
TEST_F(Positions, EveryUnitTurnsAndAddsAlike) {
  const std::map<std::string, std::string> options = {
      {"ane", ":device=emulator"}, {"coreml", ":device=emulator,lengths=64,cache=" + (folder_ / "cache").string()}};
  for (const Json& item : description_["cases"]) {
    const std::string name = item["name"];
    if (name != "tiny-llama.biased_scaled" && name != "tiny-qwen3.5.longrope_attention" &&
        name != "tiny-qwen3.5.biased")
      continue;
    const Case one = make(item);
    for (const UnitEntry* entry : unit_entries()) {
      const auto found = options.find(std::string(entry->name));
      auto unit = create_unit(std::string(entry->name) + (found == options.end() ? "" : found->second));
      if (!unit && unit.error().code == Code::kUnsupported) continue;
      ASSERT_TRUE(unit) << unit.error().message;
      const Caps& caps = (*unit)->caps();
      // Logits of these models are 3 to 5; leaving any of the three out moves them by 0.3 and more.
      const float allowed = std::min(0.1f, caps.logit_tolerance(DType::kF32));
      EXPECT_LE(difference(one.folder, **unit, one.logits), std::max(allowed, kTolerance)) << name << entry->name;
    }
  }
}

// A longrope model has two sets of frequencies, and the context decides; states of one are not for the other.
TEST_F(Positions, LongRopeIsChosenByTheContext) {
  for (const Json& item : description_["cases"]) {
    if (item["name"] != "tiny-llama.longrope_short") continue;
    const Case one = make(item);
    const auto up_to = load_model(one.folder, 256), beyond = load_model(one.folder, 257), most = load_model(one.folder);
    ASSERT_TRUE(up_to && beyond && most);
    const auto factors = [](const Model& model) {
      for (const Weight& weight : model.weights) {
        if (weight.name == "rope_factors") return reinterpret_cast<const float*>(weight.data)[7];
      }
      return 0.0f;
    };
    EXPECT_EQ(factors(**up_to), 2.0f);
    EXPECT_EQ(factors(**beyond), 20.0f);
    EXPECT_EQ(factors(**most), 20.0f);
    EXPECT_NE((*up_to)->shape_prints.model, (*beyond)->shape_prints.model);
  }
}

// A GGUF file like another, with keys left out or put in their place, and tensors added.
using Change = std::function<void(GgufWriter&)>;
void rewrite(const fs::path& from, const fs::path& to, const std::vector<std::string>& without, const Change& change) {
  const auto source = open_container(from);
  ASSERT_TRUE(source) << source.error().message;
  GgufWriter writer;
  for (size_t i = 0; i < source->gguf.entries.size(); ++i) {
    const std::string key(source->gguf.entries[i].first);
    if (std::find(without.begin(), without.end(), key) == without.end()) writer.put_raw(key, source->gguf.raw[i]);
  }
  for (const TensorView& tensor : source->tensors) {
    writer.add_tensor(std::string(tensor.name), tensor.dtype, tensor.shape,
                      [&tensor]() -> Result<std::vector<std::byte>> {
                        return std::vector<std::byte>(tensor.data.begin(), tensor.data.end());
                      });
  }
  change(writer);
  const auto status = writer.write(to);
  ASSERT_TRUE(status) << status.error().message;
}
void add_floats(GgufWriter& writer, const std::string& name, const std::vector<float>& values) {
  writer.add_tensor(name, DType::kF32, {values.size()}, [values]() -> Result<std::vector<std::byte>> {
    const auto bytes = std::as_bytes(std::span(values));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
}

// What GGUF files of others say, in each of their ways; `as`: whose logits they must give, empty: the model as it is.
TEST_F(Positions, GgufKeysOfOtherWriters) {
  const auto plain = folder_ / "plain.gguf", file = folder_ / "changed.gguf";
  ConvertOptions options;
  options.matrix_type = DType::kF32;
  ASSERT_TRUE(convert_to_gguf(golden("tiny-llama"), plain, options));
  auto unit = create_unit("ref");
  const std::string scaling = "llama.rope.scaling.";
  const float magnitude = 0.1f * std::log(4.0f) + 1;
  const auto yarn = [&](GgufWriter& w) {
    w.put_string(scaling + "type", "yarn");
    w.put_f32(scaling + "factor", 4);
    w.put_u32(scaling + "original_context_length", 64);
  };
  const std::vector<float> longer = {1.0f, 1.3f, 2.0f, 3.0f, 5.0f, 8.0f, 12.0f, 20.0f};
  const std::vector<std::pair<std::string, Change>> cases = {
      {"linear", [&](GgufWriter& w) { w.put_f32("llama.rope.scale_linear", 4); }},
      {"linear", [&](GgufWriter& w) { w.put_f32(scaling + "factor", 4); }},
      {"linear", [&](GgufWriter& w) { yarn(w), w.put_f32(scaling + "yarn_ext_factor", 0); }},
      {"linear", [&](GgufWriter& w) { add_floats(w, "rope_freqs.weight", std::vector<float>(8, 4.0f)); }},
      {"", [&](GgufWriter& w) { w.put_string(scaling + "type", "none"), w.put_f32(scaling + "factor", 4); }},
      {"", [&](GgufWriter& w) { w.put_f32(scaling + "factor", 0), w.put_bool(scaling + "finetuned", true); }},
      {"yarn", yarn},
      {"yarn_attention", [&](GgufWriter& w) { yarn(w), w.put_f32(scaling + "attn_factor", 0.9f / magnitude); }},
      {"yarn_ramp",
       [&](GgufWriter& w) {
         yarn(w), w.put_f32(scaling + "yarn_beta_fast", 8), w.put_f32(scaling + "yarn_beta_slow", 2);
       }},
      {"longrope_attention",
       [&](GgufWriter& w) {
         w.put_string(scaling + "type", "longrope");
         w.put_u32(scaling + "original_context_length", 64);
         w.put_f32(scaling + "attn_factor", 1.3f);
         add_floats(w, "rope_factors_long.weight", longer);
         add_floats(w, "rope_factors_short.weight", std::vector<float>(8, 1.0f));
       }},
  };
  for (const auto& [as, change] : cases) {
    rewrite(plain, file, {}, change);
    std::vector<float> wanted;
    if (as.empty()) {
      EXPECT_LE(max_abs_difference(logits_of(file, "tiny-llama"), Containers::wanted("tiny-llama")), 1e-4f);
    } else {
      EXPECT_LE(difference(file, **unit, tensors_.at("tiny-llama." + as + ".logits").reals), kTolerance) << as;
    }
  }
}

TEST_F(Positions, GgufKeysAndTensorsThatNothingReadsAreNamed) {
  const auto plain = folder_ / "plain.gguf", file = folder_ / "changed.gguf";
  ASSERT_TRUE(convert_to_gguf(golden("tiny-llama"), plain, {}));
  const std::vector<std::pair<const char*, Change>> cases = {
      {"'llama.rope.scaling.type' is llama3", [](GgufWriter& w) { w.put_string("llama.rope.scaling.type", "llama3"); }},
      {"rope scaling 'dynamic'", [](GgufWriter& w) { w.put_string("llama.rope.scaling.type", "dynamic"); }},
      {"rope_factors_short and rope_factors_long",
       [](GgufWriter& w) { w.put_string("llama.rope.scaling.type", "longrope"); }},
      {"'rope_freqs.weight' has 3 values",
       [](GgufWriter& w) { add_floats(w, "rope_freqs.weight", std::vector<float>(3, 1.0f)); }},
      {"key 'llama.logit_scale' is set", [](GgufWriter& w) { w.put_f32("llama.logit_scale", 0.5f); }},
      {"key 'llama.attention.clamp_kqv'", [](GgufWriter& w) { w.put_f32("llama.attention.clamp_kqv", 8); }},
      {"", [](GgufWriter& w) { w.put_u32("llama.attention.sliding_window", 64); }},
      {"key 'llama.attention.causal' is false", [](GgufWriter& w) { w.put_bool("llama.attention.causal", false); }},
      {"key 'llama.use_norm' is false", [](GgufWriter& w) { w.put_bool("llama.use_norm", false); }},
      {"", [](GgufWriter& w) { w.put_bool("llama.attention.causal", true), w.put_bool("llama.swin_norm", false); }},
      {"8 experts", [](GgufWriter& w) { w.put_u32("llama.expert_count", 8); }},
      {"'blk.1.attn_sinks.weight' is read by nothing",
       [](GgufWriter& w) { add_floats(w, "blk.1.attn_sinks.weight", std::vector<float>(6, 1.0f)); }},
      {"'output.bias' is read by nothing",
       [](GgufWriter& w) { add_floats(w, "output.bias", std::vector<float>(256, 1.0f)); }},
      {"", [](GgufWriter& w) { w.put_f32("llama.logit_scale", 0), w.put_u32("llama.expert_used_count", 2); }},
      {"", [](GgufWriter& w) { w.put_u32("llama.attention.sliding_window", 512); }},
      {"", [](GgufWriter& w) { add_floats(w, "v.blk.0.attn_q.weight", std::vector<float>(6, 1.0f)); }},
      {"",
       [](GgufWriter& w) { w.put_string("general.author", "x"), w.put_u32("tokenizer.ggml.seperator_token_id", 1); }},
  };
  for (const auto& [word, change] : cases) {
    rewrite(plain, file, {}, change);
    const auto model = load_model(file);
    EXPECT_EQ(model.has_value(), std::string_view(word).empty()) << word << (model ? "" : model.error().message);
    if (model) continue;
    EXPECT_NE(model.error().message.find(word), std::string::npos) << model.error().message;
  }
}

// GGUF bias tensors have no flag beside them: those that are there are added, in all layers or in none.
TEST_F(Positions, GgufBiasesAreOfAllLayersOrOfNone) {
  const auto plain = folder_ / "plain.gguf", file = folder_ / "changed.gguf";
  ASSERT_TRUE(convert_to_gguf(golden("tiny-qwen3.5"), plain, {}));
  const auto before = load_model(plain);
  ASSERT_TRUE(before) << before.error().message;
  const int32_t layers = (*before)->spec.layers;
  const auto write = [&](int32_t without) {
    rewrite(plain, file, {}, [&](GgufWriter& w) {
      for (int32_t layer = 0; layer < layers; ++layer) {
        if (layer != without) add_floats(w, fmt::format("blk.{}.ffn_down.bias", layer), std::vector<float>(96, 0.5f));
      }
    });
  };
  write(-1);
  const auto after = load_model(file);
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ((*after)->program.ops.size(), (*before)->program.ops.size() + static_cast<size_t>(layers));
  EXPECT_GE(max_abs_difference(logits_of(plain, "tiny-qwen3.5"), logits_of(file, "tiny-qwen3.5")), 0.05f);
  for (int32_t layer = 0; layer < layers; ++layer) {
    write(layer);
    const auto refused = load_model(file);
    ASSERT_FALSE(refused) << layer;
    EXPECT_NE(refused.error().message.find(fmt::format("'blk.{}.ffn_down.bias' is missing", layer)), std::string::npos)
        << refused.error().message;
  }
}

TEST_F(Positions, Qwen35DefaultsAndPredictionLayers) {
  const auto plain = folder_ / "plain.gguf", file = folder_ / "changed.gguf";
  ASSERT_TRUE(convert_to_gguf(golden("tiny-qwen3.5"), plain, {}));
  rewrite(plain, file, {"qwen35.rope.dimension_count"}, [](GgufWriter&) {});
  const auto model = load_model(file);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->spec.rotary, (*model)->spec.head_dim / 4);
  rewrite(plain, file, {"qwen35.block_count"}, [](GgufWriter& w) {
    w.put_u32("qwen35.block_count", 6);
    w.put_u32("qwen35.nextn_predict_layers", 1);
    add_floats(w, "blk.5.attn_norm.weight", std::vector<float>(96, 1.0f));
    add_floats(w, "blk.5.nextn.enorm.weight", std::vector<float>(96, 1.0f));
  });
  const auto predicting = load_model(file);
  ASSERT_TRUE(predicting) << predicting.error().message;
  EXPECT_EQ((*predicting)->spec.layers, 5);
  EXPECT_EQ((*predicting)->notes, std::vector<std::string>{"multi-token prediction head: 2 tensors skipped"});
}

// Layers that the file has and its count does not would be left out of the model.
TEST_F(Positions, BlocksBeyondTheCountAreNamed) {
  const auto plain = folder_ / "plain.gguf", file = folder_ / "changed.gguf";
  struct Fewer {
    std::string golden, prefix;
    uint32_t count;
    const char* word;
  };
  const Fewer cases[] = {{"tiny-llama", "llama.", 2, "is of block 2, but 'llama.block_count' is 2"},
                         {"tiny-qwen3.5", "qwen35.", 4, "is of block 4, but 'qwen35.block_count' is 4"}};
  for (const Fewer& item : cases) {
    ASSERT_TRUE(convert_to_gguf(golden(item.golden), plain, {}));
    const auto fewer = [&](GgufWriter& w) {
      w.put_u32(item.prefix + "block_count", item.count);
      if (item.count == 4) w.put_bools(item.prefix + "attention.recurrent_layers", {false, true, true, false});
    };
    rewrite(plain, file, {item.prefix + "block_count", item.prefix + "attention.recurrent_layers"}, fewer);
    const auto model = load_model(file);
    ASSERT_FALSE(model) << item.golden;
    EXPECT_NE(model.error().message.find(item.word), std::string::npos) << model.error().message;
  }
  ASSERT_TRUE(convert_to_gguf(golden("tiny-llama"), plain, {}));
  rewrite(plain, file, {}, [](GgufWriter& w) { w.put_u32("llama.nextn_predict_layers", 1); });
  const auto declared = load_model(file);  // llama has no prediction heads: its last block is a layer
  ASSERT_FALSE(declared);
  EXPECT_NE(declared.error().message.find("'llama.nextn_predict_layers' is set"), std::string::npos);
}

TEST_F(Positions, RecurrentLayersAreOneForEach) {
  const auto plain = folder_ / "plain.gguf", file = folder_ / "changed.gguf";
  const std::string key = "qwen35.attention.recurrent_layers";
  ASSERT_TRUE(convert_to_gguf(golden("tiny-qwen3.5"), plain, {}));
  const std::pair<std::vector<int32_t>, const char*> cases[] = {
      {{0, 1, 1, 0, 1}, ""},
      {{0, 1, 1, 0, 1, 0}, "has 6 entries for 5 layers"},
      {{0, 1, 1, 0}, "has 4 entries for 5 layers"},
      {{0, 1, 2, 0, 1}, "entry 2 is 2; it must be 0 or 1"},
  };
  for (const auto& [kinds, word] : cases) {
    rewrite(plain, file, {key}, [&, &values = kinds](GgufWriter& w) { w.put_i32s(key, values); });
    const auto model = load_model(file);
    EXPECT_EQ(model.has_value(), std::string_view(word).empty()) << word << (model ? "" : model.error().message);
    if (model) continue;
    EXPECT_NE(model.error().message.find(word), std::string::npos) << model.error().message;
    EXPECT_NE(model.error().message.find(key), std::string::npos) << model.error().message;
  }
}

// What GGUF has keys for is kept; the rest is said.
TEST_F(Positions, ConvertKeepsWhatTheTokenizerSays) {
  const auto source = folder_ / "source", file = folder_ / "model.gguf";
  fs::create_directories(source);
  for (const char* name : {"model.safetensors", "config.json"})
    fs::create_symlink(golden("dictionary-3m") / name, source / name);
  std::ifstream in(golden("dictionary-3m") / "tokenizer.json"),
      config_in(golden("dictionary-3m") / "tokenizer_config.json");
  Json tokenizer = Json::parse(in), config = Json::parse(config_in);
  tokenizer["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  config["add_bos_token"] = config["add_eos_token"] = true;
  config["bos_token"] = tokenizer["added_tokens"][0]["content"];
  std::ofstream(source / "tokenizer.json") << tokenizer.dump();
  std::ofstream(source / "tokenizer_config.json") << config.dump();
  std::ofstream(source / "generation_config.json") << R"({"eos_token_id": [8191, 8189, 17, 300, 42]})";
  const auto report = convert_to_gguf(source, file, {});
  ASSERT_TRUE(report) << report.error().message;
  std::string lost;
  for (const std::string& line : report->lost) lost += line + "\n";
  EXPECT_NE(lost.find("add_prefix_space"), std::string::npos) << lost;
  EXPECT_NE(lost.find("5 stop tokens: llama.cpp knows the first three (8191, 8189, 17)"), std::string::npos) << lost;
  const auto before = load_text_model(source), after = load_text_model(file);
  ASSERT_TRUE(before && after) << (before ? after.error().message : before.error().message);
  EXPECT_EQ(before->tokenizer->add_bos(), after->tokenizer->add_bos());
  EXPECT_TRUE(after->tokenizer->add_eos());
  EXPECT_EQ(before->stop_ids, after->stop_ids);
  EXPECT_EQ(std::count(after->stop_ids.begin(), after->stop_ids.end(), 300), 1);
  for (const char* text : {"A long document", "compiler", " with a space"}) {
    const auto a = encode_text(*before, text, true, TextPlace::kStart),
               b = encode_text(*after, text, true, TextPlace::kStart);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(*a, *b) << text;
    EXPECT_EQ(a->front(), before->tokenizer->bos_id());
    // The same text without BOS, and further on: no space before it there. No EOS in either place.
    const auto bare = encode_text(*after, text, true, TextPlace::kStartWithoutBos),
               further = encode_text(*after, text, true, TextPlace::kContinuation);
    EXPECT_EQ(*bare, std::vector<int32_t>(b->begin() + 1, b->end()));
    EXPECT_EQ(*further == *bare, text[0] == ' ') << text;
    EXPECT_NE(b->back(), after->tokenizer->eos_id());
  }
}

// The tokenizer's own end goes first, whatever generation_config.json lists: templates name it, and it ends answers.
// A tokenizer that no run takes is not written.
TEST_F(Positions, ConvertKeepsTheTokenizersOwnEnd) {
  const auto source = folder_ / "source", file = folder_ / "model.gguf";
  fs::create_directories(source);
  for (const char* name : {"model.safetensors", "config.json", "tokenizer_config.json"})
    fs::create_symlink(golden("dictionary-3m") / name, source / name);
  std::ifstream in(golden("dictionary-3m") / "tokenizer.json");
  Json tokenizer = Json::parse(in);
  std::ofstream(source / "tokenizer.json") << tokenizer.dump();
  std::ofstream(source / "generation_config.json") << R"({"eos_token_id": [17]})";
  ASSERT_TRUE(convert_to_gguf(source, file, {}));
  const auto before = load_text_model(source), after = load_text_model(file);
  ASSERT_TRUE(before && after) << (before ? after.error().message : before.error().message);
  EXPECT_EQ(before->eos_text, after->eos_text);
  EXPECT_NE(after->eos_text, "");
  EXPECT_EQ(before->stop_ids, after->stop_ids);
  EXPECT_EQ(std::count(after->stop_ids.begin(), after->stop_ids.end(), 17), 1);
  EXPECT_EQ(std::count(after->stop_ids.begin(), after->stop_ids.end(), after->tokenizer->eos_id()), 1);

  tokenizer["added_tokens"].push_back(tokenizer["added_tokens"][0]);
  tokenizer["added_tokens"].back()["id"] = 2830;  // a word's
  tokenizer["added_tokens"].back()["content"] = "<|new|>";
  std::ofstream(source / "tokenizer.json") << tokenizer.dump();
  const auto run = load_text_model(source);
  const auto refused = convert_to_gguf(source, folder_ / "bad.gguf", {});
  ASSERT_FALSE(run);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("2830"), std::string::npos) << refused.error().message;
  EXPECT_FALSE(fs::exists(folder_ / "bad.gguf"));
}

// A file without a tokenizer answers with ids.
TEST_F(Positions, AGgufFileWithoutTokenizerLoads) {
  const auto file = folder_ / "model.gguf";
  ASSERT_TRUE(convert_to_gguf(golden("tiny-llama"), file, {}));
  const auto text = load_text_model(file);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_FALSE(text->tokenizer);
  EXPECT_EQ(text->stop_ids, std::vector<int32_t>{2});
  const auto refused = encode_text(*text, "words", true, TextPlace::kStart);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("the file has no tokenizer"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace baton::test

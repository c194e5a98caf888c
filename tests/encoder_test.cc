// Encoder families, each by its folder under tests/data/golden/encoders: hidden states and vectors of another
// implementation on each unit that can, from the folder and from GGUF; texts together and alone; the reach of windows;
// configurations that are written in other words; and what is refused.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>

#include "baton/api/embed.h"
#include "baton/api/units.h"
#include "baton/base/random.h"
#include "baton/base/temporary_folder.h"
#include "baton/model/container.h"
#include "tests/support/golden.h"
#include "tests/support/test_names.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const Model> load(const fs::path& path) {
  auto model = load_model(path, 0, ModelUse::kVectors);
  EXPECT_TRUE(model) << model.error().message;
  return model ? *model : nullptr;
}
std::string refusal_of(const fs::path& path) {
  const auto model = load_model(path, 0, ModelUse::kVectors);
  return model ? std::string() : model.error().message;
}

struct Loaded {
  std::string name;
  std::unique_ptr<Unit> unit;
  std::unique_ptr<Executor> executor;
  float tolerance = 0;
};

// Units on this machine that have the model's ops; products in fewer bits are further away.
std::vector<Loaded> units_of(const std::shared_ptr<const Model>& model) {
  std::vector<Loaded> all;
  std::vector<std::string> names = {"cpu:kernels=exact", "cpu:kernels=scalar"};
  for (const UnitEntry* entry : unit_entries()) names.emplace_back(entry->name);
  for (const std::string& name : names) {
    auto unit = create_unit(name);
    if (!unit || (*unit)->caps().decode_seats_max == 0) continue;
    if (!check_program(name, (*unit)->caps(), model->program)) continue;
    auto executor = (*unit)->load(model, 2);
    EXPECT_TRUE(executor) << executor.error().message;
    if (!executor) continue;
    const DType type = (*unit)->caps().product_type;
    const float tolerance = type == DType::kF32 ? 1e-4F : type == DType::kF16 ? 2e-2F : 1e-1F;
    all.push_back({name, std::move(*unit), std::move(*executor), tolerance});
  }
  return all;
}

std::vector<float> hidden_of(Executor& executor, std::span<const int32_t> ids) {
  auto state = executor.new_state(ids.size());
  EXPECT_TRUE(state);
  std::vector<float> hidden(ids.size() * static_cast<size_t>(executor.model().program.output_width), std::nanf(""));
  const auto status = executor.prefill(**state, ids, hidden);
  EXPECT_TRUE(status) << status.error().message;
  return hidden;
}

// A copy of a family's folder with another config.json.
class Changed {
 public:
  explicit Changed(const std::string& name) : folder_(*TemporaryFolder::create("baton-encoder-test")) {
    fs::copy(encoder_folder(name), path(), fs::copy_options::recursive);
    std::ifstream file(path() / "config.json");
    config_ = Json::parse(file);
  }
  const fs::path& path() const { return folder_.path(); }
  Json& config() { return config_; }
  const fs::path& save() {
    std::ofstream(path() / "config.json", std::ios::trunc) << config_.dump();
    return path();
  }

 private:
  TemporaryFolder folder_;
  Json config_;
};

class Encoders : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    tensors_ = read_golden(folder() / "golden.safetensors");
    model_ = load(folder());
    ASSERT_NE(model_, nullptr);
  }
  static fs::path folder() { return encoder_folder(GetParam()); }
  static fs::path gguf() { return folder() / "model.gguf"; }
  // The folder's gelu is of tanh; GGUF has no key for that.
  static bool says_other_gelu(const fs::path& file) { return GetParam() == "bert" && file == gguf(); }
  const std::vector<int32_t>& ids() const { return tensors_.at("ids").integers; }

  GoldenTensors tensors_;
  std::shared_ptr<const Model> model_;
};

INSTANTIATE_TEST_SUITE_P(All, Encoders, testing::ValuesIn(encoder_names()),
                         [](const auto& item) { return test_name(item.param); });

TEST_P(Encoders, HiddenStatesEqualTheReference) {
  std::vector<std::string> names;
  for (const fs::path& file : {folder(), gguf()}) {
    if (!fs::exists(file)) continue;
    const auto model = load(file);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->program.ops.size(), model_->program.ops.size());
    for (const Loaded& loaded : units_of(model)) {
      names.push_back(loaded.name);
      const float more = says_other_gelu(file) ? 1e-3F : 0;
      EXPECT_LE(max_abs_difference(hidden_of(*loaded.executor, ids()), tensors_.at("hidden").reals),
                loaded.tolerance + more)
          << loaded.name << " from " << file.filename();
    }
  }
  for (const char* name : {"ref", "cpu", "ane"}) EXPECT_NE(std::find(names.begin(), names.end(), name), names.end());
}

TEST_P(Encoders, VectorsEqualTheReference) {
  for (const fs::path& file : {folder(), gguf()}) {
    if (!fs::exists(file)) continue;
    EmbedderOptions options;
    options.model = file;
    options.unit = "ref";
    // Its folder has no files of sentence-transformers; GGUF says pooling_type.
    if (GetParam() == "modernbert" && file == folder()) options.pooling = Pooling::kFirst;
    const auto embedder = Embedder::open(options);
    ASSERT_TRUE(embedder) << embedder.error().message;
    EmbedRequest request;
    request.inputs.emplace_back(ids());
    const auto made = (*embedder)->embed(request);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_LE(max_abs_difference(made->vectors[0], tensors_.at("embedding").reals),
              says_other_gelu(file) ? 2e-4F : 1e-5F)
        << file;
  }
}

// Texts go through one after another, without padding, and none sees another.
TEST_P(Encoders, TogetherEqualsAlone) {
  Random random(3);
  std::vector<std::vector<int32_t>> texts;
  for (const size_t count : {70, 1, 33, 64, 2, 65, 17, 9}) {
    texts.emplace_back(count);
    for (int32_t& id : texts.back()) id = static_cast<int32_t>(random.below(64));
  }
  const auto width = static_cast<size_t>(model_->program.output_width);
  for (const Loaded& loaded : units_of(model_)) {
    SCOPED_TRACE(loaded.name);
    std::vector<std::unique_ptr<SequenceState>> states;
    std::vector<Seat> seats;
    size_t rows = 0;
    for (const auto& text : texts) {
      states.push_back(*loaded.executor->new_state(text.size()));
      seats.push_back({states.back().get(), text, static_cast<uint32_t>(text.size())});
      rows += text.size();
    }
    std::vector<float> together(rows * width, std::nanf(""));
    const auto status = loaded.executor->step(seats, together, {});
    ASSERT_TRUE(status) << status.error().message;
    std::span<const float> left(together);
    for (const auto& text : texts) {
      EXPECT_LE(max_abs_difference(hidden_of(*loaded.executor, text),
                                   {left.begin(), left.begin() + static_cast<std::ptrdiff_t>(text.size() * width)}),
                5e-5F);
      left = left.subspan(text.size() * width);
    }
  }
}

TEST_P(Encoders, AUnitWithoutAnOpNamesIt) {
  for (const Op& op : model_->program.ops) {
    Caps caps;
    caps.cuts_prompts = false;
    for (const Op& other : model_->program.ops) caps.ops.push_back(other.kind);
    std::erase(caps.ops, op.kind);
    caps.traits.assign(std::begin(kOpTraits), std::end(kOpTraits));
    Status refused = check_program("some", caps, model_->program);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(fmt::format("no op {} ", to_string(op.kind))), std::string::npos)
        << refused.error().message;
    caps.ops.push_back(op.kind);
    for (const OpTrait trait : traits_of(op)) {
      std::erase(caps.traits, trait);
      refused = check_program("some", caps, model_->program);
      ASSERT_FALSE(refused);
      EXPECT_NE(refused.error().message.find(std::string(to_string(trait))), std::string::npos)
          << refused.error().message;
      caps.traits.push_back(trait);
    }
  }
}

// `coreml` cuts prompts and has no attention over whole texts.
TEST(EncoderUnits, WhoCannotSaysWhy) {
  for (const std::string& name : encoder_names()) {
    const auto model = load(encoder_folder(name));
    ASSERT_NE(model, nullptr);
    for (const UnitEntry* entry : unit_entries()) {
      const auto unit = create_test_unit(std::string(entry->name));
      if (!unit) continue;
      const Status can = check_program(entry->name, (*unit)->caps(), model->program);
      EXPECT_EQ(bool{can}, entry->name != std::string_view("coreml")) << entry->name << " " << name;
      if (can) continue;
      EXPECT_NE(can.error().message.find("coreml"), std::string::npos) << can.error().message;
    }
  }
}

// Four layers with windows of 9 to each side: a token is seen 36 tokens on, and no further.
TEST(EncoderWindows, EndWhereTheySay) {
  Changed changed("modernbert");
  changed.config()["layer_types"] = {"sliding_attention", "sliding_attention", "sliding_attention",
                                     "sliding_attention"};
  const auto model = load(changed.save());
  ASSERT_NE(model, nullptr);
  for (const Op& op : model->program.ops) {
    if (op.kind != OpKind::kAttendAll) continue;
    EXPECT_EQ(op.window, 9);
    EXPECT_EQ(traits_of(op), (std::vector<OpTrait>{OpTrait::kReach}));
  }
  const size_t reach = 4 * 9;
  const auto width = static_cast<size_t>(model->program.output_width);
  for (const Loaded& loaded : units_of(model)) {
    SCOPED_TRACE(loaded.name);
    std::vector<int32_t> ids(80, 7);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(3 + i % 50);
    const std::vector<float> before = hidden_of(*loaded.executor, ids);
    constexpr size_t kAt = 40;
    ids[kAt] = 60;
    const std::vector<float> after = hidden_of(*loaded.executor, ids);
    for (size_t t = 0; t < ids.size(); ++t) {
      const bool differs = !std::equal(before.begin() + static_cast<std::ptrdiff_t>(t * width),
                                       before.begin() + static_cast<std::ptrdiff_t>((t + 1) * width),
                                       after.begin() + static_cast<std::ptrdiff_t>(t * width));
      const size_t distance = t > kAt ? t - kAt : kAt - t;
      if (distance > 9 && distance <= reach) continue;
      EXPECT_EQ(differs, distance <= 9) << t;
    }
  }
}

// A GGUF file with the value of a key exchanged.
class Patched {
 public:
  Patched(const std::string& name, const std::string& key, uint32_t value, size_t bytes = 4)
      : folder_(*TemporaryFolder::create("baton-encoder-test")) {
    std::ifstream file(encoder_folder(name) / "model.gguf", std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(file), {});
    const size_t at = text.find(key) + key.size() + 4;  // behind the value's type
    EXPECT_LT(at, text.size()) << key;
    for (size_t i = 0; i < bytes; ++i) text.at(at + i) = static_cast<char>(value >> (8 * i));
    std::ofstream(path(), std::ios::binary) << text;
  }
  fs::path path() const { return folder_.path() / "model.gguf"; }

 private:
  TemporaryFolder folder_;
};

TEST(EncoderGguf, PoolingIsWhatItSays) {
  constexpr Pooling kTypes[] = {Pooling::kMean, Pooling::kMean, Pooling::kFirst, Pooling::kLast};
  for (uint32_t type = 0; type < 6; ++type) {
    const Patched file("bert", "bert.pooling_type", type);
    const auto model = load(file.path());
    ASSERT_NE(model, nullptr);
    const auto spec = read_embed_spec(*model);
    ASSERT_EQ(bool{spec}, type < 4);
    if (spec) {
      EXPECT_EQ(spec->pooling, kTypes[type]);
    } else {
      EXPECT_NE(spec.error().message.find("bert.pooling_type"), std::string::npos);
    }
  }
}

TEST(EncoderGguf, NoLongerThanItsTable) {
  EXPECT_EQ(load(Patched("bert", "bert.context_length", 100).path())->spec.context_max, 80);
  EXPECT_EQ(load(Patched("bert", "bert.context_length", 40).path())->spec.context_max, 40);
  EXPECT_EQ(load(encoder_folder("xlm-roberta") / "model.gguf")->spec.context_max, 80);
}

TEST(EncoderGguf, WhatIsRefusedIsNamed) {
  EXPECT_NE(refusal_of(Patched("bert", "bert.attention.causal", 1, 1).path()).find("causal attention"),
            std::string::npos);
  EXPECT_NE(refusal_of(Patched("bert", "bert.attention.head_count", 4).path()).find("divide"), std::string::npos);
  EXPECT_NE(refusal_of(Patched("bert", "bert.block_count", 2).path()).find("blk.2."), std::string::npos);
  EXPECT_NE(refusal_of(Patched("modernbert", "modern-bert.attention.sliding_window", 1).path()).find("a window of 1"),
            std::string::npos);
}

// nomic-ai's own config.json says the same in other words.
TEST(EncoderConfigs, NomicAsPublished) {
  Changed changed("nomic");
  changed.config() = {{"model_type", "nomic_bert"},
                      {"n_embd", 30},
                      {"n_layer", 3},
                      {"n_head", 3},
                      {"n_inner", 44},
                      {"n_positions", 80},
                      {"max_trained_positions", 40},
                      {"activation_function", "swiglu"},
                      {"layer_norm_epsilon", 1e-12},
                      {"vocab_size", 64},
                      {"type_vocab_size", 2},
                      {"qkv_proj_bias", false},
                      {"mlp_fc1_bias", false},
                      {"mlp_fc2_bias", false},
                      {"rotary_emb_base", 700},
                      {"rotary_emb_fraction", 1.0},
                      {"rotary_emb_interleaved", false},
                      {"rotary_emb_scale_base", nullptr},
                      {"rotary_scaling_factor", nullptr},
                      {"prenorm", false},
                      {"parallel_block", false},
                      {"use_rms_norm", false},
                      {"causal", false},
                      {"use_flash_attn", true},
                      {"pad_vocab_size_multiple", 64},
                      {"use_xentropy", true}};
  const auto model = load(changed.save());
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->shape_prints.model, load(encoder_folder("nomic"))->shape_prints.model);
  EXPECT_EQ(model->spec.context_max, 80);
  changed.config()["rotary_scaling_factor"] = 2;
  EXPECT_EQ(load(changed.save())->spec.context_max, 40);
}

// Old files of ModernBERT: numbers instead of lists.
TEST(EncoderConfigs, ModernBertOfOld) {
  Changed changed("modernbert");
  for (const char* field : {"layer_types", "rope_parameters"}) changed.config().erase(field);
  changed.config().update(
      {{"global_attn_every_n_layers", 3}, {"global_rope_theta", 900.0}, {"local_rope_theta", 50.0}});
  const auto model = load(changed.save());
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->shape_prints.model, load(encoder_folder("modernbert"))->shape_prints.model);
  EXPECT_EQ(model->spec.encoder.windows, (std::vector<int32_t>{0, 9, 9, 0}));
}

// "ntk" of the published files, against its formula.
TEST(EncoderConfigs, StretchedPositionsOfGte) {
  Changed changed("gte");
  changed.config().erase("rope_parameters");
  changed.config().update({{"model_type", "new"},
                           {"rope_theta", 500},
                           {"rope_scaling", {{"type", "ntk"}, {"factor", 8.0}}},
                           {"position_embedding_type", "rope"}});
  const auto model = load(changed.save());
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->spec.rope_theta, 4000);
  const std::vector<float> divisors = rope_divisors(model->spec.rope_scaling, model->spec.rope_theta, 10);
  ASSERT_EQ(divisors.size(), 5u);
  for (const float divisor : divisors) EXPECT_NEAR(divisor, 1.515717, 1e-5);  // 8^(2/10)
}

TEST(EncoderConfigs, WhatIsRefusedIsNamed) {
  struct Case {
    const char *family, *field;
    Json value;
    const char* word;
  };
  const Case cases[] = {{"bert", "position_embedding_type", "relative_key", "there is: absolute"},
                        {"bert", "hidden_act", "silu", "without a gate"},
                        {"bert", "hidden_act", "mish", "'mish'"},
                        {"bert", "new_field", 3, "new_field"},
                        {"bert", "is_decoder", true, "is_decoder"},
                        {"bert", "num_attention_heads", 4, "no multiple"},
                        {"xlm-roberta", "max_position_embeddings", 2, "no position"},
                        {"distilbert", "activation", "relu", "'relu'"},
                        {"distilbert", "n_layers", 4, "is missing"},
                        {"nomic", "head_dim", 8, "head_dim 8"},
                        {"nomic", "rope_parameters", {{"rope_type", "dynamic"}, {"rope_theta", 1.0}}, "dynamic"},
                        {"gte", "layer_norm_type", "rms_norm", "layer_norm_type"},
                        {"gte", "logn_attention_scale", true, "logn_attention_scale"},
                        {"gte", "rope_scaling", {{"type", "ntk"}, {"factor", 2.0}, {"mixed_b", 1.0}}, "mixed_b"},
                        {"modernbert", "layer_types", {"full_attention"}, "windows of 1 layers"},
                        {"modernbert", "layer_types", {"full_attention", "x", "x", "x"}, "\"x\""},
                        {"modernbert", "local_attention", 1, "a window of 1"},
                        {"modernbert", "norm_bias", true, "is missing"},
                        {"modernbert", "attention_bias", true, "is missing"},
                        {"jina", "feed_forward_type", "reglu", "'reglu'"}};
  for (const Case& c : cases) {
    Changed changed(c.family);
    changed.config()[c.field] = c.value;
    const std::string refused = refusal_of(changed.save());
    EXPECT_NE(refused.find(c.word), std::string::npos) << c.family << " " << c.field << ": " << refused;
  }
}

}  // namespace
}  // namespace baton::test

// The recipes against tables of llama.cpp's tool (`llama-quantize` of ggml 0.25.3) on the shapes of published models.
#include "baton/tools/recipe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "baton/base/bytes.h"

namespace baton {
namespace {

// A hybrid with 24 layers, every fourth of full attention, tied embeddings, in recipe order; `width` of the residual.
struct Hybrid {
  explicit Hybrid(uint64_t width, bool tied = true) {
    if (!tied) add("output.weight", {512, width});
    add("token_embd.weight", {512, width});
    for (int i = 0; i < 24; ++i) {
      const auto layer = [&](const char* name, std::vector<uint64_t> shape) {
        add(fmt::format("blk.{}.{}", i, name), std::move(shape));
      };
      if (i % 4 == 3) {
        for (const char* name : {"attn_k.weight", "attn_output.weight", "attn_q.weight", "attn_v.weight"}) {
          layer(name, {width, width});
        }
      } else {
        layer("attn_gate.weight", {width, width});
        layer("attn_qkv.weight", {width, width});
        layer("ssm_conv1d.weight", {width, 4});
        layer("ssm_out.weight", {width, width});
      }
      layer("attn_norm.weight", {width});
      for (const char* name : {"ffn_down.weight", "ffn_gate.weight", "ffn_up.weight"}) layer(name, {width, width});
    }
    for (size_t i = 0; i < names.size(); ++i) tensors.push_back({names[i], DType::kF32, shapes[i], std::nullopt});
    facts.layers = 24;
    facts.heads = 8;
    facts.kv_heads = 2;
  }
  void add(std::string name, std::vector<uint64_t> shape) {
    names.push_back(std::move(name));
    shapes.push_back(std::move(shape));
  }
  std::map<std::string, std::string> types(std::string_view recipe, bool pure = false) const {
    std::map<std::string, std::string> chosen;
    const auto choices = choose_types(*recipe_by_name(recipe), pure, facts, tensors);
    for (size_t i = 0; i < names.size(); ++i) chosen[names[i]] = to_string(choices[i].dtype);
    return chosen;
  }
  // Layers whose `name` has the type.
  static std::vector<int> layers_with(const std::map<std::string, std::string>& types, std::string_view name,
                                      std::string_view type) {
    std::vector<int> layers;
    for (int i = 0; i < 24; ++i) {
      const auto found = types.find(fmt::format("blk.{}.{}", i, name));
      if (found != types.end() && found->second == type) layers.push_back(i);
    }
    return layers;
  }

  std::vector<std::string> names;
  std::vector<std::vector<uint64_t>> shapes;
  std::vector<RecipeTensor> tensors;
  RecipeFacts facts;
};

TEST(Recipe, Q4KM) {
  const auto types = Hybrid(1024).types("Q4_K_M");
  EXPECT_EQ(types.at("token_embd.weight"), "Q6_K");  // tied: it is the output too
  EXPECT_EQ(types.at("blk.0.attn_norm.weight"), "F32");
  EXPECT_EQ(types.at("blk.0.ssm_conv1d.weight"), "F32");
  EXPECT_EQ(types.at("blk.0.ssm_out.weight"), "Q4_K");
  EXPECT_EQ(types.at("blk.0.attn_gate.weight"), "Q4_K");
  EXPECT_EQ(types.at("blk.3.attn_output.weight"), "Q4_K");
  // The first and last eighth and every third between; attn_qkv and attn_v are counted together.
  const std::vector<int> more = {0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23};
  EXPECT_EQ(Hybrid::layers_with(types, "ffn_down.weight", "Q6_K"), more);
  EXPECT_EQ(Hybrid::layers_with(types, "attn_v.weight", "Q6_K"), (std::vector<int>{11, 23}));
  EXPECT_EQ(Hybrid::layers_with(types, "attn_qkv.weight", "Q6_K"),
            (std::vector<int>{0, 1, 2, 5, 8, 14, 17, 20, 21, 22}));
  EXPECT_EQ(Hybrid::layers_with(types, "ffn_up.weight", "Q4_K").size(), 24u);
}

TEST(Recipe, TheOthersWhereTheyDiffer) {
  const Hybrid model(1024);
  EXPECT_EQ(model.types("Q2_K").at("blk.3.attn_v.weight"), "Q4_K");  // four query heads per key head
  EXPECT_EQ(model.types("Q2_K").at("blk.3.attn_output.weight"), "Q3_K");
  EXPECT_EQ(model.types("Q2_K").at("blk.3.ffn_down.weight"), "Q3_K");
  EXPECT_EQ(model.types("Q2_K").at("blk.3.ffn_up.weight"), "Q2_K");
  EXPECT_EQ(Hybrid::layers_with(model.types("Q3_K_M"), "attn_qkv.weight", "Q5_K"), (std::vector<int>{0, 1}));
  EXPECT_EQ(Hybrid::layers_with(model.types("Q3_K_M"), "attn_v.weight", "Q4_K").size(), 6u);
  EXPECT_EQ(Hybrid::layers_with(model.types("Q3_K_M"), "ffn_down.weight", "Q5_K"), (std::vector<int>{0}));
  EXPECT_EQ(model.types("Q3_K_L").at("blk.3.attn_output.weight"), "Q5_K");
  EXPECT_EQ(Hybrid::layers_with(model.types("Q4_K_S"), "attn_qkv.weight", "Q5_K"), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(Hybrid::layers_with(model.types("Q4_K_S"), "ffn_down.weight", "Q5_K"), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(Hybrid::layers_with(model.types("Q5_K_M"), "ffn_down.weight", "Q6_K").size(), 12u);
  EXPECT_EQ(model.types("Q8_0").at("token_embd.weight"), "Q8_0");
  EXPECT_EQ(model.types("Q4_0").at("token_embd.weight"), "Q6_K");
  EXPECT_EQ(model.types("BF16").at("token_embd.weight"), "BF16");
  EXPECT_EQ(model.types("BF16").at("blk.0.attn_norm.weight"), "F32");
  EXPECT_EQ(model.types("IQ4_XS").at("blk.3.attn_v.weight"), "Q5_K");
  EXPECT_EQ(Hybrid::layers_with(model.types("IQ4_NL"), "ffn_down.weight", "Q5_K"), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(Hybrid(1024, false).types("Q4_K_M").at("token_embd.weight"), "Q4_K");
  EXPECT_EQ(Hybrid(1024, false).types("Q4_K_M").at("output.weight"), "Q6_K");
  for (const auto& [name, type] : model.types("Q4_K_M", true)) {
    EXPECT_EQ(type,
              name.find("norm") == std::string::npos && name.find("conv1d") == std::string::npos ? "Q4_K" : "F32");
  }
}

// Within Q4_K_M's size for every width, nearly all of it used; the delta rule's tensors above, the wide ones below.
TEST(Recipe, MovesBitsToHybridTensors) {
  const auto bytes = [](const Hybrid& model, std::string_view recipe) {
    uint64_t sum = 0;
    const auto types = model.types(recipe);
    for (const RecipeTensor& tensor : model.tensors) {
      uint64_t elements = 1;
      for (const uint64_t length : tensor.shape) elements *= length;
      const Format& format = *format_by_name(types.at(std::string(tensor.name)));
      sum += elements / format.block_elements * format.block_bytes;
    }
    return static_cast<double>(sum);
  };
  for (const uint64_t width : {96, 384, 576, 1024, 2560}) {
    const Hybrid model(width);
    EXPECT_LE(bytes(model, "H4_K_M"), bytes(model, "Q4_K_M")) << width;
    EXPECT_GE(bytes(model, "H4_K_M"), 0.98 * bytes(model, "Q4_K_M")) << width;
  }
  const auto types = Hybrid(1024).types("H4_K_M");
  EXPECT_EQ(Hybrid::layers_with(types, "ssm_out.weight", "Q4_K").size(), 0u);
  EXPECT_EQ(Hybrid::layers_with(types, "attn_output.weight", "Q4_K").size(), 0u);
  EXPECT_EQ(Hybrid::layers_with(types, "attn_v.weight", "Q6_K").size(), 6u);
  EXPECT_EQ(types.at("token_embd.weight"), "Q6_K");
  EXPECT_EQ(types.at("blk.0.attn_norm.weight"), "F32");
  EXPECT_EQ(types.at("blk.0.ssm_conv1d.weight"), "F32");
  Hybrid fixed(1024);
  for (RecipeTensor& tensor : fixed.tensors) {
    if (tensor.name.find("ssm_out") != std::string_view::npos) tensor.fixed = DType::kQ2_K;
  }
  EXPECT_EQ(Hybrid::layers_with(fixed.types("H4_K_M"), "ssm_out.weight", "Q2_K").size(), 18u);
}

TEST(Recipe, RowsOfOtherLengths) {
  // SmolLM2-135M's width: 576 = 2.25 super-blocks.
  const Hybrid model(576);
  const auto of = [&](const char* recipe, const char* name) { return model.types(recipe).at(name); };
  EXPECT_EQ(of("Q4_K_M", "token_embd.weight"), "Q8_0");
  EXPECT_EQ(of("Q4_K_M", "blk.3.ffn_up.weight"), "Q5_0");
  EXPECT_EQ(of("Q4_K_M", "blk.0.ffn_down.weight"), "Q8_0");
  EXPECT_EQ(of("Q5_K_M", "blk.3.ffn_up.weight"), "Q5_1");
  EXPECT_EQ(of("Q2_K", "blk.3.ffn_up.weight"), "Q4_0");
  EXPECT_EQ(of("Q3_K_M", "blk.3.ffn_up.weight"), "Q4_0");
  EXPECT_EQ(of("IQ4_XS", "blk.3.ffn_up.weight"), "IQ4_NL");
  EXPECT_EQ(Hybrid(40).types("Q8_0").at("blk.3.ffn_up.weight"), "F16");
  EXPECT_EQ(Hybrid(40).types("Q4_K_M").at("blk.3.ffn_up.weight"), "F16");
}

TEST(Recipe, ImportanceAndExperts) {
  Hybrid model(1024);
  model.facts.has_importance = true;
  EXPECT_EQ(Hybrid::layers_with(model.types("Q4_0"), "ffn_down.weight", "Q4_1"), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(Hybrid::layers_with(model.types("IQ4_XS"), "ffn_down.weight", "Q5_K").empty());
  model.facts.experts = 8;
  EXPECT_EQ(model.types("Q4_K_M").at("blk.3.attn_k.weight"), "Q8_0");
  EXPECT_EQ(model.types("Q4_K_M").at("blk.3.attn_v.weight"), "Q8_0");
  EXPECT_EQ(model.types("Q4_K_M").at("blk.3.attn_output.weight"), "Q5_K");
  model.facts.experts = 0;
  model.facts.is_70b = true;
  EXPECT_EQ(Hybrid::layers_with(model.types("Q4_K_M"), "attn_v.weight", "Q5_K"), (std::vector<int>{3, 7, 15, 19}));
}

TEST(Recipe, NamesAndOrder) {
  EXPECT_EQ(recipe_by_name("q4_k"), recipe_by_name("Q4_K_M"));
  EXPECT_EQ(recipe_by_name("Q4"), nullptr);
  for (const Recipe& recipe : recipes()) EXPECT_EQ(recipe_by_name(recipe.name), &recipe);
  EXPECT_TRUE(recipe_order("token_embd.weight", "blk.0.a"));
  EXPECT_TRUE(recipe_order("blk.2.z", "blk.10.a"));
  EXPECT_TRUE(recipe_order("blk.2.a", "blk.2.b"));
  EXPECT_FALSE(recipe_order("blk.2.a", "blk.2.a"));
  EXPECT_TRUE(recipe_order("blk.x.a", "blk.0.a"));
}

TEST(Recipe, FactsOfMetadata) {
  const auto facts_of = [](std::vector<std::pair<std::string_view, GgufValue>> entries) {
    GgufMetadata gguf;
    gguf.entries = std::move(entries);
    for (size_t i = 0; i < gguf.entries.size(); ++i) gguf.index[gguf.entries[i].first] = i;
    return recipe_facts(gguf);
  };
  const auto facts = facts_of({{"general.architecture", "llama"},
                               {"llama.block_count", uint64_t{80}},
                               {"llama.attention.head_count", uint64_t{64}},
                               {"llama.attention.head_count_kv", uint64_t{8}}});
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->layers, 80u);
  EXPECT_EQ(facts->kv_heads, 8u);
  EXPECT_TRUE(facts->is_70b);
  auto per_layer = std::make_shared<GgufArray>();
  per_layer->items = std::vector<int64_t>{4, 2};
  const auto mixed = facts_of({{"general.architecture", "qwen35"},
                               {"qwen35.block_count", uint64_t{2}},
                               {"qwen35.attention.head_count", uint64_t{8}},
                               {"qwen35.attention.head_count_kv", per_layer}});
  ASSERT_TRUE(mixed);
  EXPECT_EQ(mixed->kv_heads, 4u);
  EXPECT_FALSE(mixed->is_70b);
  EXPECT_FALSE(facts_of({{"general.architecture", "llama"}}));
  EXPECT_FALSE(facts_of({{"llama.block_count", uint64_t{2}}}));
  EXPECT_FALSE(facts_of({{"general.architecture", "a"}, {"a.block_count", "two"}}));
}

}  // namespace
}  // namespace baton

// Model folders that are well-formed files with wrong contents: each is refused with the file, the field and what it
// must be. Containers with damaged bytes are in bad_input_test.cc.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>

#include "baton/api/text_model.h"
#include "baton/model/container.h"
#include "baton/model/gguf_writer.h"
#include "baton/model/model.h"
#include "tests/support/golden.h"
#include "tests/support/safetensors_writer.h"

namespace baton::test {
namespace {

// A private copy of a golden folder whose config.json was changed.
class Folder {
 public:
  explicit Folder(const std::string& golden) {
    path_ = std::filesystem::temp_directory_path() / fmt::format("baton_bad_model_{}_{}", ::getpid(), counter_++);
    std::filesystem::create_directories(path_);
    for (const auto& entry : std::filesystem::directory_iterator(data_folder() / "golden" / golden)) {
      if (entry.path().filename() == "golden.safetensors") continue;
      std::filesystem::create_symlink(entry.path(), path_ / entry.path().filename());
    }
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  void change_config(const std::function<void(Json&)>& change) {
    std::ifstream in(path_ / "config.json");
    Json config = Json::parse(in);
    change(config);
    write("config.json", config.dump());
  }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::remove(path_ / name);
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  static inline int counter_ = 0;
  std::filesystem::path path_;
};

struct Case {
  const char* name;
  const char* golden;
  std::function<void(Json&)> change;
  const char* fragment;  // of the message
};

TEST(BadModel, EachWrongConfigurationIsNamed) {
  const auto set = [](const char* field, const Json& value) { return [=](Json& config) { config[field] = value; }; };
  const auto drop = [](const char* field) { return [=](Json& config) { config.erase(field); }; };
  const auto usual_kv = [](Json& config) {
    config["num_attention_heads"] = 6;
    config.erase("num_key_value_heads");
  };
  const std::vector<Case> cases = {
      {"no model type", "tiny-llama", drop("model_type"), "model_type of config.json is missing"},
      {"unknown model type", "tiny-llama", set("model_type", "mamba9"),
       "architecture 'mamba9' is not supported; there are:"},
      {"model type not text", "tiny-llama", set("model_type", 7), "is not supported"},
      {"Granite 4", "tiny-llama", set("model_type", "granitemoehybrid"), "it needs op mamba2, which no unit has"},
      {"Falcon-H1", "tiny-llama", set("model_type", "falcon_h1"), "it needs op mamba2, which no unit has"},
      {"hidden missing", "tiny-llama", drop("hidden_size"), "'hidden_size' is missing"},
      {"hidden zero", "tiny-llama", set("hidden_size", 0), "'hidden_size' is 0"},
      {"hidden negative", "tiny-llama", set("hidden_size", -96), "'hidden_size' is -96"},
      {"hidden text", "tiny-llama", set("hidden_size", "96"), "'hidden_size' is \"96\""},
      {"hidden real", "tiny-llama", set("hidden_size", 96.5), "'hidden_size' is 96.5"},
      {"hidden other than the file's", "tiny-llama", set("hidden_size", 128), "has shape ["},
      {"layers huge", "tiny-llama", set("num_hidden_layers", 1000000000), "'num_hidden_layers' is 1000000000"},
      {"layers past 64 bits", "tiny-llama", set("num_hidden_layers", 18446744073709551615ull), "'num_hidden_layers'"},
      {"one layer too many", "tiny-llama", set("num_hidden_layers", 4),
       "'model.layers.3.input_layernorm.weight' is missing"},
      {"heads zero", "tiny-llama", set("num_attention_heads", 0), "'num_attention_heads' is 0"},
      {"kv heads do not divide", "tiny-llama", set("num_key_value_heads", 4),
       "6 attention heads are not a multiple of 4"},
      {"head dim odd", "tiny-llama", set("head_dim", 7), "7 rotated dims"},
      {"vocabulary too small", "tiny-llama", set("vocab_size", 100), "has shape ["},
      {"vocabulary zero", "tiny-llama", set("vocab_size", 0), "'vocab_size' is 0"},
      {"intermediate wrong", "tiny-llama", set("intermediate_size", 161), "gate_proj.weight' has shape ["},
      {"eps zero", "tiny-llama", set("rms_norm_eps", 0), "'rms_norm_eps' is 0"},
      {"eps text", "tiny-llama", set("rms_norm_eps", "tiny"), "'rms_norm_eps' is \"tiny\""},
      {"biases said, not there", "tiny-llama", set("attention_bias", true), "q_proj.bias' is missing"},
      {"network biases said, not there", "tiny-llama", set("mlp_bias", true), "gate_proj.bias' is missing"},
      {"another activation", "tiny-llama", set("hidden_act", "gelu"), "hidden_act 'gelu' is not supported"},
      {"another activation", "tiny-qwen3.5", set("hidden_act", "gelu_pytorch_tanh"), "hidden_act 'gelu_pytorch_tanh'"},
      {"window", "tiny-llama", set("sliding_window", 64), "a sliding window of 64 tokens"},
      {"window of some layers", "tiny-llama", set("layer_types", {"full_attention", "sliding_attention", "x"}),
       "layer_types of llama must be a list of full_attention; entry 1 is not"},
      {"experts", "tiny-llama", set("num_local_experts", 8), "field 'num_local_experts' is 8"},
      {"scaled logits", "tiny-llama", set("logit_scale", 0.5), "field 'logit_scale' is 0.5"},
      {"soft caps", "tiny-llama", set("attn_logit_softcapping", 50.0), "'attn_logit_softcapping'"},
      {"residual factor", "tiny-qwen3.5", set("residual_multiplier", 0.2), "'residual_multiplier'"},
      {"norms of queries", "tiny-llama", set("use_qk_norm", true), "'use_qk_norm'"},
      {"not causal", "tiny-llama", set("is_causal", false), "field 'is_causal' is false"},
      {"not causal", "tiny-qwen3.5", set("is_causal", false), "field 'is_causal' is false"},
      {"no positions", "tiny-llama", set("use_rope", false), "field 'use_rope' is false"},
      {"norms of queries left out", "tiny-qwen3.5", set("use_qk_norm", false), "field 'use_qk_norm' is false"},
      {"off, and who knows what it is", "tiny-llama", set("use_pre_norm", false), "field 'use_pre_norm' is false"},
      {"scaled output", "tiny-llama", set("output_multiplier", 3.0), "field 'output_multiplier' is 3.0"},
      {"scaled output", "tiny-qwen3.5", set("output_scale", 3.0), "field 'output_scale' is 3.0"},
      {"private", "tiny-llama", set("_sliding_window_pattern", 6), "field '_sliding_window_pattern' is 6"},
      {"version of a part", "tiny-llama", set("attention_version", 2), "field 'attention_version' is 2"},
      {"window of no length", "families/gemma3", set("sliding_window", nullptr), "field 'sliding_window' must say"},
      {"a switch of nothing", "families/gemma3", set("use_sliding_window", false), "use_sliding_window is false"},
      {"a pattern that nobody reads", "families/gemma3",
       [](Json& config) {
         config.erase("layer_types");
         config["_sliding_window_pattern"] = 2;
       },
       "field '_sliding_window_pattern' is 2"},
      {"positions of no kind", "families/gemma3", set("rope_parameters", {{"rope_theta", 5e3}}),
       "rope_parameters must have full_attention and sliding_attention"},
      {"positions of no kind", "families/olmo3", set("rope_parameters", {{"rope_theta", 5e3}}),
       "rope_parameters must have full_attention and sliding_attention"},
      {"windows in some layers", "families/qwen3_moe",
       [](Json& config) {
         config.update({{"use_sliding_window", true}, {"sliding_window", 9}});
         config["layer_types"] = Json::array_t(config["num_hidden_layers"].get<size_t>(), "full_attention");
       },
       "layer_types has layers with a window and others"},
      {"windows in some layers", "families/ministral3",
       [](Json& config) {
         config["sliding_window"] = 9;
         config["layer_types"] = Json::array_t(config["num_hidden_layers"].get<size_t>(), "sliding_attention");
         config["layer_types"][0] = "full_attention";
       },
       "layer_types has layers with a window and others"},
      {"positions not said", "families/ministral3", drop("rope_parameters"), "field 'rope_parameters' is missing"},
      {"partly rotated", "families/ministral3",
       [](Json& config) { config["rope_parameters"]["partial_rotary_factor"] = 0.6; }, "partial_rotary_factor is not"},
      {"weights of experts as they are", "families/qwen3_5_moe", set("norm_topk_prob", false),
       "field 'norm_topk_prob' is false"},
      {"positions not said", "families/qwen3_5_moe", drop("rope_parameters"), "field 'rope_parameters' is missing"},
      {"cap that nobody takes", "families/gemma3", set("attn_logit_softcapping", 2.0),
       "'attn_logit_softcapping' is 2.0"},
      {"heads by default", "families/mistral", drop("num_key_value_heads"), "are not a multiple of 8"},
      {"heads by default", "families/smollm3", usual_kv, "6 attention heads are not a multiple of 4 kv heads"},
      {"heads by default", "families/qwen3_moe", usual_kv, "6 attention heads are not a multiple of 4 kv heads"},
      {"heads by default", "families/qwen2", usual_kv, "are not a multiple of 32"},
      {"heads by default", "families/qwen3", usual_kv, "are not a multiple of 32"},
      {"heads by default", "families/lfm2", usual_kv, "are not a multiple of 8"},
      {"heads by default", "families/ministral3", usual_kv, "are not a multiple of 8"},
      {"scaling a list", "tiny-llama", set("rope_scaling", Json::array({1})), "field 'rope_scaling' is of type array"},
      {"scaling a text", "tiny-llama", set("rope_scaling", "yarn"), "field 'rope_scaling' is of type string"},
      {"too few layer types", "families/ministral", set("layer_types", Json::array_t(1, "full_attention")),
       "one entry for each of 3 layers"},
      {"a third kind of layer", "families/ministral", set("layer_types", Json::array_t(3, "chunked_attention")),
       "layer_types[0] is \"chunked_attention\""},
      {"another gelu", "families/gemma2", set("hidden_activation", "relu"), "hidden_activation 'relu'"},
      {"positions of a third kind", "families/gemma3",
       [](Json& config) {
         config["rope_parameters"]["chunked_attention"] = {{"rope_theta", 1e4}};
       },
       "rope_parameters has 'chunked_attention'"},
      {"another activation", "families/gpt2", set("activation_function", "relu"), "activation_function 'relu'"},
      {"scores by layer", "families/gpt2", set("scale_attn_by_inverse_layer_idx", true),
       "field 'scale_attn_by_inverse_layer_idx' is true"},
      {"no experts", "families/qwen3_5_moe", set("num_experts", 0), "'num_experts' is 0"},
      {"experts not said", "families/qwen3_5_moe", drop("num_experts"), "'num_experts' is missing"},
      {"too many for a token", "families/qwen3_5_moe", set("num_experts_per_tok", 7), "7 experts for a token, of 6"},
      {"experts other than the file's", "families/qwen3_5_moe", set("num_experts", 8), "has shape [6"},
      {"an expert too many", "families/qwen3_moe", set("num_local_experts", 8), "mlp.gate.weight' has shape [7, 32]"},
      {"an expert too few", "families/qwen3_moe", set("num_local_experts", 6), "has shape ["},
      {"experts' width", "families/qwen3_5_moe", set("moe_intermediate_size", 13),
       "gate_up_proj' has shape [6, 24, 32]"},
      {"shared expert's width", "families/qwen3_5_moe", set("shared_expert_intermediate_size", 12), "has shape ["},
      {"layers without experts", "families/qwen3_moe", set("mlp_only_layers", Json::array_t(1, 1)),
       "'mlp_only_layers': layers without experts"},
      {"every second layer", "families/qwen3_moe", set("decoder_sparse_step", 2), "field 'decoder_sparse_step'"},
      {"layers without experts", "families/qwen3_next", set("mlp_only_layers", Json::array_t(1, 1)),
       "'mlp_only_layers': layers without experts"},
      {"every second layer", "families/qwen3_next", set("decoder_sparse_step", 2), "field 'decoder_sparse_step'"},
      {"value heads other than the file's", "families/qwen3_next", set("linear_num_value_heads", 4),
       "in_proj_qkvz.weight' has shape [128, 13], the configuration needs [96, 13]"},
      {"key heads do not divide", "families/qwen3_next", set("linear_num_key_heads", 4),
       "6 linear value heads are not a multiple of 4 key heads"},
      {"one tap", "families/qwen3_next", set("linear_conv_kernel_dim", 1), "'linear_conv_kernel_dim' is 1"},
      {"a third kind of layer", "families/qwen3_next", set("layer_types", Json::array_t(3, "chunked_attention")),
       "layer_types[0] is \"chunked_attention\""},
      {"scaled experts", "families/qwen3_moe", set("routed_scaling_factor", 2.5), "'routed_scaling_factor' is 2.5"},
      {"another router", "families/qwen3_moe", set("scoring_func", "sigmoid"), "'scoring_func'"},
      {"a chunk of no tokens", "families/llama4", set("attention_chunk_size", 0), "'attention_chunk_size' is 0"},
      {"a chunk of no length", "families/llama4", set("attention_chunk_size", nullptr),
       "field 'attention_chunk_size' must say of how many tokens"},
      {"another kind of layer", "families/llama4", set("layer_types", Json::array_t(4, "sliding_attention")),
       "layer_types[0] is \"sliding_attention\""},
      {"too few layer types", "families/llama4", set("layer_types", Json::array_t(3, "full_attention")),
       "one entry for each of 4 layers"},
      {"a layer that is not there", "families/llama4", set("moe_layers", {1, 9}), "moe_layers has 9"},
      {"experts elsewhere", "families/llama4", set("moe_layers", {0, 1}), "layers.0.feed_forward.router.weight' is"},
      {"no experts", "families/llama4", set("num_local_experts", 0), "field 'num_local_experts' is 0"},
      {"none for a token", "families/llama4", set("num_experts_per_tok", 0), "field 'num_experts_per_tok' is 0"},
      {"too many for a token", "families/llama4", set("num_experts_per_tok", 4), "4 experts for a token, of 3"},
      {"experts' width", "families/llama4", set("intermediate_size", 11),
       "gate_up_proj' has shape [3, 16, 20], the configuration needs [3, 16, 22]"},
      {"networks' width", "families/llama4", set("intermediate_size_mlp", 19), "feed_forward.gate_proj.weight' has sh"},
      {"layers without positions", "families/llama4", set("no_rope_layers", {1, 1}), "no_rope_layers must be a list"},
      {"neither with nor without", "families/llama4", set("no_rope_layers", {1, 1, 2, 0}), "no_rope_layers[2] is 2"},
      {"a factor of no tokens", "families/llama4", set("floor_scale", 0), "'floor_scale' is 0"},
      {"tuned by a word", "families/llama4", set("attn_temperature_tuning", "yes"),
       "field 'attn_temperature_tuning' is of type string"},
      {"another activation", "families/llama4", set("hidden_act", "gelu"), "hidden_act 'gelu'"},
      {"partly rotated", "families/llama4", set("partial_rotary_factor", 0.5), "partial_rotary_factor is not"},
      {"heads do not divide", "families/gpt2", set("n_head", 5), "n_embd 32 is no multiple of n_head 5"},
      {"layers without positions", "families/smollm3", set("no_rope_layers", {1, 2}), "no_rope_layers must be a list"},
      {"neither with nor without", "families/smollm3", set("no_rope_layers", {1, 1, 2, 1, 1}),
       "no_rope_layers[2] is 2"},
      {"no logits", "families/granite", set("logits_scaling", 0), "'logits_scaling' is 0"},
      {"attention in some layers", "families/phi3", set("full_attn_mod", 2), "field 'full_attn_mod' is 2"},
      {"norms of queries left out", "families/olmo2", set("use_qk_norm", false), "field 'use_qk_norm' is false"},
      {"a window of no length", "families/olmo3", drop("sliding_window"), "field 'sliding_window' is missing"},
      {"biases of convolutions", "families/lfm2", set("conv_bias", true), "field 'conv_bias' is true"},
      {"one tap", "families/lfm2", set("conv_L_cache", 1), "'conv_L_cache' is 1"},
      {"another kind of layer", "families/lfm2", set("layer_types", {"conv", "mamba", "conv"}),
       "layer_types[1] is \"mamba\""},
      {"too few layers", "families/lfm2", set("layer_types", Json::array({"conv"})), "one entry for each of 3 layers"},
      {"attention nowhere", "families/lfm2",
       [](Json& config) {
         config.erase("layer_types");
         config["full_attn_idxs"] = {1, 3};
       },
       "full_attn_idxs has 3; there are layers 0 to 2"},
      {"another width", "families/lfm2", set("conv_dim", 48), "field 'conv_dim' is 48; it must be 24"},
      {"two eps", "families/lfm2", set("block_norm_eps", 1e-6), "block_norm_eps 1e-06 is not norm_eps 1e-05"},
      {"layers swapped", "families/lfm2", set("layer_types", {"full_attention", "conv", "conv"}),
       "layers.0.self_attn.q_proj.weight' is missing"},
      {"width not adjusted", "families/lfm2", set("block_auto_adjust_ff_dim", false), "w1.weight' has shape ["},
      {"factor of queries", "families/ministral3",
       [](Json& config) { config["rope_parameters"]["llama_4_scaling_beta"] = -1; }, "'llama_4_scaling_beta' is -1"},
      {"biases not told of", "families/qwen2", set("attention_bias", false), "q_proj.bias'"},
      {"another gate", "tiny-qwen3.5", set("output_gate_type", "sigmoid"), "output_gate_type 'sigmoid'"},
      {"attention without gates", "tiny-qwen3.5", set("attn_output_gate", false), "attn_output_gate is false"},
      {"partly rotated", "tiny-llama", set("partial_rotary_factor", 0.5), "partial_rotary_factor 0.5"},
      {"partly rotated, inside", "tiny-llama",
       [](Json& config) { config["rope_parameters"]["partial_rotary_factor"] = 0.5; }, "partial_rotary_factor 0.5"},
      {"rope outside", "tiny-qwen3.5-multimodal", set("rope_scaling", {{"rope_type", "yarn"}}), "outside text_config"},
      {"tied not boolean", "tiny-llama", set("tie_word_embeddings", 3), "'tie_word_embeddings' is 3"},
      {"untied without head", "tiny-llama", set("tie_word_embeddings", false), "'lm_head.weight' is missing"},
      {"rope kind unknown", "tiny-llama", set("rope_parameters", {{"rope_type", "spiral"}}), "rope scaling 'spiral'"},
      {"rope not an object", "tiny-llama", set("rope_scaling", {{"rope_type", "llama3"}}), "'factor' is missing"},
      {"eos outside", "tiny-llama", set("eos_token_id", 256), "stop token 256 is outside the vocabulary of 256"},
      {"eos negative", "tiny-llama", set("eos_token_id", -5), "'eos_token_id' is -5"},
      {"eos text", "tiny-llama", set("eos_token_id", "end"), "'eos_token_id' is \"end\""},
      {"layer types of another count", "tiny-llama", set("layer_types", Json::array({"full_attention"})),
       "layer_types has 1 entries for num_hidden_layers 3"},
      {"layer types no list", "tiny-qwen3.5", set("layer_types", "full_attention"), "layer_types must be a list"},
      {"layer types short", "tiny-qwen3.5", set("layer_types", Json::array({"full_attention"})),
       "1 layer types for 5 layers"},
      {"layer type unknown", "tiny-qwen3.5", set("layer_types", Json::array({"conv", "x", "x", "x", "x"})),
       "layer_types[0] is \"conv\""},
      {"value heads do not divide", "tiny-qwen3.5", set("linear_num_value_heads", 5),
       "5 linear value heads are not a multiple of 2"},
      {"key dim wrong", "tiny-qwen3.5", set("linear_key_head_dim", 64), "in_proj_qkv.weight' has shape ["},
      {"taps one", "tiny-qwen3.5", set("linear_conv_kernel_dim", 1), "'linear_conv_kernel_dim' is 1"},
      {"taps other", "tiny-qwen3.5", set("linear_conv_kernel_dim", 5), "conv1d.weight' has shape ["},
      {"rotary past the head", "tiny-qwen3.5",
       [](Json& config) { config["rope_parameters"]["partial_rotary_factor"] = 1.5; },
       "'partial_rotary_factor' is 1.5"},
      {"rope scaled", "tiny-qwen3.5", [](Json& config) { config["rope_parameters"]["rope_type"] = "dynamic"; },
       "rope scaling 'dynamic'"},
      {"linear heads missing", "tiny-qwen3.5", drop("linear_num_key_heads"), "'linear_num_key_heads' is missing"},
      {"types swapped", "tiny-qwen3.5",
       [](Json& config) {
         config["layer_types"] =
             Json::array({"linear_attention", "full_attention", "full_attention", "full_attention", "full_attention"});
       },
       "'model.layers.0.linear_attn.in_proj_qkv.weight' is missing"},
      {"text config empty", "tiny-qwen3.5-multimodal", [](Json& config) { config["text_config"] = Json::object(); },
       "is missing"},
  };
  for (const Case& item : cases) {
    Folder folder(item.golden);
    folder.change_config(item.change);
    const auto model = load_model(folder.path());
    ASSERT_FALSE(model) << item.name;
    EXPECT_NE(model.error().message.find(item.fragment), std::string::npos)
        << item.name << ": " << model.error().message;
    EXPECT_NE(model.error().message.find(folder.path().string()), std::string::npos)
        << item.name << ": " << model.error().message;
    EXPECT_TRUE(model.error().code == Code::kInvalidInput || model.error().code == Code::kUnsupported) << item.name;
  }
}

// A vision tower, an encoder with a decoder, ...: what it is, and the names that files of this kind may have.
TEST(BadModel, FilesOfOtherKindsSayWhatTheyAre) {
  const std::pair<const char*, const char*> kinds[] = {{"clip", "it is a vision tower (mmproj file)"},
                                                       {"mmproj", "it is a vision tower"},
                                                       {"t5", "it is an encoder with a decoder"},
                                                       {"t5encoder", "it is the encoder of a T5"},
                                                       {"bart", "it is an encoder with a decoder"},
                                                       {"whisper", "it is a model of speech"},
                                                       {"deepseek2", "latent attention"},
                                                       {"gpt-oss", "attention sinks"},
                                                       {"rwkv7", "a recurrent model of another kind"},
                                                       {"granitehybrid", "it needs op mamba2"},
                                                       {"mamba", "it needs op mamba,"},
                                                       {"unheard-of", "is not supported; there are: "}};
  Folder folder("tiny-llama");
  for (const auto& kind : kinds) {
    const char *const name = kind.first, *const what = kind.second;
    const auto file = folder.path() / "model.gguf";
    GgufWriter writer;
    writer.put_string("general.architecture", name);
    writer.add_tensor("token_embd.weight", DType::kF32, {1, 4},
                      []() -> Result<std::vector<std::byte>> { return std::vector<std::byte>(16); });
    ASSERT_TRUE(writer.write(file));
    folder.change_config([&](Json& config) { config["model_type"] = name; });
    for (const bool gguf : {true, false}) {
      const auto model = load_model(gguf ? file : folder.path());
      ASSERT_FALSE(model) << name;
      const std::string& message = model.error().message;
      EXPECT_EQ(model.error().code, Code::kUnsupported) << message;
      EXPECT_NE(message.find(fmt::format("architecture '{}' is not supported", name)), std::string::npos) << message;
      EXPECT_NE(message.find(what), std::string::npos) << message;
      // Names as files of this kind have them.
      EXPECT_EQ(message.find("qwen35,") != std::string::npos, gguf) << message;
      EXPECT_EQ(message.find("qwen3_5,") != std::string::npos, !gguf) << message;
    }
  }
  GgufWriter nameless;
  ASSERT_TRUE(nameless.write(folder.path() / "none.gguf"));
  const auto none = load_model(folder.path() / "none.gguf");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("general.architecture is missing"), std::string::npos) << none.error().message;
}

TEST(BadModel, TokenizerOfAnotherModelIsRefused) {
  Folder folder("tiny-llama");
  std::ifstream in(data_folder() / "golden" / "dictionary-3m" / "tokenizer.json", std::ios::binary);
  folder.write("tokenizer.json", std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>()));
  const auto text = load_text_model(folder.path());
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("8192 ids, the embedding only 256 rows"), std::string::npos)
      << text.error().message;
}

TEST(BadModel, BrokenTokenizerIsAnErrorNotAModelWithoutText) {
  Folder folder("tiny-llama");
  folder.write("tokenizer.json", "{\"model\": ");
  const auto text = load_text_model(folder.path());
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("tokenizer.json"), std::string::npos) << text.error().message;
}

TEST(BadModel, BrokenTemplateLeavesTheModelUsableWithANote) {
  Folder folder("dictionary-3m");
  folder.write("chat_template.jinja", "{% for m in messages %}{{ m.content }");
  const auto text = load_text_model(folder.path());
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_FALSE(text->chat_template);
  EXPECT_NE(text->chat_template_note.find("template"), std::string::npos);
}

// Where a field is absent the model has what transformers gives it; null is another thing.
TEST(BadModel, AbsentFieldsAreTransformersDefaults) {
  const auto spec_of = [](const char* golden, const std::function<void(Json&)>& change) {
    Folder folder(golden);
    folder.change_config(change);
    const auto model = load_model(folder.path());
    EXPECT_TRUE(model) << (model ? "" : model.error().message);
    return model ? (*model)->spec : ModelSpec();
  };
  const auto capless = [](Json& config) {
    config.erase("attn_logit_softcapping");
    config.erase("final_logit_softcapping");
  };
  const auto null_caps = [](Json& config) {
    config["attn_logit_softcapping"] = config["final_logit_softcapping"] = nullptr;
  };
  EXPECT_EQ(spec_of("families/gemma2", capless).blocks.score_cap, 50);
  EXPECT_EQ(spec_of("families/gemma2", capless).blocks.logit_cap, 30);
  EXPECT_EQ(spec_of("families/gemma2", null_caps).blocks.score_cap, 0);
  EXPECT_EQ(spec_of("families/gemma2", null_caps).blocks.logit_cap, 0);
  for (const char* family : {"families/olmo2", "families/phi3"})
    EXPECT_EQ(spec_of(family, [](Json& config) { config.erase("rms_norm_eps"); }).rms_eps, 1e-5f) << family;
  const auto longer = [](Json& config) {
    config["max_position_embeddings"] = 8192;
    config.erase("sliding_window");
  };
  EXPECT_EQ(spec_of("families/mistral", longer).blocks.window(0), 4096);
  EXPECT_EQ(spec_of("families/gemma3", longer).blocks.window(0), 4096);
  const auto short_ones = [](Json& config) {
    config.erase("sliding_window");
    config.erase("layer_types");
  };
  EXPECT_EQ(spec_of("families/gemma3", short_ones).blocks.position(0), Positions::kNearRope);
  const auto windowed = [](Json& config) {
    config.update({{"use_sliding_window", true}, {"sliding_window", 9}});
    config.erase("layer_types");
  };
  for (const char* family : {"families/qwen3_moe", "families/ministral3"}) {
    const ModelSpec all = spec_of(family, windowed);
    for (int32_t layer = 0; layer < all.layers; ++layer) EXPECT_EQ(all.blocks.window(layer), 9) << family;
  }
  const auto far_only = [](Json& config) {
    config["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 7e3}}}};
  };
  EXPECT_EQ(spec_of("families/olmo3", far_only).blocks.near_theta, 5e5f);
  EXPECT_EQ(spec_of("families/mistral", [](Json& config) { config["sliding_window"] = nullptr; }).blocks.window(0), 0);
}

// Fields that published files have and that mean nothing for the answers.
TEST(BadModel, FieldsOfPublishedFilesAreNoErrors) {
  const Json smollm2 = {
      {"_name_or_path", "x"},      {"is_llama_config", true},
      {"rope_interleaved", false}, {"rope_scaling", nullptr},
      {"is_decoder", false},       {"use_qk_norm", false},
      {"is_causal", true},         {"output_attentions", true},
      {"use_rope", true},          {"partial_rotary_factor", 1.0},
      {"torch_dtype", "bfloat16"}, {"transformers.js_config", {{"kv_cache_dtype", {{"fp16", "float16"}}}}}};
  const Json fine_tune = {{"unsloth_version", "2024.9"},
                          {"unsloth_fixed", true},
                          {"sliding_window", nullptr},
                          {"quantization_config", {{"bits", 4}}},
                          {"auto_map", {{"a", "b"}}},
                          {"attention_dropout", 0.1},
                          {"layer_types", Json::array_t(3, "full_attention")},
                          {"sliding_window", 4096},
                          {"use_sliding_window", false},
                          {"max_window_layers", 28}};
  const Json qwen = {
      {"attn_output_gate", true},         {"full_attention_interval", 4}, {"mamba_ssm_dtype", "float32"},
      {"mlp_only_layers", Json::array()}, {"mtp_num_hidden_layers", 1},   {"mtp_use_dedicated_embeddings", false},
      {"output_gate_type", "swish"},      {"use_qk_norm", true},          {"use_sliding_window", false}};
  const std::pair<const char*, Json> cases[] = {
      {"tiny-llama", smollm2}, {"tiny-llama", fine_tune}, {"tiny-qwen3.5", qwen}};
  for (const auto& [golden, fields] : cases) {
    Folder folder(golden);
    folder.change_config([&, &added = fields](Json& config) { config.update(added); });
    const auto model = load_model(folder.path());
    EXPECT_TRUE(model) << model.error().message;
  }
}

// A multimodal folder may say outside its text_config alone that the head is the embedding.
TEST(BadModel, TiedHeadSaidOutsideTheTextConfig) {
  Folder folder("tiny-qwen3.5-multimodal");
  folder.change_config([](Json& config) {
    config["text_config"].erase("tie_word_embeddings");
    config["tie_word_embeddings"] = true;
  });
  const auto model = load_model(folder.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE((*model)->spec.tied_head);
  EXPECT_EQ((*model)->container->find("lm_head.weight"), nullptr);
}

// A tensor that belongs to the model and that nothing reads is named; towers and tables are not.
TEST(BadModel, TensorsThatNothingReadsAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"model.layers.1.self_attn.q_norm.weight", "'model.layers.1.self_attn.q_norm.weight' is read by nothing"},
      {"model.layers.0.mlp.experts.0.up_proj.weight", "is read by nothing"},
      {"model.norm.bias", "'model.norm.bias' is read by nothing"},
      {"lm_head.bias", "'lm_head.bias' is read by nothing"},
      {"model.layers.2.self_attn.sinks", "sinks' is read by nothing"},
      {"model.layers.2.self_attn.q_proj.bias", "config.json does not say \"attention_bias\": true"},
      {"model.layers.2.mlp.down_proj.bias", "config.json does not say \"mlp_bias\": true"},
      {"model.layers.0.self_attn.rotary_emb.inv_freq", ""},
      {"model.visual.blocks.0.attn.proj.weight", ""},
      {"mtp.layers.0.mlp.up_proj.weight", ""},
      {"model.vision_tower.encoder.layers.0.norm1.weight", ""},
      // What belongs to a layer is not the vision tower's for its name.
      {"model.layers.0.self_attn.vision_scale", "'model.layers.0.self_attn.vision_scale' is read by nothing"},
      {"model.layers.0.nextn.scale", "'model.layers.0.nextn.scale' is read by nothing"},
      {"model.layers.0.mtp.scale", "'model.layers.0.mtp.scale' is read by nothing"},
  };
  for (const auto& [name, word] : cases) {
    Folder folder("tiny-llama");
    auto tensors = read_float_tensors(data_folder() / "golden" / "tiny-llama");
    tensors.push_back({name, {16}, std::vector<float>(16, 1.0f)});
    std::filesystem::remove(folder.path() / "model.safetensors");
    write_safetensors(folder.path() / "model.safetensors", tensors);
    const auto model = load_model(folder.path());
    EXPECT_EQ(model.has_value(), std::string_view(word).empty()) << name << (model ? "" : model.error().message);
    if (model) continue;
    EXPECT_NE(model.error().message.find(word), std::string::npos) << model.error().message;
    EXPECT_NE(model.error().message.find(folder.path().string()), std::string::npos) << model.error().message;
  }
}

TEST(BadModel, ALoopOfLinksIsNamed) {
  Folder folder("tiny-llama");
  std::filesystem::remove(folder.path() / "config.json");
  std::filesystem::create_symlink("config.json", folder.path() / "config.json");
  const auto model = load_model(folder.path());
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("config.json: Too many levels of symbolic links"), std::string::npos)
      << model.error().message;
}

TEST(BadModel, AFolderWithoutPermissionIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  Folder folder("tiny-llama");
  std::filesystem::permissions(folder.path(), std::filesystem::perms::none);
  const auto model = load_model(folder.path());
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("Permission denied"), std::string::npos) << model.error().message;
}

// A norm weight that is no finite number would make every answer garbage.
class NotFinite : public testing::TestWithParam<float> {};
INSTANTIATE_TEST_SUITE_P(Values, NotFinite, testing::Values(NAN, INFINITY, -INFINITY));

TEST_P(NotFinite, InANormIsRefused) {
  Folder folder("tiny-llama");
  const auto file = data_folder() / "golden" / "tiny-llama" / "model.safetensors";
  std::ifstream in(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  const auto header = Json::parse(bytes.substr(8, header_bytes));
  const size_t at = 8 + header_bytes + header["model.norm.weight"]["data_offsets"][0].get<size_t>() + 8;
  const float value = GetParam();
  std::memcpy(bytes.data() + at, &value, 4);
  folder.write("model.safetensors", bytes);
  const auto model = load_model(folder.path());
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find(fmt::format("'model.norm.weight' holds {} at element 2", value)),
            std::string::npos)
      << model.error().message;
}

}  // namespace
}  // namespace baton::test

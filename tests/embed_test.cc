// Vectors of texts: another implementation's, on each unit that can; pooling, limits, prompts and places from files
// made here around its weights.
#include "baton/api/embed.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "baton/api/units.h"
#include "baton/base/random.h"
#include "baton/base/temporary_folder.h"
#include "tests/support/golden.h"
#include "tests/support/smoke.h"
#include "tests/support/test_names.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

fs::path tiny_bert() { return data_folder() / "golden" / "tiny-bert"; }

// The tiny encoder's weights with other files around them.
class Folder {
 public:
  explicit Folder(const fs::path& from = tiny_bert()) : folder_(*TemporaryFolder::create("baton-embed-test")) {
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
      if (fs::exists(from / name)) fs::copy_file(from / name, path() / name);
    }
  }
  const fs::path& path() const { return folder_.path(); }
  Folder& write(const std::string& name, std::string_view text) {
    fs::create_directories((path() / name).parent_path());
    std::ofstream(path() / name, std::ios::binary) << text;
    return *this;
  }
  // 256 tokens: the special ones, letters, and words of the tests.
  Folder& with_vocab() {
    std::string lines = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (char c = 'a'; c <= 'z'; ++c) lines += fmt::format("{0}\n##{0}\n", c);
    return write("vocab.txt", lines + "hello\nworld\n:\nquery\n");
  }

 private:
  TemporaryFolder folder_;
};

constexpr const char* kModules =
    R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])";
constexpr const char* kNormalizedModules =
    R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";

std::unique_ptr<Embedder> open_on(const std::string& unit, const fs::path& model) {
  EmbedderOptions options;
  options.model = model;
  options.unit = unit;
  options.threads = 2;
  auto embedder = Embedder::open(options);
  EXPECT_TRUE(embedder) << embedder.error().message;
  return std::move(*embedder);
}

std::string error_of_open(const fs::path& model, const std::string& unit = "ref") {
  EmbedderOptions options;
  options.model = model;
  options.unit = unit;
  const auto embedder = Embedder::open(options);
  return embedder ? std::string() : embedder.error().message;
}

Embeddings embed(Embedder& embedder, EmbedRequest request) {
  auto made = embedder.embed(request);
  EXPECT_TRUE(made) << made.error().message;
  return made ? *std::move(made) : Embeddings{};
}
std::vector<float> vector_of(Embedder& embedder, EmbedInput input) {
  EmbedRequest request;
  request.inputs = {std::move(input)};
  return embed(embedder, std::move(request)).vectors.at(0);
}

double length(std::span<const float> vector) {
  double squares = 0;
  for (const float value : vector) squares += double{value} * value;
  return std::sqrt(squares);
}

class EmbedOnUnit : public testing::TestWithParam<std::string> {};

std::vector<std::string> units_of_encoders() { return {"ref", "cpu", "cpu:kernels=exact", "cpu:kernels=scalar"}; }
INSTANTIATE_TEST_SUITE_P(Units, EmbedOnUnit, testing::ValuesIn(units_of_encoders()),
                         [](const auto& item) { return test_name(item.param); });

TEST_P(EmbedOnUnit, EqualsTheReference) {
  GoldenTensors golden = read_golden(tiny_bert() / "golden.safetensors");
  const auto embedder = open_on(GetParam(), tiny_bert());
  EXPECT_TRUE(embedder->encoder());
  EXPECT_LE(max_abs_difference(vector_of(*embedder, golden["ids"].integers), golden["embedding"].reals), 1e-4f);
}

TEST_P(EmbedOnUnit, HiddenStatesEqualTheReference) {
  GoldenTensors golden = read_golden(tiny_bert() / "golden.safetensors");
  const auto& ids = golden["ids"].integers;
  auto model = load_model(tiny_bert(), 0, ModelUse::kVectors);
  ASSERT_TRUE(model) << model.error().message;
  auto unit = create_unit(GetParam());
  ASSERT_TRUE(unit) << unit.error().message;
  auto executor = (*unit)->load(*model, 2);
  ASSERT_TRUE(executor) << executor.error().message;
  auto state = (*executor)->new_state(ids.size());
  ASSERT_TRUE(state);
  std::vector<float> hidden(ids.size() * 96, std::nanf(""));
  ASSERT_TRUE((*executor)->prefill(**state, ids, hidden));
  EXPECT_LE(max_abs_difference(hidden, golden["hidden"].reals), 1e-4f);
  // The rest of a text cannot come later.
  const auto more = (*executor)->prefill(**state, std::vector<int32_t>{1}, {});
  ASSERT_FALSE(more);
  // Nor can it be longer than the table of positions.
  auto large = (*executor)->new_state(200);
  ASSERT_TRUE(large);
  const auto beyond = (*executor)->prefill(**large, std::vector<int32_t>(129, 5), {});
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find("128 positions"), std::string::npos) << beyond.error().message;
}

// A text's vector does not depend on what else is asked for.
TEST_P(EmbedOnUnit, ManyTextsEqualOneByOne) {
  const auto embedder = open_on(GetParam(), tiny_bert());
  EmbedRequest request;
  Random random(4);
  for (int i = 0; i < scaled(150, 40); ++i) {
    std::vector<int32_t> ids(1 + random.below(128));
    for (int32_t& id : ids) id = static_cast<int32_t>(random.below(256));
    request.inputs.emplace_back(std::move(ids));
  }
  const Embeddings all = embed(*embedder, request);
  ASSERT_EQ(all.vectors.size(), request.inputs.size());
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    EXPECT_EQ(all.tokens[i], std::get<1>(request.inputs[i]).size());
    EXPECT_LE(max_abs_difference(all.vectors[i], vector_of(*embedder, request.inputs[i])), 1e-6f) << i;
  }
}

// The last hidden state of a decoder, behind the final norm, as transformers reports it.
TEST_P(EmbedOnUnit, ADecodersLastState) {
  const auto folder = data_folder() / "golden" / "dictionary-3m";
  GoldenTensors golden = read_golden(folder / "golden.safetensors");
  const auto ids = golden["len65.ids"].integers;
  const GoldenTensor& hidden = golden["len65.hidden"];
  const size_t width = static_cast<size_t>(hidden.shape[2]), layers = static_cast<size_t>(hidden.shape[0]);
  EmbedderOptions options;
  options.model = folder;
  options.unit = GetParam();
  options.normalized = false;
  auto embedder = Embedder::open(options);
  ASSERT_TRUE(embedder) << embedder.error().message;
  EXPECT_FALSE((*embedder)->encoder());
  EXPECT_EQ((*embedder)->spec().pooling, Pooling::kLast);
  const auto made = vector_of(**embedder, std::vector<int32_t>(ids.begin(), ids.begin() + 8));
  const std::vector<float> wanted(hidden.reals.begin() + static_cast<std::ptrdiff_t>(((layers - 1) * 8 + 7) * width),
                                  hidden.reals.begin() + static_cast<std::ptrdiff_t>(layers * 8 * width));
  float largest = 0;
  for (const float value : wanted) largest = std::max(largest, std::fabs(value));
  // bf16 weights: cpu may round activations to bf16 too.
  EXPECT_LE(max_abs_difference(made, wanted), GetParam() == "ref" ? 1e-3f * largest : 3e-2f * largest);
}

TEST(Embed, PoolingIsWhatTheFilesSay) {
  GoldenTensors golden = read_golden(tiny_bert() / "golden.safetensors");
  const auto& ids = golden["ids"].integers;
  const auto& hidden = golden["hidden"].reals;
  const auto row = [&](size_t index) {
    return std::vector<float>(hidden.begin() + static_cast<std::ptrdiff_t>(index * 96),
                              hidden.begin() + static_cast<std::ptrdiff_t>(index * 96 + 96));
  };
  std::vector<float> mean(96, 0.0f);
  for (size_t i = 0; i < hidden.size(); ++i) mean[i % 96] += hidden[i] / static_cast<float>(ids.size());
  const std::tuple<const char*, Pooling, std::vector<float>> cases[] = {
      {R"({"word_embedding_dimension": 96, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})",
       Pooling::kFirst, row(0)},
      {R"({"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": false})", Pooling::kMean, mean},
      {R"({"pooling_mode_lasttoken": true})", Pooling::kLast, row(ids.size() - 1)},
      {R"({"embedding_dimension": 96, "pooling_mode": "cls", "include_prompt": true})", Pooling::kFirst, row(0)},
      {R"({"pooling_mode": "lasttoken"})", Pooling::kLast, row(ids.size() - 1)},
      {R"({"pooling_mode": "mean"})", Pooling::kMean, mean}};
  for (const auto& [config, pooling, wanted] : cases) {
    for (const bool normalized : {false, true}) {
      Folder folder;
      folder.write("modules.json", normalized ? kNormalizedModules : kModules).write("1_Pooling/config.json", config);
      std::vector<float> scaled_to = wanted;
      if (normalized) normalize_length(scaled_to);
      for (const char* unit : {"ref", "cpu"}) {
        const auto embedder = open_on(unit, folder.path());
        EXPECT_EQ(embedder->spec().pooling, pooling);
        EXPECT_EQ(embedder->spec().normalized, normalized);
        EXPECT_LE(max_abs_difference(vector_of(*embedder, ids), scaled_to), 1e-4f) << config << " on " << unit;
      }
    }
  }
}

TEST(Embed, DimensionsAreTheFirstMadeOneLong) {
  GoldenTensors golden = read_golden(tiny_bert() / "golden.safetensors");
  const auto embedder = open_on("ref", tiny_bert());
  EmbedRequest request;
  request.inputs.emplace_back(golden["ids"].integers);
  request.dimensions = 10;
  const std::vector<float> made = embed(*embedder, request).vectors[0];
  ASSERT_EQ(made.size(), 10u);
  EXPECT_NEAR(length(made), 1, 1e-6);
  std::vector<float> wanted(golden["embedding"].reals.begin(), golden["embedding"].reals.begin() + 10);
  normalize_length(wanted);
  EXPECT_LE(max_abs_difference(made, wanted), 1e-4f);
  request.dimensions = 97;
  const auto refused = embedder->embed(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "dimensions 97: the model's vectors have 96");
}

TEST(Embed, TextsGoThroughTheTokenizer) {
  Folder folder;
  folder.with_vocab();
  const auto embedder = open_on("ref", folder.path());
  const auto& tokenizer = *embedder->text().tokenizer;
  const std::vector<int32_t> ids = {2, tokenizer.find("hello"), tokenizer.find("world"), 3};
  EmbedRequest request;
  request.inputs = {std::string("Hello  world"), ids};
  const Embeddings made = embed(*embedder, request);
  EXPECT_EQ(made.vectors[0], made.vectors[1]);
  EXPECT_EQ(made.tokens, (std::vector<uint64_t>{4, 4}));
  EXPECT_EQ(made.tokens_all, 8u);
  // Nothing in a text is a control token.
  EXPECT_NE(vector_of(*embedder, "[SEP]"), vector_of(*embedder, std::vector<int32_t>{2, 3, 3}));
}

TEST(Embed, PromptsStandInFront) {
  Folder folder;
  folder.with_vocab().write("config_sentence_transformers.json",
                            R"({"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"})");
  const auto embedder = open_on("ref", folder.path());
  EmbedRequest request;
  request.inputs.emplace_back("hello");
  const auto by_default = embed(*embedder, request).vectors[0];
  request.prompt = "document";
  const auto as_document = embed(*embedder, request).vectors[0];
  request.prompt = "";
  request.no_prompt = true;
  EXPECT_EQ(embed(*embedder, request).vectors[0], as_document);
  request.inputs = {std::string("query: hello")};
  EXPECT_EQ(embed(*embedder, request).vectors[0], by_default);
  EXPECT_NE(by_default, as_document);
  request.no_prompt = false;
  request.prompt = "zz";
  const auto refused = embedder->embed(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the model has no prompt 'zz'; there are: document, query");
}

TEST(Embed, LongTextsAreRefusedOrCut) {
  Folder folder;
  folder.with_vocab().write("sentence_bert_config.json", R"({"max_seq_length": 6, "do_lower_case": false})");
  const auto embedder = open_on("ref", folder.path());
  EXPECT_EQ(embedder->spec().tokens_max, 6u);
  EmbedRequest request;
  request.inputs = {std::string("hello"), std::string("hello hello hello hello hello")};
  const auto refused = embedder->embed(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "input 1: 7 tokens: the model takes 6; shorten it");
  request.truncates = true;
  const Embeddings cut = embed(*embedder, request);
  EXPECT_EQ(cut.tokens, (std::vector<uint64_t>{3, 6}));
  // The end of a text that was cut is still its end.
  EXPECT_EQ(cut.vectors[1], vector_of(*embedder, "hello hello hello hello"));
  // Without such a file: as many as the model has positions.
  const auto whole = open_on("ref", tiny_bert());
  EmbedRequest most;
  most.inputs.emplace_back(std::vector<int32_t>(128, 5));
  EXPECT_TRUE(whole->embed(most));
  most.inputs = {std::vector<int32_t>(129, 5)};
  EXPECT_FALSE(whole->embed(most));
}

// Files of newer versions of the library have only the tokenizer's.
TEST(Embed, TheLongestTextIsElseTheTokenizers) {
  const std::tuple<const char*, const char*, uint64_t> cases[] = {
      {R"({"max_seq_length": 6})", R"({"model_max_length": 9})", 6},
      {R"({"max_seq_length": null})", R"({"model_max_length": 9})", 9},
      {R"({"transformer_task": "feature-extraction"})", R"({"model_max_length": 9})", 9},
      {R"({})", R"({"model_max_length": 1000000000000000019884624838656})", 128},
      {R"({})", R"({"model_max_length": 512})", 128}};
  for (const auto& [limits, tokenizer, wanted] : cases) {
    Folder folder;
    folder.with_vocab().write("sentence_bert_config.json", limits).write("tokenizer_config.json", tokenizer);
    EXPECT_EQ(open_on("ref", folder.path())->spec().tokens_max, wanted) << limits << tokenizer;
  }
  Folder alone;
  alone.with_vocab().write("tokenizer_config.json", R"({"model_max_length": 7})");
  EXPECT_EQ(open_on("ref", alone.path())->spec().tokens_max, 7u);
}

TEST(Embed, LowerCaseIsWhatTheFilesSay) {
  const auto vector = [](const char* limits) {
    Folder folder;
    folder.with_vocab().write("tokenizer_config.json", R"({"do_lower_case": false})");
    folder.write("sentence_bert_config.json", limits);
    const auto embedder = open_on("ref", folder.path());
    return std::pair(vector_of(*embedder, "HELLO World"), vector_of(*embedder, "hello world"));
  };
  const auto [kept, small] = vector(R"({"do_lower_case": false})");
  EXPECT_NE(kept, small);
  const auto [lowered, same] = vector(R"({"do_lower_case": true})");
  EXPECT_EQ(lowered, same);
  EXPECT_EQ(same, small);
}

// Behind the norm, and not made of length 1 again.
TEST(Embed, ValuesThatTheFilesKeep) {
  GoldenTensors golden = read_golden(tiny_bert() / "golden.safetensors");
  Folder folder;
  folder.write("config_sentence_transformers.json", R"({"prompts": {}, "truncate_dim": 8})");
  const auto embedder = open_on("ref", folder.path());
  EXPECT_EQ(embedder->dimensions(), 8u);
  EmbedRequest request;
  request.inputs.emplace_back(golden["ids"].integers);
  const std::vector<float> wanted(golden["embedding"].reals.begin(), golden["embedding"].reals.begin() + 8);
  const auto made = embed(*embedder, request).vectors[0];
  ASSERT_EQ(made.size(), 8u);
  EXPECT_LE(max_abs_difference(made, wanted), 1e-4f);
  request.dimensions = 20;  // what is asked for goes before
  EXPECT_EQ(embed(*embedder, request).vectors[0].size(), 20u);
}

TEST(Embed, ModulesRunInOneOrder) {
  const auto module = [](const std::string& type) {
    return fmt::format(R"({{"type": "sentence_transformers.models.{}", "path": "{}"}})", type,
                       type == "Pooling" ? "1_Pooling" : "");
  };
  const std::vector<std::vector<std::string>> refused = {{},
                                                         {"Transformer"},
                                                         {"Pooling", "Transformer"},
                                                         {"Transformer", "Normalize", "Pooling"},
                                                         {"Transformer", "Normalize"},
                                                         {"Transformer", "Pooling", "Pooling"},
                                                         {"Transformer", "Transformer", "Pooling"}};
  for (const auto& types : refused) {
    std::string list;
    for (const std::string& type : types) list += (list.empty() ? "" : ", ") + module(type);
    Folder folder;
    folder.write("modules.json", "[" + list + "]").write("1_Pooling/config.json", R"({"pooling_mode": "mean"})");
    EXPECT_NE(error_of_open(folder.path()).find("modules.json: the modules are"), std::string::npos)
        << list << error_of_open(folder.path());
  }
}

// Another implementation gives padding no position of its own; here it would take one.
TEST(Embed, PaddingIsRefusedWhereItHasNoPosition) {
  const auto embedder = open_on("ref", data_folder() / "golden" / "encoders" / "xlm-roberta");
  EmbedRequest request;
  request.inputs = {std::vector<int32_t>{0, 5, 1, 7, 2}};
  const auto made = embedder->embed(request);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("input 0: token 1 is the model's padding"), std::string::npos);
  request.inputs = {std::vector<int32_t>{0, 5, 3, 7, 2}};
  EXPECT_TRUE(embedder->embed(request));
}

TEST(Embed, BadInputsAreNamed) {
  const auto embedder = open_on("ref", tiny_bert());
  const auto message = [&](std::vector<EmbedInput> inputs) {
    EmbedRequest request;
    request.inputs = std::move(inputs);
    const auto made = embedder->embed(request);
    return made ? std::string() : made.error().message;
  };
  EXPECT_EQ(message({std::vector<int32_t>{1}, std::vector<int32_t>{}}), "input 1: no tokens");
  EXPECT_EQ(message({std::vector<int32_t>{256}}), "input 0: token 256 is outside the vocabulary of 256");
  EXPECT_EQ(message({std::vector<int32_t>{-1}}), "input 0: token -1 is outside the vocabulary of 256");
  EXPECT_NE(message({std::string("text")}).find("no tokenizer.json"), std::string::npos);
  EXPECT_NE(message(std::vector<EmbedInput>(2049, std::vector<int32_t>{1})).find("2049 inputs"), std::string::npos);
  EXPECT_EQ(message({}), "");
  EmbedRequest request;
  request.inputs.emplace_back(std::vector<int32_t>{1});
  const auto stopped = embedder->embed(request, [] { return true; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

TEST(Embed, BadFilesAreNamed) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"modules.json", "{}", "must be a list"},
      {"modules.json", "[", "modules.json"},
      {"modules.json", R"([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])", "module 'Dense'"},
      {"modules.json", R"([{"type": "x.Pooling", "path": "../x"}])", "leads out of the model's folder"},
      {"modules.json", R"([{"type": "x.Transformer"}, {"type": "x.Pooling", "path": "1_Pooling"}])", "it is not there"},
      {"sentence_bert_config.json", R"({"max_seq_length": 0})", "max_seq_length"},
      {"tokenizer_config.json", R"({"model_max_length": 0})", "model_max_length"},
      {"config_sentence_transformers.json", R"({"truncate_dim": 0})", "truncate_dim"},
      {"config_sentence_transformers.json", R"({"prompts": []})", "prompts must be an object"},
      {"config_sentence_transformers.json", R"({"prompts": {"a": 1}})", "prompt 'a' must be a string"},
      {"config_sentence_transformers.json", R"({"default_prompt_name": "a"})", "is none of the prompts"},
      {"vocab.txt", "a\nb\n", "vocab.txt"},
  };
  for (const auto& [name, text, word] : cases) {
    Folder folder;
    folder.write(name, text);
    EXPECT_NE(error_of_open(folder.path()).find(word), std::string::npos)
        << name << " " << text << ": " << error_of_open(folder.path());
  }
  const std::pair<const char*, const char*> poolings[] = {
      {R"({"pooling_mode_max_tokens": true})", "pooling_mode_mean_tokens"},
      {R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})", "and no other"},
      {R"({"pooling_mode_mean_tokens": true, "pooling_mode_weightedmean_tokens": true})", "and no other"},
      {R"({"pooling_mode_mean_tokens": true, "include_prompt": false})", "include_prompt"},
      {"{}", "must be true"},
      {"[]", "1_Pooling"},
  };
  for (const auto& [text, word] : poolings) {
    Folder folder;
    folder.write("modules.json", kModules).write("1_Pooling/config.json", text);
    EXPECT_NE(error_of_open(folder.path()).find(word), std::string::npos) << text;
  }
}

TEST(Embed, ConfigurationsOfOtherModelsAreRefused) {
  std::ifstream stream(tiny_bert() / "config.json");
  const std::string config{std::istreambuf_iterator<char>(stream), {}};
  const std::tuple<const char*, const char*, const char*> changes[] = {
      {R"("hidden_act": "gelu")", R"("hidden_act": "relu")", "hidden_act 'relu'"},
      {R"("is_decoder": false)", R"("is_decoder": true)", "is_decoder"},
      {R"("use_cache": true)", R"("position_embedding_type": "relative_key")", "position_embedding_type"},
      {R"("num_attention_heads": 6)", R"("num_attention_heads": 7)", "no multiple of"},
      {R"("use_cache": true)", R"("rotary_dim": 12)", "rotary_dim"},
      {R"("max_position_embeddings": 128)", R"("max_position_embeddings": 256)", "position_embeddings.weight"},
      {R"("num_hidden_layers": 3)", R"("num_hidden_layers": 2)", "read by nothing"},
      {R"("type_vocab_size": 2)", R"("type_vocab_size": 3)", "token_type_embeddings"},
  };
  for (const auto& [from, to, word] : changes) {
    std::string changed = config;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), std::string(from).size(), to);
    Folder folder;
    folder.write("config.json", changed);
    EXPECT_NE(error_of_open(folder.path()).find(word), std::string::npos) << error_of_open(folder.path());
  }
}

TEST(Embed, AnEncoderWritesNoText) {
  const auto model = load_model(tiny_bert());
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("baton embed"), std::string::npos) << model.error().message;
}

TEST(Embed, PlacesAreAFunctionOfFacts) {
  using Units = std::vector<EmbedUnit>;
  struct Case {
    bool encoder;
    uint64_t bytes;
    Units units;
    std::string unit, why;
  };
  const Case cases[] = {
      {true, 90'000'000, {{"ref", ""}, {"cpu", ""}, {"ane", ""}}, "ane", "ane: a small encoder, 90.0 MB of weights"},
      {true,
       90'000'000,
       {{"cpu", ""}, {"ane", "", true}},
       "cpu",
       "cpu: ane is emulated here, slower and less exact; --unit ane takes it"},
      {true,
       90'000'000,
       {{"ane", "", true}},
       "ane",
       "ane: the first that can: ane is emulated here, slower and less exact; --unit ane takes it"},
      {true, 90'000'000, {{"cpu", ""}}, "cpu", "cpu: no unit ane"},
      {true,
       90'000'000,
       {{"cpu", ""}, {"ane", "ane: this unit has no op gelu"}},
       "cpu",
       "cpu: not on ane: ane: this unit has no op gelu"},
      {true,
       500'000'000,
       {{"cpu", ""}, {"ane", ""}},
       "cpu",
       "cpu: 500.0 MB of weights: ane takes encoders below 500 MB"},
      {false, 1, {{"cpu", ""}, {"ane", ""}}, "cpu", "cpu: a decoder"},
      {true, 1, {{"cpu", "no"}, {"ref", ""}}, "ref", "ref: the first that can: no unit ane"},
  };
  for (const Case& c : cases) {
    const auto place = choose_embed_unit(c.encoder, c.bytes, c.units);
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_EQ(c.units[place->unit].name, c.unit);
    EXPECT_EQ(place->why, c.why);
  }
  const auto none = choose_embed_unit(true, 1, Units{{"cpu", "lost"}, {"ane", "no device"}});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "no unit can run the model: cpu: lost; ane: no device");
  EXPECT_FALSE(choose_embed_unit(true, 1, Units{}));
}

TEST(Embed, RerankIsTheCosine) {
  Folder folder;
  folder.with_vocab().write("config_sentence_transformers.json", R"({"prompts": {"query": "query: "}})");
  const auto embedder = open_on("ref", folder.path());
  const std::vector<std::string> documents = {"world", "query: hello", "zebra crossing"};
  uint64_t tokens = 0;
  const auto scores = embedder->rerank("hello", documents, false, &tokens);
  ASSERT_TRUE(scores) << scores.error().message;
  ASSERT_EQ(scores->size(), 3u);
  EXPECT_NEAR((*scores)[1], 1, 1e-6);
  EXPECT_LT((*scores)[0], 0.9999f);
  EXPECT_NEAR((*scores)[2], cosine(vector_of(*embedder, "query: hello"), vector_of(*embedder, "zebra crossing")), 1e-6);
  EXPECT_GT(tokens, 10u);
}

TEST(Embed, RerankObeysTheRequest) {
  Folder folder;
  folder.with_vocab().write("config_sentence_transformers.json",
                            R"({"prompts": {"query": "query: ", "other": "world "}})");
  const auto embedder = open_on("ref", folder.path());
  const std::vector<std::string> documents = {"zebra crossing"};
  const auto score = [&](const EmbedRequest& asked) { return embedder->rerank("hello", documents, asked).value()[0]; };
  const auto near = [&](EmbedRequest asked, const char* query, const char* document) {
    asked.inputs = {std::string(query), std::string(document)};
    const auto vectors = embed(*embedder, asked).vectors;
    return cosine(vectors[0], vectors[1]);
  };
  EmbedRequest plain;
  plain.no_prompt = true;
  EXPECT_NEAR(score(plain), near(plain, "hello", "zebra crossing"), 1e-6);
  EXPECT_GT(std::fabs(score(plain) - score(EmbedRequest())), 1e-4f);
  EmbedRequest other;
  other.prompt = "other";
  EXPECT_NEAR(score(other), near(plain, "world hello", "world zebra crossing"), 1e-6);
  EmbedRequest few = plain;
  few.dimensions = 5;
  EXPECT_NEAR(score(few), near(few, "hello", "zebra crossing"), 1e-6);
  EXPECT_GT(std::fabs(score(few) - score(plain)), 1e-4f);
  other.prompt = "zz";
  EXPECT_FALSE(embedder->rerank("hello", documents, other));
}

TEST(Embed, ThreadsTakeTurns) {
  const auto embedder = open_on("cpu", tiny_bert());
  std::vector<EmbedInput> inputs;
  for (int32_t i = 0; i < 20; ++i) inputs.emplace_back(std::vector<int32_t>(static_cast<size_t>(1 + 5 * i), 7 + i));
  EmbedRequest request;
  request.inputs = inputs;
  const Embeddings wanted = embed(*embedder, request);
  std::vector<std::thread> threads;
  std::atomic<int> equal{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        const auto made = embedder->embed(request);
        if (made && made->vectors == wanted.vectors) ++equal;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 20);
}

}  // namespace
}  // namespace baton::test

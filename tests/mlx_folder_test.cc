// Folders in MLX's form, written here byte by byte from models in Hugging Face's form: names and value conventions,
// every number of bits and group, exceptions per module, quantized embeddings and tied heads. The loaded weights are
// compared with what was written, and the units with `ref` on the same numbers in F32.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "baton/api/units.h"
#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/model/container.h"
#include "baton/tools/convert.h"
#include "tests/support/golden.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/smoke.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

enum class Part { kF32, kF16, kBF16 };

struct Choice {
  int bits = 4, group = 64;
  Part part = Part::kBF16;  // of scales and biases
};
using Choose = std::function<std::optional<Choice>(const std::string& module)>;

float rounded(float value, Part part) {
  if (part == Part::kF16) return f16_to_f32(f32_to_f16(value));
  return part == Part::kBF16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

class FileBytes {
 public:
  void add(const std::string& name, const char* dtype, const std::vector<uint64_t>& shape, const std::string& bytes) {
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }
  void add_floats(const std::string& name, const std::vector<uint64_t>& shape, const std::vector<float>& values,
                  Part part) {
    std::string bytes;
    for (const float value : values) {
      const uint16_t half = part == Part::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      part == Part::kF32 ? bytes.append(reinterpret_cast<const char*>(&value), 4)
                         : bytes.append(reinterpret_cast<const char*>(&half), 2);
    }
    add(name, part == Part::kF32 ? "F32" : part == Part::kF16 ? "F16" : "BF16", shape, bytes);
  }
  void write(const fs::path& path) const {
    const std::string text = header_.dump();
    const uint64_t length = text.size();
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << text << data_;
  }

 private:
  nlohmann::ordered_json header_ = nlohmann::ordered_json::object();
  std::string data_;
};

// Writes the three parts of a matrix and puts what they mean in its place.
void add_quantized(FileBytes& file, const std::string& module, FloatTensor& matrix, const Choice& choice) {
  const uint64_t rows = matrix.shape[0], columns = matrix.shape[1];
  const auto group = static_cast<uint64_t>(choice.group);
  const int top = (1 << choice.bits) - 1;
  std::vector<float> scales, biases;
  std::vector<uint32_t> words(rows * columns * static_cast<uint64_t>(choice.bits) / 32);
  for (uint64_t at = 0; at < matrix.values.size(); at += group) {
    float low = matrix.values[at], high = low;
    for (uint64_t i = 0; i < group; ++i) {
      low = std::min(low, matrix.values[at + i]);
      high = std::max(high, matrix.values[at + i]);
    }
    const bool falling = (at / group) % 2 == 1;  // scales of both signs
    const float step = std::max((high - low) / static_cast<float>(top), 1e-6f);
    const float scale = rounded(falling ? -step : step, choice.part), bias = rounded(falling ? high : low, choice.part);
    scales.push_back(scale);
    biases.push_back(bias);
    for (uint64_t i = 0; i < group; ++i) {
      float& value = matrix.values[at + i];
      const int code = std::clamp(static_cast<int>(std::lround((value - bias) / scale)), 0, top);
      value = scale * static_cast<float>(code) + bias;
      for (int bit = 0; bit < choice.bits; ++bit) {
        const uint64_t place = (at + i) * static_cast<uint64_t>(choice.bits) + static_cast<uint64_t>(bit);
        words[place / 32] |= static_cast<uint32_t>(code >> bit & 1) << (place % 32);
      }
    }
  }
  const std::string bytes(reinterpret_cast<const char*>(words.data()), words.size() * 4);
  file.add(module + ".weight", "U32", {rows, columns * static_cast<uint64_t>(choice.bits) / 32}, bytes);
  file.add_floats(module + ".scales", {rows, columns / group}, scales, choice.part);
  file.add_floats(module + ".biases", {rows, columns / group}, biases, choice.part);
}

// [in, out] to [out, in].
void turn(FloatTensor& matrix) {
  const uint64_t rows = matrix.shape[0], columns = matrix.shape[1];
  std::vector<float> turned(matrix.values.size());
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < columns; ++c) turned[c * rows + r] = matrix.values[r * columns + c];
  }
  matrix.values = std::move(turned);
  std::swap(matrix.shape[0], matrix.shape[1]);
}

class MlxFolder : public testing::Test {
 protected:
  MlxFolder() : folder_(fs::temp_directory_path() / fmt::format("baton_mlx_{}", ::getpid())) {
    fs::create_directories(folder_ / "mlx");
    fs::create_directories(folder_ / "plain");
  }
  ~MlxFolder() override {
    std::error_code error;
    fs::remove_all(folder_, error);
  }

  // folder_/mlx in MLX's form, folder_/plain in Hugging Face's form with the dequantized matrices in F32.
  // `general`: what config.json says for all modules; what differs from it goes under the module's name.
  void write(const std::string& source, const Choice& general, const Choose& choose) {
    const fs::path from = data_folder() / "golden" / source;
    std::vector<FloatTensor> tensors = read_float_tensors(from);
    ASSERT_FALSE(tensors.empty());
    std::ifstream config_file(from / "config.json");
    nlohmann::json config = nlohmann::json::parse(config_file);
    const bool qwen = config["model_type"].get<std::string>().starts_with("qwen3_5");
    const bool gpt2 = config["model_type"] == "gpt2";
    constexpr std::string_view kGpt2Prefix = "transformer.";
    std::ofstream(folder_ / "plain" / "config.json") << config.dump();
    FileBytes file;
    nlohmann::json quantization = {{"bits", general.bits}, {"group_size", general.group}, {"mode", "affine"}};
    for (FloatTensor& tensor : tensors) {
      const std::string name = qwen   ? "language_model." + tensor.name
                               : gpt2 ? "model." + tensor.name.substr(kGpt2Prefix.size())
                                      : tensor.name;
      const bool turned = gpt2 && name.find(".c_") != std::string::npos && tensor.shape.size() == 2;
      if (turned) turn(tensor);
      const bool matrix = tensor.shape.size() == 2 && name.ends_with(".weight");
      const std::string module = matrix ? name.substr(0, name.size() - 7) : name;
      std::optional<Choice> choice = matrix ? choose(module) : std::nullopt;
      if (choice && tensor.shape[1] % static_cast<uint64_t>(choice->group) != 0) choice.reset();
      if (choice) {
        add_quantized(file, module, tensor, *choice);
        if (choice->bits != general.bits || choice->group != general.group) {
          quantization[module] = {{"bits", choice->bits}, {"group_size", choice->group}};
        }
        ++quantized_;
        if (turned) turn(tensor);
        continue;
      }
      if (matrix) quantization[module] = false;
      std::vector<float> values = tensor.values;
      std::vector<uint64_t> shape = tensor.shape;
      const bool zero_centred = qwen && name.ends_with("norm.weight") && !name.ends_with("linear_attn.norm.weight");
      if (zero_centred) {
        for (float& value : values) value += 1;
      }
      if (name.ends_with("conv1d.weight") || name.ends_with(".conv.conv.weight")) std::swap(shape[1], shape[2]);
      file.add_floats(name, shape, values, Part::kF32);
      if (turned) turn(tensor);
    }
    config["quantization"] = config["quantization_config"] = quantization;
    std::ofstream(folder_ / "mlx" / "config.json") << config.dump();
    file.write(folder_ / "mlx" / "model.safetensors");
    write_safetensors(folder_ / "plain" / "model.safetensors", tensors);
  }

  std::shared_ptr<const Model> load(const char* which) {
    auto model = load_model(folder_ / which);
    EXPECT_TRUE(model) << model.error().message;
    return model ? *model : nullptr;
  }

  static std::vector<float> decoded(const Weight& weight) {
    std::vector<float> values(static_cast<size_t>(weight.rows * weight.columns));
    format_of(weight.dtype).decode(weight.data, values.data(), values.size());
    return values;
  }

  // Every weight is the same number in both folders; and so are the units' answers, within what they allow themselves.
  void expect_same_model() {
    const auto mlx = load("mlx"), plain = load("plain");
    ASSERT_TRUE(mlx && plain);
    ASSERT_EQ(mlx->weights.size(), plain->weights.size());
    size_t found = 0;
    for (size_t i = 0; i < mlx->weights.size(); ++i) {
      const Weight &a = mlx->weights[i], &b = plain->weights[i];
      ASSERT_EQ(a.name, b.name);
      ASSERT_EQ(a.rows, b.rows);
      ASSERT_EQ(decoded(a), decoded(b)) << a.name << " " << to_string(a.dtype);
      found += to_string(a.dtype).starts_with("MLX") ? 1 : 0;
    }
    EXPECT_GE(found, quantized_);  // parts of a matrix count as many
    EXPECT_EQ(found > 0, quantized_ > 0);
    for (const std::string& note : mlx->notes) EXPECT_EQ(note.find("not used"), std::string::npos) << note;

    std::vector<int32_t> ids = {5, 17, 200, 3, 91, 44, 128, 7, 7, 63};
    for (int32_t& id : ids) id %= plain->program.vocab;
    const std::vector<float> wanted = answer("ref", plain, ids);
    EXPECT_EQ(max_abs_difference(answer("ref", mlx, ids), wanted), 0);
    const auto cpu = create_unit("cpu");
    ASSERT_TRUE(cpu);
    EXPECT_LE(max_abs_difference(answer("cpu", mlx, ids), wanted), (*cpu)->caps().logit_tolerance(DType::kQ8_0));
  }

  static std::vector<float> answer(const char* unit_name, std::shared_ptr<const Model> model,
                                   const std::vector<int32_t>& ids) {
    auto unit = create_unit(unit_name);
    auto executor = (*unit)->load(std::move(model), 1);
    EXPECT_TRUE(executor) << executor.error().message;
    EXPECT_EQ((*executor)->placement().text().find("decoded to F32"), std::string::npos);
    auto state = (*executor)->new_state(ids.size());
    return last_logits(**executor, ids, 4, **state);
  }

  fs::path folder_;
  size_t quantized_ = 0;
};

TEST_F(MlxFolder, EveryNumberOfBitsAndGroup) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      SCOPED_TRACE(testing::Message() << bits << " bits, group " << group);
      const Choice choice{bits, group, bits % 3 == 0 ? Part::kF16 : bits % 3 == 1 ? Part::kF32 : Part::kBF16};
      quantized_ = 0;
      write("dictionary-3m", choice, [&](const std::string&) { return choice; });
      expect_same_model();
    }
  }
}

// As mixed recipes make them: other bits for some modules, none for others.
TEST_F(MlxFolder, ExceptionsPerModule) {
  const Choice general{4, 32, Part::kBF16};
  write("dictionary-3m", general, [&](const std::string& module) -> std::optional<Choice> {
    if (module.ends_with("embed_tokens")) return Choice{8, 32, Part::kBF16};
    if (module.ends_with("down_proj")) return Choice{6, 64, Part::kBF16};
    if (module.find("in_proj_") != std::string::npos) return std::nullopt;
    return general;
  });
  expect_same_model();
}

// More value heads than key heads, an output head of its own.
TEST_F(MlxFolder, UntiedHybrid) {
  const Choice general{6, 32, Part::kF16};
  write("tiny-qwen3.5", general, [&](const std::string&) { return general; });
  expect_same_model();
  const auto model = load("mlx");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->spec.head_map, HeadMap::kGrouped);
  EXPECT_EQ(model->weights.back().source, "language_model.lm_head.weight");
}

TEST_F(MlxFolder, Llama) {
  const Choice general{5, 32, Part::kF32};
  write("tiny-llama", general, [&](const std::string&) { return general; });
  expect_same_model();
}

// GPT-2's matrices are turned by the converter, and its positions are quantized; kernels of LFM2 are [C, K, 1].
TEST_F(MlxFolder, DecoderFamilies) {
  const Choice general{4, 32, Part::kBF16};
  for (const char* name : {"gpt2", "gemma3", "gemma2", "qwen3", "phi3", "olmo2", "smollm3", "granite"}) {
    SCOPED_TRACE(name);
    quantized_ = 0;
    write(std::string("families/") + name, general, [&](const std::string&) { return general; });
    EXPECT_GT(quantized_, 5u);
    expect_same_model();
  }
  // None quantized.
  for (const char* name : {"gpt2", "lfm2", "olmo3", "ministral3"}) {
    SCOPED_TRACE(name);
    quantized_ = 0;
    write(std::string("families/") + name, general, [](const std::string&) { return std::nullopt; });
    expect_same_model();
  }
}

// Folders that mlx-lm wrote (scripts/make_mlx_folders.py), and what MLX computes of them.
TEST(RealMlxFolder, GivesTheLogitsOfMlx) {
  for (const char* name : {"gpt2", "lfm2"}) {
    SCOPED_TRACE(name);
    const fs::path folder = data_folder() / "mlx" / name;
    const GoldenTensors golden = read_golden(folder / "golden.safetensors");
    const auto& ids = golden.at("ids").integers;
    const auto& wanted = golden.at("logits").reals;
    const auto model = load_model(folder);
    ASSERT_TRUE(model) << model.error().message;
    for (const char* unit_name : {"ref", "cpu"}) {
      SCOPED_TRACE(unit_name);
      const auto unit = create_unit(unit_name);
      ASSERT_TRUE(unit);
      const auto executor = (*unit)->load(*model, 1);
      ASSERT_TRUE(executor) << executor.error().message;
      auto state = (*executor)->new_state(ids.size());
      std::vector<float> logits(wanted.size());
      ASSERT_TRUE((*executor)->prefill(**state, ids, logits));
      const float allowed =
          std::string_view(unit_name) == "ref" ? 2e-3f : (*unit)->caps().logit_tolerance(main_type(**model));
      EXPECT_LE(max_abs_difference(logits, wanted), allowed);
    }
  }
}

// Bytes changed in the configuration and in the header: refused, or read as another model; never out of bounds.
TEST_F(MlxFolder, DamagedBytesAreHarmless) {
  const Choice general{4, 32, Part::kF16};
  write("tiny-llama", general, [&](const std::string&) { return general; });
  Random random(11);
  size_t refused = 0;
  const fs::path config = folder_ / "mlx" / "config.json", weights = folder_ / "mlx" / "model.safetensors";
  const auto bytes_of = [](const fs::path& path) { return *read_file(path, 1 << 24); };
  const std::string good_config = bytes_of(config), good_weights = bytes_of(weights);
  const size_t header = 8 + load_as<uint64_t>(good_weights.data());
  const size_t from = good_config.find("\"quantization\"");
  const int rounds = scaled(300, 60);
  for (int round = 0; round < rounds; ++round) {
    std::string damaged = round % 2 == 0 ? good_config : good_weights;
    const size_t begin = round % 2 == 0 ? from : 8, end = round % 2 == 0 ? good_config.size() : header;
    for (uint64_t left = 1 + random.below(3); left > 0; --left) {
      damaged[begin + random.below(end - begin)] = static_cast<char>(" 0123456789,:[]{}\"aBF"[random.below(21)]);
    }
    std::ofstream(round % 2 == 0 ? config : weights, std::ios::binary) << damaged;
    const auto model = load_model(folder_ / "mlx");
    if (!model) {
      ++refused;
      EXPECT_FALSE(model.error().message.empty());
    } else {
      for (const Weight& weight : (*model)->weights) decoded(weight);
    }
    std::ofstream(config, std::ios::binary) << good_config;
    std::ofstream(weights, std::ios::binary) << good_weights;
  }
  EXPECT_GT(refused, static_cast<size_t>(rounds) / 2);
}

// GGUF has no such types: a conversion writes others, from the numbers the folder means.
TEST_F(MlxFolder, ConvertsToGguf) {
  const Choice general{4, 32, Part::kBF16};
  write("tiny-llama", general, [&](const std::string&) { return general; });
  const fs::path out = folder_ / "out.gguf";
  ConvertOptions options;
  options.matrix_type = DType::kMLX4_G32;
  const auto refused = convert_to_gguf(folder_ / "mlx", out, options);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("GGUF files cannot hold"), std::string::npos) << refused.error().message;
  EXPECT_FALSE(fs::exists(out));
  options.matrix_type = DType::kF32;
  const auto report = convert_to_gguf(folder_ / "mlx", out, options);
  ASSERT_TRUE(report) << report.error().message;
  const auto gguf = load_model(out), plain = load_model(folder_ / "plain");
  ASSERT_TRUE(gguf && plain);
  const std::vector<int32_t> ids = {5, 17, 200, 3, 91};
  EXPECT_LE(max_abs_difference(answer("ref", *gguf, ids), answer("ref", *plain, ids)), 1e-5f);
}

// A hybrid in every type that converters write: the numbers of the plain folder's conversion, bit by bit.
TEST_F(MlxFolder, ConvertsHybridsInEveryType) {
  const Choice general{6, 32, Part::kF16};
  write("tiny-qwen3.5", general, [&](const std::string&) { return general; });
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    ConvertOptions options;
    options.matrix_type = type;
    const auto mlx = convert_to_gguf(folder_ / "mlx", folder_ / "mlx.gguf", options);
    ASSERT_TRUE(mlx) << mlx.error().message;
    ASSERT_TRUE(convert_to_gguf(folder_ / "plain", folder_ / "plain.gguf", options));
    const auto a = open_container(folder_ / "mlx.gguf"), b = open_container(folder_ / "plain.gguf");
    ASSERT_TRUE(a && b);
    ASSERT_EQ(a->tensors.size(), b->tensors.size());
    size_t matrices = 0;
    for (size_t i = 0; i < a->tensors.size(); ++i) {
      EXPECT_EQ(a->tensors[i].name, b->tensors[i].name);
      EXPECT_EQ(a->tensors[i].dtype, b->tensors[i].dtype);
      EXPECT_TRUE(std::ranges::equal(a->tensors[i].data, b->tensors[i].data)) << a->tensors[i].name;
      matrices += a->tensors[i].dtype == type && a->tensors[i].shape.size() == 2;
    }
    EXPECT_GT(matrices, 20u) << to_string(type);
  }
}

}  // namespace
}  // namespace baton::test

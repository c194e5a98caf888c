// MLX-quantized matrices: what MLX itself wrote decodes to MLX's own floats, our encoder writes MLX's bytes, and
// damaged or unsupported folders are refused by file, tensor and field.
#include "baton/model/mlx_weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>

#include "baton/base/bytes.h"
#include "baton/model/container.h"

namespace baton {
namespace {

using Owned = std::vector<std::unique_ptr<std::byte[]>>;

struct ParsedFile {
  std::string bytes;
  Container container;
};

void parse(ParsedFile& file, const std::string& config) {
  const auto status = parse_safetensors(as_bytes(file.bytes), "model.safetensors", file.container);
  ASSERT_TRUE(status) << status.error().message;
  file.container.path = "folder";
  file.container.config = Json::parse(config);
}

std::vector<float> floats_of(const TensorView* view) {
  EXPECT_NE(view, nullptr);
  std::vector<float> values(view->elements());
  format_of(view->dtype).decode(view->data.data(), values.data(), values.size());
  return values;
}

class RealMlx : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::ifstream in(BATON_SOURCE_DIR "/tests/data/quant/mlx.safetensors", std::ios::binary);
    file_.bytes.assign(std::istreambuf_iterator<char>(in), {});
    ASSERT_FALSE(file_.bytes.empty());
    const std::string name = GetParam();
    const size_t line = name.find('_');
    parse(file_, fmt::format(R"({{"quantization": {{"bits": {}, "group_size": {}, "mode": "affine"}}}})",
                             name.substr(1, line - 1), name.substr(line + 1, name.find('_', line + 1) - line - 1)));
  }
  ParsedFile file_;
};

TEST_P(RealMlx, DecodesToItsFloatsAndIsEncodedAlike) {
  const std::string name = GetParam();
  Owned owned;
  const auto weight = join_mlx_weight(file_.container, name + ".weight", "w", 2, 256, owned);
  ASSERT_TRUE(weight) << weight.error().message;
  EXPECT_EQ(weight->rows, 2);
  EXPECT_EQ(weight->source, name + ".weight");
  EXPECT_EQ(weight->bytes, 2 * *row_bytes(weight->dtype, 256));
  const Format& format = format_of(weight->dtype);
  std::vector<float> values(512);
  format.decode(weight->data, values.data(), values.size());
  EXPECT_EQ(values, floats_of(file_.container.find(name + ".values")));
  if (name.ends_with("16")) return;  // scales rounded to 16 bits
  std::vector<std::byte> ours(weight->bytes);
  format.encode(floats_of(file_.container.find("x")).data(), ours.data(), 512);
  EXPECT_EQ(std::memcmp(ours.data(), weight->data, ours.size()), 0);
}

std::vector<std::string> fixture_names() {
  std::vector<std::string> names = {"m4_64_bf16", "m6_32_f16"};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) names.push_back(fmt::format("m{}_{}", bits, group));
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, RealMlx, testing::ValuesIn(fixture_names()), [](const auto& test) { return test.param; });

// ---- Damaged folders ----

struct Part {
  std::string name, dtype, shape;
  size_t bytes;
};

// A matrix "a.weight" of 4 x 64 in 4 bits, groups of 32, as it should be.
std::vector<Part> good_parts() {
  return {{"a.weight", "U32", "[4,8]", 128}, {"a.scales", "F16", "[4,2]", 16}, {"a.biases", "F16", "[4,2]", 16}};
}
constexpr const char* kGoodConfig = R"({"quantization": {"bits": 4, "group_size": 32}})";

std::string file_of(const std::vector<Part>& parts) {
  std::string header = "{";
  size_t at = 0;
  for (const Part& part : parts) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", at == 0 ? "" : ",", part.name,
                          part.dtype, part.shape, at, at + part.bytes);
    at += part.bytes;
  }
  header += "}";
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  return bytes + header + std::string(at, '\x11');
}

struct Damage {
  const char* name;
  std::function<void(std::vector<Part>&, std::string&)> apply;
  Code code;
  const char* fragment;
};

TEST(MlxWeights, GoodPartsAreJoined) {
  for (
      const char* config :
      {kGoodConfig, R"({"quantization": {"bits": 8, "group_size": 64, "a": {"bits": 4, "group_size": 32}}})",
       R"({"quantization": {"bits": 4, "group_size": 64, "mode": "mxfp4", "a": {"group_size": 32, "mode": "affine"}}})",
       R"({"quantization": {"bits": 4, "group_size": 32, "a": true}})",
       R"({"quantization_config": {"bits": 4, "group_size": 32}})"}) {
    ParsedFile file{file_of(good_parts()), {}};
    parse(file, config);
    Owned owned;
    EXPECT_TRUE(is_mlx_quantized(file.container, "a.weight"));
    EXPECT_FALSE(is_mlx_quantized(file.container, "b.weight"));
    const auto weight = join_mlx_weight(file.container, "a.weight", "ours", 4, 64, owned);
    ASSERT_TRUE(weight) << config << ": " << weight.error().message;
    EXPECT_EQ(weight->dtype, DType::kMLX4_G32);
    EXPECT_EQ(weight->name, "ours");
    EXPECT_EQ(owned.size(), 1u);
    std::vector<float> values(256);
    format_of(weight->dtype).decode(weight->data, values.data(), values.size());
    const float f16 = floats_of(file.container.find("a.scales"))[0];  // bytes 0x1111
    for (const float value : values) EXPECT_EQ(value, f16 + f16);
  }
}

TEST(MlxWeights, DamagedPartsAreRefusedByName) {
  const std::vector<Damage> all = {
      {"no biases", [](auto& parts, auto&) { parts.pop_back(); }, Code::kInvalidInput,
       "folder: tensor 'a.biases' is missing beside 'a.weight'"},
      {"no scales", [](auto& parts, auto&) { parts.erase(parts.begin() + 1); }, Code::kInvalidInput,
       "folder: tensor 'a.scales' is missing beside 'a.weight'"},
      {"no codes", [](auto& parts, auto&) { parts.erase(parts.begin()); }, Code::kInvalidInput,
       "folder: tensor 'a.weight' is missing"},
      {"float codes",
       [](auto& parts, auto&) {
         parts[0] = {"a.weight", "BF16", "[4,64]", 512};
       },
       Code::kInvalidInput, "tensor 'a.weight' is BF16, but tensor 'a.scales' says"},
      {"short rows",
       [](auto& parts, auto&) {
         parts[0] = {"a.weight", "U32", "[4,7]", 112};
       },
       Code::kInvalidInput,
       "tensor 'a.weight' has shape [4, 7], MLX4_G32 of rows of 64, by config.json's 'quantization', needs [4, 8]"},
      {"fewer rows",
       [](auto& parts, auto&) {
         parts[0] = {"a.weight", "U32", "[3,8]", 96};
       },
       Code::kInvalidInput, "tensor 'a.weight' has shape [3, 8]"},
      {"flat",
       [](auto& parts, auto&) {
         parts[0] = {"a.weight", "U32", "[32]", 128};
       },
       Code::kInvalidInput, "tensor 'a.weight' has shape [32]"},
      {"scales of another group",
       [](auto& parts, auto&) {
         parts[1] = {"a.scales", "F16", "[4,1]", 8};
       },
       Code::kInvalidInput, "tensor 'a.scales' has shape [4, 1], config.json's 'quantization' needs [4, 2]"},
      {"scales of bytes",
       [](auto& parts, auto&) {
         parts[1] = {"a.scales", "U8", "[4,2]", 8};
       },
       Code::kInvalidInput, "tensor 'a.scales' is of type U8, affine quantization has F16, BF16 or F32"},
      {"scales of words",
       [](auto& parts, auto&) {
         parts[1] = {"a.scales", "U32", "[4,2]", 32};
       },
       Code::kInvalidInput, "tensor 'a.scales' is of type U32"},
      {"biases too wide",
       [](auto& parts, auto&) {
         parts[2] = {"a.biases", "F16", "[4,3]", 24};
       },
       Code::kInvalidInput, "tensor 'a.biases' has shape [4, 3]"},
      {"no configuration", [](auto&, auto& config) { config = "{}"; }, Code::kInvalidInput,
       "folder/config.json: 'quantization' is missing, but tensor 'a.scales'"},
      {"a configuration of text", [](auto&, auto& config) { config = R"({"quantization": "4bit"})"; },
       Code::kInvalidInput, "'quantization' is not an object"},
      {"other bits", [](auto&, auto& config) { config = R"({"quantization": {"bits": 8, "group_size": 32}})"; },
       Code::kInvalidInput, "tensor 'a.weight' has shape [4, 8], MLX8_G32"},
      {"seven bits", [](auto&, auto& config) { config = R"({"quantization": {"bits": 7, "group_size": 32}})"; },
       Code::kUnsupported, "7 bits in groups of 32 are not supported (of 'a')"},
      {"no bits", [](auto&, auto& config) { config = R"({"quantization": {"bits": 0}})"; }, Code::kInvalidInput,
       "config.json: quantization"},
      {"bits as text", [](auto&, auto& config) { config = R"({"quantization": {"bits": "4"}})"; }, Code::kInvalidInput,
       "config.json: quantization"},
      {"a group beyond the row",
       [](auto&, auto& config) { config = R"({"quantization": {"bits": 4, "group_size": 128}})"; }, Code::kInvalidInput,
       "'a.weight' has rows of 64, not a multiple of the group of 128"},
      {"mxfp4",
       [](auto&, auto& config) { config = R"({"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}})"; },
       Code::kUnsupported, "folder/config.json: mode 'mxfp4' is not supported (of 'a'): convert the model again"},
      {"nvfp4 for one module",
       [](auto&, auto& config) { config = R"({"quantization": {"bits": 4, "a": {"mode": "nvfp4"}}})"; },
       Code::kUnsupported, "mode 'nvfp4' is not supported"},
      {"switched off", [](auto&, auto& config) { config = R"({"quantization": {"bits": 4, "a": false}})"; },
       Code::kInvalidInput, "quantization.a must be an object or true, as there is a tensor 'a.scales'"},
  };
  for (const Damage& damage : all) {
    SCOPED_TRACE(damage.name);
    std::vector<Part> parts = good_parts();
    std::string config = kGoodConfig;
    damage.apply(parts, config);
    ParsedFile file{file_of(parts), {}};
    parse(file, config);
    EXPECT_TRUE(is_mlx_quantized(file.container, "a.weight"));
    Owned owned;
    const auto weight = join_mlx_weight(file.container, "a.weight", "ours", 4, 64, owned);
    ASSERT_FALSE(weight);
    EXPECT_EQ(weight.error().code, damage.code) << weight.error().message;
    EXPECT_NE(weight.error().message.find(damage.fragment), std::string::npos) << weight.error().message;
    EXPECT_TRUE(owned.empty());
  }
}

}  // namespace
}  // namespace baton

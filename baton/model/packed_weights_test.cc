// Packed matrices against what their quantizers' own code unpacks them to (scripts/make_packed_fixtures.py), value for
// value; and what is refused.
#include "baton/model/packed_weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "baton/base/bytes.h"
#include "baton/model/container.h"

namespace baton {
namespace {

constexpr int64_t kRows = 16, kColumns = 128;

struct PackedCase {
  const char* name;
  const char* config;  // quantization_config
  const char* format;  // what it becomes
};
constexpr char kGptq[] = R"({"quant_method": "gptq"})", kNothing[] = "{}",
               kBlocks[] = R"({"quant_method": "fp8", "weight_block_size": [12, 32]})";
constexpr PackedCase kCases[] = {
    {"gptq4", kGptq, "MLX4_G64"},
    {"gptq4_whole", R"({"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq"})", "MLX4_G128"},
    {"gptq4_small", kGptq, "F32"},
    {"gptq4_order", kGptq, "F32"},
    {"gptq_v2", R"({"quant_method": "gptq", "checkpoint_format": "gptq_v2"})", "MLX4_G32"},
    {"gptq3", kGptq, "MLX3_G32"},
    {"gptq8", kGptq, "MLX8_G32"},
    {"gptq2", kGptq, "MLX2_G64"},
    {"awq", R"({"quant_method": "awq", "version": "gemm"})", "MLX4_G64"},
    {"ct4", kNothing, "MLX4_G32"},
    {"ct4_zeros", kNothing, "MLX4_G64"},
    {"ct4_order", kNothing, "F32"},
    {"ct3", kNothing, "MLX3_G32"},
    {"ct8", kNothing, "MLX8_G128"},
    {"int8", kNothing, "MLX8_G128"},
    {"f8_blocks", kBlocks, "F8_G32"},
    {"f8_odd", R"({"config_groups": {"group_0": {"weights": {"block_structure": [12, 24]}}}})", "F32"},
    {"f8_rows", kNothing, "F8_G32"},
    {"f8_one", kNothing, "F8_G32"},
    {"nvfp4_model_opt", kNothing, "NVFP4_F32"},
    {"nvfp4_packed", kNothing, "NVFP4_F32"},
};
void PrintTo(const PackedCase& item, std::ostream* out) { *out << item.name; }

Container fixture(const char* config) {
  Container container;
  container.kind = ContainerKind::kSafetensors;
  container.path = std::filesystem::path(BATON_SOURCE_DIR) / "tests" / "data" / "packed.safetensors";
  container.config["quantization_config"] = Json::parse(config);
  auto file = MappedFile::open(container.path);
  EXPECT_TRUE(file) << file.error().message;
  if (!file) return container;
  const auto status = parse_safetensors(file->bytes(), "packed.safetensors", container);
  EXPECT_TRUE(status) << status.error().message;
  container.files.push_back(*std::move(file));
  return container;
}

Result<PackedWeight> join(const Container& container, const std::string& name, int64_t rows, int64_t columns,
                          std::vector<std::unique_ptr<std::byte[]>>& owned) {
  return join_packed_weight(container, name + ".weight", "ours", rows, columns, owned);
}

class Packed : public testing::TestWithParam<PackedCase> {};
INSTANTIATE_TEST_SUITE_P(All, Packed, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(Packed, EqualsItsQuantizersOwnValues) {
  const PackedCase& item = GetParam();
  const Container container = fixture(item.config);
  ASSERT_TRUE(is_packed(container, std::string(item.name) + ".weight"));
  std::vector<std::unique_ptr<std::byte[]>> owned;
  const auto packed = join(container, item.name, kRows, kColumns, owned);
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ(to_string(packed->weight.dtype), item.format);
  std::vector<float> values(kRows * kColumns), wanted(values.size());
  format_of(packed->weight.dtype).decode(packed->weight.data, values.data(), values.size());
  const TensorView* reference = container.find(std::string(item.name) + ".wanted");
  ASSERT_NE(reference, nullptr);
  ASSERT_EQ(reference->elements(), values.size());
  format_of(reference->dtype).decode(reference->data.data(), wanted.data(), wanted.size());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], wanted[i]) << "value " << i;
  // Every tensor of the case is accounted for.
  size_t parts = 0;
  const std::string prefix = std::string(item.name) + ".";
  for (const TensorView& tensor : container.tensors) parts += tensor.name.starts_with(prefix) ? 1 : 0;
  for (const auto& [name, view] : container.raw) parts += name.starts_with(prefix) ? 1 : 0;
  EXPECT_EQ(packed->parts.size(), parts - 1);
}

TEST(PackedWeights, OrdinaryMatricesAreNotPacked) {
  const Container container = fixture(kNothing);
  EXPECT_FALSE(is_packed(container, "gptq4.wanted"));
  EXPECT_FALSE(is_packed(container, "nothing.weight"));
}

void expect_refused(const char* config, const std::string& name, int64_t rows, int64_t columns, const char* words) {
  const Container container = fixture(config);
  std::vector<std::unique_ptr<std::byte[]>> owned;
  const auto packed = join(container, name, rows, columns, owned);
  ASSERT_FALSE(packed) << name;
  EXPECT_NE(packed.error().message.find(words), std::string::npos) << packed.error().message;
}

TEST(PackedWeights, WrongShapesAndMethodsAreRefusedByName) {
  expect_refused(kNothing, "gptq4", kRows, kColumns, "quant_method ''");
  expect_refused(R"({"quant_method": "quip"})", "gptq4", kRows, kColumns, "quant_method 'quip'");
  expect_refused(R"({"quant_method": "awq", "version": "gemv"})", "awq", kRows, kColumns, "layout 'gemv'");
  expect_refused(kGptq, "gptq4", 2 * kRows, kColumns, "gptq4.qweight");
  expect_refused(kGptq, "gptq4", kRows, 100, "words for 100 columns");
  expect_refused(kNothing, "ct4", kRows, 2 * kColumns, "ct4.weight_shape");
  expect_refused(R"({"quant_method": "gptq", "bits": 4})", "gptq4", kRows, 2 * kColumns,
                 "quantization_config.bits is 4");
  expect_refused(kNothing, "int8", kRows + 1, kColumns, "int8.weight_scale");
  expect_refused(kBlocks, "f8_blocks", kRows, 2 * kColumns, "f8_blocks.weight'");
  expect_refused(R"({"weight_block_size": [3, 32]})", "f8_blocks", kRows, kColumns, "f8_blocks.weight_scale_inv");
  expect_refused(kNothing, "nvfp4_packed", kRows, 96, "multiple of 64");
  expect_refused(kNothing, "int8", kRows, 64, "int8.weight'");
}

// The fixture's 'gptq4' and 'awq' have groups of 64.
TEST(PackedWeights, ConfigurationsThatDisagreeAreRefused) {
  expect_refused(R"({"quant_method": "awq", "bits": 3})", "awq", kRows, kColumns, "quantization_config.bits is 3");
  expect_refused(R"({"quant_method": "awq", "zero_point": false})", "awq", kRows, kColumns,
                 "awq.qzeros' is not 0, but quantization_config.zero_point is false");
  expect_refused(R"({"quant_method": "awq", "group_size": 32})", "awq", kRows, kColumns,
                 "awq.scales' is for group_size 64, but quantization_config.group_size is 32");
  expect_refused(R"({"quant_method": "gptq", "group_size": 16})", "gptq4", kRows, kColumns, "group_size is 16");
  const Container whole = fixture(R"({"quant_method": "gptq", "group_size": -1})");
  std::vector<std::unique_ptr<std::byte[]>> owned;
  EXPECT_TRUE(join(whole, "gptq4_whole", kRows, kColumns, owned));
}

TEST(PackedWeights, AWeightBesideItsQweightIsRefused) {
  Container container = fixture(kGptq);
  container.raw["gptq4.weight"] = {"I8", {1}, {}};
  std::vector<std::unique_ptr<std::byte[]>> owned;
  const auto packed = join(container, "gptq4", kRows, kColumns, owned);
  ASSERT_FALSE(packed);
  EXPECT_NE(packed.error().message.find("gptq4.weight' stands beside"), std::string::npos) << packed.error().message;
}

TEST(PackedWeights, ScalesThatAreNoNumbersAreRefused) {
  for (const auto& [name, part] :
       {std::pair("gptq4", "scales"), std::pair("f8_blocks", "weight_scale_inv"), std::pair("ct4", "weight_scale")}) {
    Container container = fixture(name == std::string_view("f8_blocks") ? kBlocks : kGptq);
    TensorView& scales = container.tensors[container.index.at(fmt::format("{}.{}", name, part))];
    std::vector<std::byte> bytes(scales.data.begin(), scales.data.end());
    std::fill_n(bytes.begin(), format_of(scales.dtype).block_bytes, std::byte(0xff));  // a NaN of any width
    scales.data = bytes;
    std::vector<std::unique_ptr<std::byte[]>> owned;
    const auto packed = join(container, name, kRows, kColumns, owned);
    ASSERT_FALSE(packed) << name;
    EXPECT_NE(packed.error().message.find(fmt::format("{}.{}' has ", name, part)), std::string::npos)
        << packed.error().message;
  }
}

// Tensors of a matrix may be missing.
TEST(PackedWeights, MissingPartsAreNamed) {
  for (const auto& [name, part] :
       {std::pair("gptq4", "qzeros"), std::pair("ct4", "weight_scale"), std::pair("f8_blocks", "weight_scale_inv"),
        std::pair("nvfp4_packed", "weight_scale")}) {
    Container container = fixture(kGptq);
    const std::string tensor = fmt::format("{}.{}", name, part);
    container.raw.erase(tensor);
    container.index.erase(tensor);
    std::vector<std::unique_ptr<std::byte[]>> owned;
    const auto packed = join(container, name, kRows, kColumns, owned);
    ASSERT_FALSE(packed) << tensor;
    EXPECT_NE(packed.error().message.find("is missing"), std::string::npos) << packed.error().message;
  }
}

}  // namespace
}  // namespace baton

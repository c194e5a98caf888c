// Packages: the wire format, both directions of the specification, folders that are damaged, programs that break a
// rule.
#include "baton/unit/apple/mlpackage/package.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/unit/apple/mlpackage/interpreter.h"
#include "baton/unit/apple/mlpackage/mil_block.h"
#include "baton/unit/apple/mlpackage/protobuf.h"

namespace baton::apple {
namespace {

namespace fs = std::filesystem;

TEST(Protobuf, FieldsComeBack) {
  ProtoWriter inner, writer;
  inner.number(1, 300);
  writer.integer(1, -1);
  writer.text(502, "abc");
  writer.message(3, inner);
  writer.packed(4, std::array<int64_t, 3>{0, 127, 1 << 20});
  ProtoReader reader(as_bytes(writer.bytes()));
  EXPECT_EQ(static_cast<int64_t>(reader.next()->number), -1);
  const ProtoField text = *reader.next();
  EXPECT_EQ(text.field, 502u);
  EXPECT_EQ(as_text(text.bytes), "abc");
  EXPECT_EQ(ProtoReader(reader.next()->bytes).next()->number, 300u);
  EXPECT_EQ(*unpack_integers(reader.next()->bytes), (std::vector<int64_t>{0, 127, 1 << 20}));
  EXPECT_TRUE(reader.done());
}

TEST(Protobuf, KnownBytes) {  // the encoding page's own examples
  ProtoWriter writer;
  writer.number(1, 150);
  writer.text(2, "testing");
  EXPECT_EQ(writer.bytes(), std::string("\x08\x96\x01\x12\x07testing"));
}

TEST(Protobuf, DamagedBytesAreErrors) {
  for (const std::string_view bytes :
       {std::string_view("\x08"), std::string_view("\x0a\x05pq"), std::string_view("\x0b"),
        std::string_view("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12), std::string_view("\x00\x01", 2),
        std::string_view("\x09\x01\x02", 3)}) {
    ProtoReader reader(as_bytes(bytes));
    const auto field = reader.next();
    ASSERT_FALSE(field) << fmt::format("{} bytes", bytes.size());
    EXPECT_EQ(field.error().code, Code::kCorrupt);
  }
}

// y = silu(W x + c), a few values written into the program, the others in the file.
struct Sample {
  PackageSpec spec;
  std::vector<std::byte> weights;
};
Sample sample() {
  BlobWriter weights;
  MilBlock block(weights, std::string(kWeightFile));
  const auto x = block.input("x", {1, 3, 1, 4});
  const auto w = block.constant("w", {4, 3, 1, 1}, [](size_t i) { return 0.25f * static_cast<float>(i); });
  const auto c = block.constant("c", {1, 4, 1, 1}, [](size_t i) { return static_cast<float>(i) - 1.5f; });
  const auto sum = block.binary("add", "sum", block.conv("product", x, w, 1), c);
  block.output("y", block.unary("silu", "act", sum));
  Sample out;
  out.spec.main = std::move(block).take();
  out.spec.main.opset = kCoreMlOpset;
  out.spec.inputs = {{"x", {MilType::kFp16, {1, 3, 1, 4}, false}, "in"}};
  out.spec.outputs = {{"y", {MilType::kFp16, {1, 4, 1, 4}, false}, "out"}};
  out.spec.metadata = {{"a", "1"}, {"b", ""}};
  out.weights = std::move(weights).finish();
  return out;
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("baton-package-{}", getpid());
    fs::create_directories(folder_);
    package_ = folder_ / "s.mlpackage";
    const Sample made = sample();
    const auto status = write_package(package_, made.spec, made.weights);
    ASSERT_TRUE(status) << status.error().message;
  }
  void TearDown() override { fs::remove_all(folder_); }
  static void put(const fs::path& file, std::string_view bytes) { std::ofstream(file, std::ios::binary) << bytes; }
  std::string error_of_opening() {
    const auto opened = PackageInterpreter::open(package_, 1);
    return opened ? "" : opened.error().message;
  }

  fs::path folder_, package_;
};

TEST_F(Folder, ComesBackEqualAndRuns) {
  const auto opened = open_package(package_);
  ASSERT_TRUE(opened) << opened.error().message;
  const Sample made = sample();
  EXPECT_EQ(encode_spec(opened->spec), encode_spec(made.spec));
  EXPECT_EQ(opened->spec.metadata, made.spec.metadata);
  auto interpreter = PackageInterpreter::open(package_, 1);
  ASSERT_TRUE(interpreter) << interpreter.error().message;
  HalfArrays inputs;
  inputs["x"].assign(12, f32_to_f16(1));
  const auto outputs = (*interpreter)->predict(inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  for (size_t row = 0; row < 4; ++row) {
    const float sum = 0.25f * static_cast<float>(9 * row + 3) + static_cast<float>(row) - 1.5f;
    EXPECT_NEAR(f16_to_f32(outputs->at("y")[row * 4]), sum / (1 + std::exp(-sum)), 4e-3) << row;
  }
  EXPECT_TRUE(fs::exists(package_ / "Data/com.apple.CoreML/weights/weight.bin"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "nothing is left beside the package";
}

TEST_F(Folder, InputsThatDoNotFitAreRefused) {
  auto interpreter = PackageInterpreter::open(package_, 1);
  ASSERT_TRUE(interpreter);
  const auto missing = (*interpreter)->predict({});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("'x' is missing"), std::string::npos) << missing.error().message;
  HalfArrays wrong, infinite;
  wrong["x"].assign(11, 0);
  EXPECT_FALSE((*interpreter)->predict(wrong));
  infinite["x"].assign(12, 0x7c00);
  const auto overflow = (*interpreter)->predict(infinite);
  ASSERT_FALSE(overflow);
  EXPECT_EQ(overflow.error().code, Code::kDevice);
}

TEST_F(Folder, DamageIsFound) {
  const fs::path model = package_ / "Data/com.apple.CoreML/model.mlmodel";
  const fs::path weights = package_ / "Data/com.apple.CoreML/weights/weight.bin";
  const fs::path manifest = package_ / "Manifest.json";
  const auto whole = read_file(model, 1 << 20);
  const auto whole_weights = read_file(weights, 1 << 20), whole_manifest = read_file(manifest, 1 << 20);
  ASSERT_TRUE(whole && whole_weights && whole_manifest);
  EXPECT_EQ(error_of_opening(), "");
  // A specification cut anywhere is refused or still a smaller program: it never crashes.
  size_t refused = 0;
  for (size_t size = 0; size < whole->size(); size += 7) {
    put(model, std::string_view(*whole).substr(0, size));
    refused += error_of_opening().empty() ? 0 : 1;
  }
  EXPECT_GT(refused, whole->size() / 7 - 3);
  for (size_t i = 0; i < whole->size(); i += 3) {
    std::string changed = *whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x41);
    put(model, changed);
    static_cast<void>(error_of_opening());
  }
  put(model, *whole);
  put(weights, std::string_view(*whole_weights).substr(0, 130));
  EXPECT_NE(error_of_opening(), "");
  std::string other_type = *whole_weights;
  other_type[64 + 4] = 2;
  put(weights, other_type);
  EXPECT_NE(error_of_opening().find("blob-type"), std::string::npos) << error_of_opening();
  fs::remove(weights);
  EXPECT_NE(error_of_opening().find("weight.bin"), std::string::npos) << error_of_opening();
  put(weights, *whole_weights);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"1.0.0", "2.0.0"}, {"rootModelIdentifier", "root"}, {"model.mlmodel\"", "m\""}, {"{", "["}}) {
    std::string changed = *whole_manifest;
    for (size_t at = 0; (at = changed.find(from, at)) != std::string::npos; at += to.size())
      changed.replace(at, from.size(), to);
    put(manifest, changed);
    EXPECT_NE(error_of_opening(), "") << from;
  }
  fs::remove(manifest);
  EXPECT_NE(error_of_opening().find("Manifest.json"), std::string::npos) << error_of_opening();
}

TEST(PackageRules, EachBrokenRuleIsNamed) {
  struct Case {
    const char* words;
    void (*spoil)(PackageSpec&);
  };
  const auto last = [](PackageSpec& spec) -> MilStatement& { return spec.main.statements.back(); };
  static const auto statement = last;
  const Case cases[] = {
      {"opset", [](PackageSpec& spec) { spec.main.opset = "CoreML5"; }},
      {"specification version", [](PackageSpec& spec) { spec.specification_version = 6; }},
      {"described", [](PackageSpec& spec) { spec.inputs.clear(); }},
      {"described", [](PackageSpec& spec) { spec.outputs[0].name = "z"; }},
      {"described", [](PackageSpec& spec) { spec.outputs[0].type.dims[1] = 5; }},
      {"not an op", [](PackageSpec& spec) { statement(spec).op = "tile"; }},
      {"not defined", [](PackageSpec& spec) { statement(spec).arguments[0].names[0] = "q"; }},
      {"defined twice", [](PackageSpec& spec) { statement(spec).name = "x"; }},
      {"not a name", [](PackageSpec& spec) { statement(spec).name = "a b"; }},
      {"'name' is missing", [](PackageSpec& spec) { statement(spec).attributes.clear(); }},
      {"made by no operation", [](PackageSpec& spec) { spec.main.outputs[0] = "x"; }},
      {"attribute", [](PackageSpec& spec) { statement(spec).attributes[0].parameter = "label"; }},
      {"a value in",
       [](PackageSpec& spec) {
         for (MilStatement& item : spec.main.statements) {
           for (MilArgument& attribute : item.attributes) attribute.literal.path = "@model_path/w.bin";
         }
       }},
      {"rank", [](PackageSpec& spec) { statement(spec).type.dims = {1, 1, 1, 1, 4, 4}; }},
  };
  EXPECT_TRUE(check_package(sample().spec));
  for (const Case& item : cases) {
    PackageSpec spec = sample().spec;
    item.spoil(spec);
    const Status status = check_package(spec);
    ASSERT_FALSE(status) << item.words;
    EXPECT_NE(status.error().message.find(item.words), std::string::npos) << status.error().message;
  }
}

TEST(PackageRules, AProductOfAValueWithItselfIsRefused) {
  for (const bool itself : {false, true}) {
    BlobWriter weights;
    MilBlock block(weights, std::string(kWeightFile));
    const auto k = block.input("k", {1, 1, 4, 4});
    const auto other = itself ? k : block.unary("relu", "other", k);
    block.output("y", block.matmul("kk", other, k, false, true));
    PackageSpec spec = sample().spec;
    spec.main = std::move(block).take();
    spec.main.opset = kCoreMlOpset;
    spec.inputs = {{"k", {MilType::kFp16, {1, 1, 4, 4}, false}, "in"}};
    spec.outputs = {{"y", {MilType::kFp16, {1, 1, 4, 4}, false}, "out"}};
    const Status status = check_package(spec);
    ASSERT_EQ(status.has_value(), !itself);
    if (itself) {
      EXPECT_NE(status.error().message.find("'k' with itself"), std::string::npos) << status.error().message;
    }
  }
}

}  // namespace
}  // namespace baton::apple

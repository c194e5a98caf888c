// The grammar: what is accepted in both dialects, what is refused and where, and that no text breaks the reader.
#include <gtest/gtest.h>

#include <cmath>

#include "baton/base/file.h"
#include "baton/unit/apple/fixtures_test.h"
#include "baton/unit/apple/kernel.h"
#include "baton/unit/apple/mil.h"
#include "baton/unit/apple/mil_graph.h"
#include "baton/unit/apple/mil_writer.h"

namespace baton::apple {
namespace {

using fixtures::constant;
using fixtures::op;
using fixtures::program;

TEST(Parser, ReadsEveryPart) {
  const std::string mil =
      "program(1.3)[buildInfo = dict<string, string>({{\"a\", \"b\"}, {\"c\", \"\"}})]{\n"
      "func main<ios18>(tensor<fp16, [1, 4, 1, 32]> x, tensor<fp32, [1, 4, 1, 32]> z) {\n"
      "fp16 c = const()[name = string(\"c\"), val = fp16(-0x1.8p-3)];\n"
      "tensor<fp16, [2, 2]> m = const()[val = tensor<fp16, [2, 2]>([[1, 2e1], [.5, -3.25e-1]]), name = "
      "string(\"m\")];\n"
      "tensor<fp16, [4, 4, 1, 1]> w = const()[name = string(\"w\"), val = tensor<fp16, [4, 4, 1, 1]>(BLOBFILE(path = "
      "string(\"@model_path/weights/w.bin\"), offset = uint64(128)))];\n"
      "tensor<fp16, [1, 8, 1, 32]> y = concat(axis = a, values = (x, x))[name = string(\"y\")];\n"
      "} -> (y, x);\n}\n";
  const auto parsed = parse_mil(mil);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->version, "1.3");
  EXPECT_TRUE(parsed->has_build_info);
  EXPECT_EQ(parsed->dialect1_line, 0u);
  EXPECT_EQ(parsed->dialect2_line, 1u);
  const MilFunction& function = parsed->functions.at(0);
  EXPECT_EQ(function.inputs.at(1).type.type, MilType::kFp32);
  EXPECT_EQ(function.outputs, (std::vector<std::string>{"y", "x"}));
  ASSERT_EQ(function.statements.size(), 4u);
  EXPECT_EQ(function.statements[0].attributes[1].literal.numbers, std::vector<double>{-0.1875});
  EXPECT_EQ(function.statements[1].attributes[0].literal.numbers, (std::vector<double>{1, 20, 0.5, -0.325}));
  EXPECT_EQ(function.statements[2].attributes[1].literal.offset, 128u);
  EXPECT_EQ(function.statements[2].attributes[1].literal.path, "@model_path/weights/w.bin");
  EXPECT_EQ(function.statements[3].arguments[1].names.size(), 2u);
  EXPECT_EQ(function.statements[3].line, 6u);
}

// The forms in which public projects and the system's own printer write programs (tests/data/apple/forms): all are
// accepted where nothing strict is asked, and none is taken for the unproven spelling of buildInfo.
TEST(Forms, ThoseOfTheWorldAreAccepted) {
  const auto file_of = [](MilType type, size_t bytes, bool scales) {
    BlobWriter writer;
    writer.add(type, std::vector<std::byte>(bytes, std::byte{0x11}));
    if (scales) writer.add(MilType::kFp16, std::vector<std::byte>(16, std::byte{0x3c}));
    return std::move(writer).finish();
  };
  const auto halves = file_of(MilType::kFp16, 128, false), bytes = file_of(MilType::kInt8, 64, true);
  const WeightFiles files = {{"@model_path/weights/fp16.bin", halves}, {"@model_path/weights/int8.bin", bytes}};
  const struct {
    const char* name;
    size_t functions, ops;  // ops of the first function
    bool strict;
  } forms[] = {{"conv_ios16", 1, 1, true},       {"cast_conv_ios18", 1, 3, false}, {"attention_ios18", 1, 5, true},
               {"int8_bank_ios18", 2, 1, false}, {"printer_ios18", 1, 1, false},   {"inline_ios18", 1, 3, false}};
  for (const auto& form : forms) {
    SCOPED_TRACE(form.name);
    const auto path = std::filesystem::path(BATON_SOURCE_DIR) / "tests/data/apple/forms" / form.name;
    const auto text = read_file(path.string() + ".mil", 1 << 20);
    ASSERT_TRUE(text) << text.error().message;
    const auto parsed = parse_mil(*text);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_TRUE(parsed->has_build_info);
    EXPECT_FALSE(parsed->typed_build_info);
    ASSERT_EQ(parsed->functions.size(), form.functions);
    for (size_t i = 0; i < form.functions; ++i) {
      Diagnostics lenient(Mode::kLenient);
      const auto graph = check_mil(*parsed, files, lenient, i);
      ASSERT_TRUE(graph) << graph.error().message;
      if (i == 0) {
        EXPECT_EQ(graph->ops.size(), form.ops);
      }
    }
    Diagnostics strict(Mode::kStrict);
    const auto graph = check_mil(*parsed, files, strict);
    EXPECT_EQ(graph.has_value(), form.strict) << (graph ? "" : graph.error().message);
  }
}

// What the writer emits is written as conv_ios16 is: the same head, character by character.
TEST(Forms, OurHeadIsTheirs) {
  const auto theirs =
      read_file(std::filesystem::path(BATON_SOURCE_DIR) / "tests/data/apple/forms/conv_ios16.mil", 1 << 20);
  ASSERT_TRUE(theirs);
  MilWriter writer;
  const auto x = writer.input("x", 8, 32);
  const auto ours = *std::move(writer).finish(writer.unary("y", MilUnary::kTanh, x));
  const size_t end = theirs->find("func main");
  EXPECT_EQ(ours.substr(0, ours.find("func main") - 2), theirs->substr(0, end - 4));
}

TEST(Parser, NotesAreReadAndBounded) {
  const auto with = [](const std::string& note) {
    const std::string plain = program(op("tensor<fp16, [1, 8, 1, 32]>", "y", "add(x = x, y = x)"));
    std::string text = plain;
    return parse_mil(text.replace(text.find("(\"y\")]"), 6, "(\"y\"), note = " + note + "]")).has_value();
  };
  EXPECT_TRUE(with("dict<string, fp64>({{\"ane\", 0.0046}})"));
  EXPECT_TRUE(with("list<string, 2>([\"a\", \"b\"])"));
  EXPECT_TRUE(with("tuple<int64, list<tensor<int32, [2]>, ?>>((3, [[1, 2], [3, 4]]))"));
  EXPECT_FALSE(with("dict<string, fp64>({{\"ane\", 0.0046})"));
  EXPECT_FALSE(with("dict<string>"));
  EXPECT_FALSE(with("list<string, 2>(" + std::string(1000, '[') + std::string(1000, ']') + ")"));
}

TEST(Parser, NamesThePlace) {
  const auto parsed = parse_mil("program(1.0)\n{\n  func main<ios16>(tensor<fp12, [1]> x) {} -> (x);\n}\n");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(rule_in(parsed.error()), Rule::kSyntax);
  EXPECT_NE(parsed.error().message.find("line 3 column 27"), std::string::npos) << parsed.error().message;
}

TEST(Parser, RefusesValuesThatDoNotFitTheirType) {
  const auto with = [](std::string_view type, std::string_view value) {
    return parse_mil(program(constant(type, "c", value))).has_value();
  };
  EXPECT_TRUE(with("tensor<int32, [2]>", "[1, -2]"));
  EXPECT_FALSE(with("tensor<int32, [2]>", "[1, 2, 3]"));
  EXPECT_FALSE(with("tensor<int32, []>", "1.5"));
  EXPECT_FALSE(with("tensor<int32, []>", "3000000000"));
  EXPECT_FALSE(with("tensor<uint8, []>", "-1"));
  EXPECT_FALSE(with("tensor<bool, []>", "1"));
  EXPECT_FALSE(with("tensor<fp16, []>", "1e400"));
  EXPECT_FALSE(with("tensor<fp16, []>", "0x"));
  EXPECT_FALSE(with("tensor<fp16, []>", "1.2.3"));
  EXPECT_FALSE(with("tensor<fp16, [0]>", "[]"));
  EXPECT_FALSE(with("tensor<string, []>", "\"open"));
}

TEST(Parser, DepthIsBounded) {
  const std::string open(100000, '['), close(100000, ']');
  const auto parsed = parse_mil(program(constant("tensor<fp16, [1]>", "c", open + "1" + close)));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(rule_in(parsed.error()), Rule::kSyntax);
}

// A constant whose shape overflows has no values to read.
TEST(Checker, ShapesThatOverflow) {
  const std::string huge = "tensor<fp16, [65536, 65536, 65536, 65536]>";
  const auto parsed =
      parse_mil(program(constant(huge, "c", "[1]") + op("tensor<fp16, [1, 8, 1, 32]>", "y", "add(x = x, y = c)")));
  if (!parsed) return;
  Diagnostics diagnostics(Mode::kLenient);
  EXPECT_FALSE(check_mil(*parsed, {}, diagnostics));
}

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  for (const MilDialect dialect : {MilDialect::kIos16, MilDialect::kIos18}) {
    MilWriter writer(dialect);
    const auto x = writer.input("x", 8, 32);
    const auto w = writer.conv_weight("w", 8, 8, "weights/w.bin", 64);
    const auto a = writer.conv("a", x, w), b = writer.unary("b", MilUnary::kSigmoid, a);
    const auto c = writer.binary("c", MilBinary::kMul, a, writer.scalar("s", 0.5f));
    const MilWriter::Value parts[] = {b, c};
    out.push_back(*std::move(writer).finish(writer.slice_channels("y", writer.concat("d", parts), 4, 8)));
  }
  out.push_back(
      program(constant("tensor<int32, [4]>", "p", "[0, 3, 2, 1]") + constant("tensor<bool, []>", "f", "false") +
              constant("tensor<int32, [1]>", "ax", "[-1]") + constant("tensor<int32, []>", "s", "1") +
              op("tensor<fp16, [1, 32, 1, 8]>", "t", "transpose(perm = p, x = x)") +
              op("tensor<fp16, [1, 32, 1, 32]>", "m", "matmul(x = t, y = x, transpose_x = f, transpose_y = f)") +
              op("tensor<fp16, [1, 32, 1, 32]>", "n", "softmax(axis = s, x = m)") +
              op("tensor<fp16, [1, 32, 1, 1]>", "y", "reduce_max(axes = ax, keep_dims = f, x = n)")));
  return out;
}

// Texts changed at random: refused, or a graph; never a crash, never without an end.
TEST(Parser, ChangedTextsDoNotCrash) {
  constexpr std::string_view kPieces[] = {"(",
                                          ")",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          "<",
                                          ">",
                                          ",",
                                          ";",
                                          "=",
                                          "?",
                                          "tensor<fp16, [1]>",
                                          "-1",
                                          "99999999999",
                                          "x",
                                          "y",
                                          "\"",
                                          "BLOBFILE",
                                          "const()",
                                          "0x1p-3",
                                          "int32",
                                          "65536",
                                          "0"};
  const std::vector<std::string> originals = seeds();
  const std::vector<std::byte> file = [] {
    BlobWriter writer;
    const std::vector<std::byte> data(128);
    writer.add(MilType::kFp16, data);
    return std::move(writer).finish();
  }();
  Random random(5);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text = originals[random.below(originals.size())];
    for (uint64_t n = 1 + random.below(3); n > 0; --n) {
      const size_t at = random.below(text.size()), length = random.below(8);
      switch (random.below(4)) {
        case 0:
          text.erase(at, length);
          break;
        case 1:
          text.insert(at, kPieces[random.below(std::size(kPieces))]);
          break;
        case 2:
          text[at] = static_cast<char>(random.next());
          break;
        default:
          text.insert(at, text.substr(random.below(text.size()), 3 * length));
      }
      if (text.empty()) text = " ";
    }
    const auto parsed = parse_mil(text);
    Diagnostics diagnostics(random.below(2) == 0 ? Mode::kStrict : Mode::kLenient);
    const bool good = parsed && check_mil(*parsed, {{"@model_path/weights/w.bin", file}}, diagnostics);
    ++(good ? accepted : refused);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 10);
}

TEST(Writer, RefusesWrongCalls) {
  const auto finish = [](const auto& calls) {
    MilWriter writer;
    const auto x = writer.input("x", 8, 32);
    const auto y = calls(writer, x);
    const auto text = std::move(writer).finish(y);
    return text ? std::string("accepted") : text.error().message;
  };
  using Value = MilWriter::Value;
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_EQ(finish([](MilWriter& w, Value x) { return w.binary("y", MilBinary::kAdd, x, x); }), "accepted");
  EXPECT_TRUE(has(finish([](MilWriter&, Value x) { return x; }), "not the result"));
  EXPECT_TRUE(has(finish([](MilWriter& w, Value x) { return w.unary("x", MilUnary::kTanh, x); }), "used twice"));
  EXPECT_TRUE(has(finish([](MilWriter& w, Value x) { return w.unary("Y", MilUnary::kTanh, x); }), "not a name"));
  EXPECT_TRUE(
      has(finish([](MilWriter& w, Value x) { return w.slice_channels("y", x, 4, 5); }), "channels 4 to 9 of 8"));
  EXPECT_TRUE(has(finish([](MilWriter& w, Value x) { return w.conv("y", x, w.conv_weight("w", 4, 7, "w.bin", 64)); }),
                  "takes 7"));
  EXPECT_TRUE(has(finish([](MilWriter& w, Value x) { return w.conv("y", x, x); }), "wrong kind"));
  EXPECT_TRUE(has(finish([](MilWriter& w, Value) { return w.unary("y", MilUnary::kTanh, Value{}); }), "wrong kind"));
  EXPECT_TRUE(has(finish([](MilWriter& w, Value) { return w.unary("y", MilUnary::kTanh, w.input("b", 8, 32)); }),
                  "second input"));
  EXPECT_TRUE(has(finish([](MilWriter& w, Value x) { return w.binary("y", MilBinary::kAdd, x, w.scalar("s", 1e9f)); }),
                  "beyond fp16"));
  MilWriter narrow;
  const auto x = narrow.input("x", 8, 16);
  EXPECT_TRUE(has(std::move(narrow).finish(narrow.unary("y", MilUnary::kTanh, x)).error().message, "16 columns"));
}

TEST(Writer, ScalarsAreExact) {
  for (const float value : {0.0f, 1.0f, -0.1f, 65504.0f, 0x1p-24f, 0x1.ffcp-5f}) {
    MilWriter writer;
    const auto x = writer.input("x", 8, 32);
    const auto text = std::move(writer).finish(writer.binary("y", MilBinary::kMul, x, writer.scalar("s", value)));
    ASSERT_TRUE(text);
    const auto parsed = parse_mil(*text);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(static_cast<float>(parsed->functions[0].statements[0].attributes[1].literal.numbers[0]),
              round_to_fp16(value));
  }
}

}  // namespace
}  // namespace baton::apple

// The numerics of the emulated engine against the published measurements, and every operation against plain loops.
#include "baton/unit/apple/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "baton/unit/apple/activation.h"
#include "baton/unit/apple/fixtures_test.h"
#include "baton/unit/apple/mil_blob.h"

namespace baton::apple {
namespace {

using fixtures::constant;
using fixtures::Evaluation;
using fixtures::op;
using fixtures::program;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::string_view kX = "tensor<fp16, [1, 8, 1, 32]>";

bool warned(const EmulatorReport& report, Rule rule) {
  return std::any_of(report.warnings.begin(), report.warnings.end(), [&](const Warning& w) { return w.rule == rule; });
}

struct RunnerTest : testing::Test {
  fixtures::TemporaryFolder folder;
  EmulatorOptions options;

  void SetUp() override { options.temporary_folder = folder.path(); }
  // One input [1, 8, 1, 32] of `values` (repeated), one output of the same shape.
  Evaluation run(const std::string& body, std::vector<float> values) {
    std::vector<float> all(256);
    for (size_t i = 0; i < all.size(); ++i) all[i] = values[i % values.size()];
    return fixtures::evaluate(options, program(body), {{all, 32}}, {{256, 32}});
  }
};

std::vector<float> random_values(size_t count, uint64_t seed, float scale = 1) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = round_to_fp16(random.normal() * scale);
  return values;
}

float flushed(float value) { return std::fabs(value) < kFp16NormalMin ? 0.0f : value; }

// conv 1x1 with the weight inline; x [1, in, 1, 32].
std::string conv_mil(const std::vector<float>& weights, size_t out, size_t in) {
  std::string list = "[";
  for (size_t i = 0; i < weights.size(); ++i) list += fmt::format("{}{:.9g}", i > 0 ? ", " : "", weights[i]);
  list += "]";
  return program(constant("tensor<string, []>", "pt", "\"valid\"") + constant("tensor<int32, [2]>", "st", "[1, 1]") +
                     constant("tensor<int32, [4]>", "pd", "[0, 0, 0, 0]") +
                     constant("tensor<int32, [2]>", "dl", "[1, 1]") + constant("tensor<int32, []>", "gr", "1") +
                     constant(fmt::format("tensor<fp16, [{}, {}, 1, 1]>", out, in), "w", list) +
                     op(fmt::format("tensor<fp16, [1, {}, 1, 32]>", out), "y",
                        "conv(dilations = dl, groups = gr, pad = pd, pad_type = pt, strides = st, weight = w, x = x)"),
                 fmt::format("tensor<fp16, [1, {}, 1, 32]> x", in));
}

Evaluation run_conv(const EmulatorOptions& options, const std::vector<float>& weights, size_t out,
                    const std::vector<float>& x) {
  return fixtures::evaluate(options, conv_mil(weights, out, x.size() / 32), {{x, 32}}, {{out * 32, 32}});
}

// A dot product of `terms` in column 0.
float dot(const EmulatorOptions& options, const std::vector<float>& terms, EmulatorReport* report = nullptr) {
  std::vector<float> x(terms.size() * 32);
  for (size_t i = 0; i < terms.size(); ++i) x[i * 32] = terms[i];
  const Evaluation out = run_conv(options, std::vector<float>(terms.size(), 1.0f), 1, x);
  EXPECT_TRUE(out.status) << fixtures::message(out.status);
  if (report != nullptr) *report = out.report;
  return out.status ? out.outputs[0][0] : 0;
}

TEST_F(RunnerTest, ConvEqualsLoopsInOrder) {
  for (const size_t threads : {1u, 2u}) {
    options.threads = static_cast<uint32_t>(threads);
    const size_t out = 83, in = 70;
    const std::vector<float> w = random_values(out * in, 1, 0.2f), x = random_values(in * 32, 2);
    const Evaluation got = run_conv(options, w, out, x);
    ASSERT_TRUE(got.status) << fixtures::message(got.status);
    for (size_t r = 0; r < out; ++r) {
      for (size_t c = 0; c < 32; ++c) {
        float sum = 0;
        for (size_t i = 0; i < in; ++i) sum += flushed(w[r * in + i]) * flushed(x[i * 32 + c]);
        ASSERT_EQ(got.outputs[0][r * 32 + c], flushed(round_to_fp16(sum))) << r << " " << c;
      }
    }
    EXPECT_EQ(got.report.flops, 2 * out * in * 32);
  }
}

// The bits of a column depend on that column only, also when another one takes the watched path.
TEST_F(RunnerTest, ColumnsAreIndependent) {
  const size_t out = 40, in = 96;
  const std::vector<float> w = random_values(out * in, 3, 0.3f), x = random_values(in * 32, 4);
  const Evaluation all = run_conv(options, w, out, x);
  ASSERT_TRUE(all.status);
  for (const size_t column : {0u, 1u, 5u, 17u, 31u}) {
    for (const float other : {0.0f, 60000.0f}) {
      std::vector<float> alone(in * 32, 0.0f);
      for (size_t i = 0; i < in; ++i) {
        alone[i * 32 + 7] = x[i * 32 + column];  // in another place
        alone[i * 32 + 8] = other;
      }
      const Evaluation one = run_conv(options, w, out, alone);
      ASSERT_TRUE(one.status);
      for (size_t r = 0; r < out; ++r) ASSERT_EQ(one.outputs[0][r * 32 + 7], all.outputs[0][r * 32 + column]);
    }
  }
}

TEST_F(RunnerTest, SumsOf32768AreInfiniteOnM1) {
  EmulatorReport report;
  EXPECT_EQ(dot(options, {32000, 752}, &report), 32752);
  EXPECT_FALSE(warned(report, Rule::kAccumulator));
  EXPECT_EQ(dot(options, {32000, 768}, &report), kInfinity);
  EXPECT_TRUE(warned(report, Rule::kAccumulator));
  EXPECT_EQ(dot(options, {30000, 10000, -20000}), kInfinity);  // an interior partial sum
  EXPECT_EQ(dot(options, {-30000, -10000, 20000}), -kInfinity);
  EXPECT_EQ(dot(options, {60000}), 60000);  // one term: no adder
  options.numerics.profile = Profile::kModern;
  EXPECT_EQ(dot(options, {30000, 10000, -20000}, &report), 20000);
  EXPECT_TRUE(warned(report, Rule::kAccumulator));
}

TEST_F(RunnerTest, GroupedAddersGiveThePublishedSum) {
  std::vector<float> terms(1025, 1.0f);
  terms[0] = 4096;
  EXPECT_EQ(dot(options, terms), 5120);
  options.numerics.grouped_adders = true;
  EXPECT_EQ(dot(options, terms), 5116);
}

TEST_F(RunnerTest, SubnormalsAreFlushedInSumsOfM1Only) {
  const float small = 0x1p-20f;
  EXPECT_EQ(dot(options, {small, small}), 0);
  options.numerics.profile = Profile::kModern;
  EXPECT_EQ(dot(options, {small, small}), 2 * small);
  options.numerics.profile = Profile::kM1;
  EXPECT_EQ(run(op(kX, "y", "add(x = x, y = x)"), {small}).outputs[0][0], 2 * small);
}

TEST_F(RunnerTest, NoNanComesOut) {
  const float nan = std::nanf("");
  Evaluation out = run(op(kX, "y", "sub(x = x, y = x)"), {kInfinity, nan, 1});
  EXPECT_EQ(out.outputs[0][0], 0);
  EXPECT_EQ(out.outputs[0][1], 0);
  EXPECT_TRUE(warned(out.report, Rule::kUndefined));
  EXPECT_TRUE(warned(out.report, Rule::kNotANumber));
  out = run(constant("tensor<fp16, []>", "z", "0") + op(kX, "y", "mul(x = x, y = z)"), {kInfinity, nan});
  EXPECT_EQ(out.outputs[0][0], 0);
  out = run(op(kX, "y", "sqrt(x = x)"), {-1, 4});
  EXPECT_EQ(out.outputs[0][0], 0);
  EXPECT_EQ(out.outputs[0][1], 2);
  out = run(op(kX, "y", "log(x = x)"), {-1, 0, 1});
  EXPECT_EQ(out.outputs[0][0], 0);
  EXPECT_EQ(out.outputs[0][1], round_to_fp16(-45440));
  out = run(op(kX, "y", "rsqrt(x = x)"), {-1, 0, 4});
  EXPECT_EQ(out.outputs[0][0], 0);
  EXPECT_EQ(out.outputs[0][1], kInfinity);
  EXPECT_EQ(out.outputs[0][2], 0.5f);
  out = run(op(kX, "y", "sigmoid(x = x)"), {nan});
  EXPECT_EQ(out.outputs[0][0], 1);
  out = run(op(kX, "y", "tanh(x = x)"), {nan});
  EXPECT_EQ(out.outputs[0][0], 1);
  EXPECT_EQ(dot(options, {kInfinity, -kInfinity, 3}), 3);
}

TEST_F(RunnerTest, SlicesOfWHaveAGainOnM1) {
  const std::string body = constant("tensor<int32, [4]>", "b", "[0, 0, 0, 32]") +
                           constant("tensor<int32, [4]>", "s", "[1, 8, 1, 32]") +
                           op(kX, "y", "slice_by_size(begin = b, size = s, x = x)");
  std::vector<float> x(512, 1);
  x[32] = 4094;
  x[33] = 4096;
  const auto run_slice = [&] {
    return fixtures::evaluate(options, program(body, "tensor<fp16, [1, 8, 1, 64]> x"), {{x, 64}}, {{256, 32}});
  };
  Evaluation out = run_slice();
  ASSERT_TRUE(out.status) << fixtures::message(out.status);
  EXPECT_EQ(out.outputs[0][0], 4094);
  EXPECT_EQ(out.outputs[0][1], kInfinity);
  EXPECT_TRUE(warned(out.report, Rule::kSliceGain));
  options.numerics.profile = Profile::kModern;
  out = run_slice();
  EXPECT_EQ(out.outputs[0][1], 4096);
  EXPECT_FALSE(warned(out.report, Rule::kSliceGain));
}

TEST_F(RunnerTest, LargeAndInfiniteResultsAreReported) {
  Evaluation out = run(op(kX, "y", "add(x = x, y = x)"), {4096});
  EXPECT_FALSE(warned(out.report, Rule::kLargeValue));
  EXPECT_EQ(out.report.abs_max, 8192);
  out = run(op(kX, "y", "add(x = x, y = x)"), {4100, 1});
  EXPECT_TRUE(warned(out.report, Rule::kLargeValue));
  EXPECT_FALSE(warned(out.report, Rule::kOverflow));
  out = run(op(kX, "y", "mul(x = x, y = x)"), {300});
  EXPECT_TRUE(warned(out.report, Rule::kOverflow));
  EXPECT_EQ(out.outputs[0][0], kInfinity);
}

TEST(Activation, PerturbedTablesReachTheirBoundsAndNoMore) {
  float sigmoid_worst = 0, tanh_worst = 0, silu_worst = 0;
  for (int i = -1200; i <= 1200; ++i) {
    const float x = static_cast<float>(i) * 0.01f;
    sigmoid_worst = std::max(sigmoid_worst, std::fabs(table_sigmoid(x, true) - table_sigmoid(x, false)));
    tanh_worst = std::max(tanh_worst, std::fabs(table_tanh(x, true) - table_tanh(x, false)));
    silu_worst = std::max(silu_worst, std::fabs(table_silu(x, true) - table_silu(x, false)));
    EXPECT_EQ(table_sigmoid(x, false), 1.0f / (1.0f + std::exp(-x)));
  }
  EXPECT_GT(sigmoid_worst, 0.0032f);
  EXPECT_LE(sigmoid_worst, 0.00341f);
  EXPECT_GT(tanh_worst, 0.0016f);
  EXPECT_LE(tanh_worst, 0.00171f);
  EXPECT_GT(silu_worst, 0.0028f);
  EXPECT_LE(silu_worst, 0.00301f);
}

TEST_F(RunnerTest, PerturbedTablesAreUsed) {
  const Evaluation exact = run(op(kX, "y", "sigmoid(x = x)"), {0.5f, -3.0f, 2.2f});
  options.numerics.perturbed_tables = true;
  const Evaluation perturbed = run(op(kX, "y", "sigmoid(x = x)"), {0.5f, -3.0f, 2.2f});
  EXPECT_NE(exact.outputs[0], perturbed.outputs[0]);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(exact.outputs[0][i], perturbed.outputs[0][i], 0.004f);
}

TEST_F(RunnerTest, ElementwiseAndSpreading) {
  const std::vector<float> x = random_values(256, 9);
  const Evaluation out = fixtures::evaluate(
      options,
      program(constant("tensor<fp16, [1, 8, 1, 1]>", "c", "[1, 2, 3, 4, 5, 6, 7, 8]") +
              constant("tensor<fp16, []>", "h", "0.5") + op(kX, "a", "mul(x = x, y = c)") +
              op(kX, "b", "sub(x = h, y = a)") + op(kX, "d", "maximum(x = b, y = x)") +
              op(kX, "e", "real_div(x = d, y = c)") + op(kX, "f", "minimum(x = e, y = h)") +
              op(kX, "g", "relu(x = f)") + op(kX, "i", "exp(x = g)") + op(kX, "y", "pow(x = i, y = h)")),
      {{x, 32}}, {{256, 32}});
  ASSERT_TRUE(out.status) << fixtures::message(out.status);
  for (size_t i = 0; i < 256; ++i) {
    const float c = static_cast<float>(i / 32 + 1);
    const float a = round_to_fp16(x[i] * c), b = round_to_fp16(0.5f - a), d = std::max(b, x[i]);
    const float g = std::max(std::min(round_to_fp16(d / c), 0.5f), 0.0f);
    EXPECT_EQ(out.outputs[0][i], round_to_fp16(std::pow(round_to_fp16(std::exp(g)), 0.5f))) << i;
  }
}

TEST_F(RunnerTest, ReductionsAndNorms) {
  const std::vector<float> x = random_values(256, 10);
  const std::string row = "tensor<fp16, [1, 1, 1, 32]>";
  const Evaluation out = fixtures::evaluate(
      options,
      program(
          constant("tensor<int32, [1]>", "one", "[1]") + constant("tensor<int32, []>", "axis", "1") +
          constant("tensor<bool, []>", "k", "true") + constant("tensor<bool, []>", "no", "false") +
          constant("tensor<fp16, [8]>", "gamma", "[1, 2, 1, 2, 1, 2, 1, 2]") +
          constant("tensor<fp16, []>", "eps", "0x1p-10") +
          op(row, "s", "reduce_sum(axes = one, keep_dims = k, x = x)") +
          op(row, "m", "reduce_mean(axes = one, keep_dims = k, x = x)") +
          op(row, "l", "reduce_max(axes = one, keep_dims = k, x = x)") + op(kX, "p", "softmax(axis = axis, x = x)") +
          op(kX, "n", "layer_norm(axes = one, epsilon = eps, gamma = gamma, x = x)") +
          op("tensor<fp16, [1, 19, 1, 32]>", "y", "concat(axis = axis, interleave = no, values = (s, m, l, p, n))")),
      {{x, 32}}, {{19 * 32, 32}});
  ASSERT_TRUE(out.status) << fixtures::message(out.status);
  const std::vector<float>& y = out.outputs[0];
  for (size_t c = 0; c < 32; ++c) {
    float sum = 0, largest = -kInfinity, exp_sum = 0, variance = 0;
    for (size_t i = 0; i < 8; ++i) sum += x[i * 32 + c], largest = std::max(largest, x[i * 32 + c]);
    for (size_t i = 0; i < 8; ++i)
      exp_sum += std::exp(x[i * 32 + c] - largest), variance += std::pow(x[i * 32 + c] - sum / 8, 2.0f) / 8;
    EXPECT_EQ(y[c], round_to_fp16(sum));
    EXPECT_EQ(y[32 + c], round_to_fp16(sum / 8));
    EXPECT_EQ(y[64 + c], largest);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(y[(3 + i) * 32 + c], std::exp(x[i * 32 + c] - largest) / exp_sum, 1e-3f);
      EXPECT_NEAR(y[(11 + i) * 32 + c],
                  (x[i * 32 + c] - sum / 8) / std::sqrt(variance + 0x1p-10f) * (i % 2 == 0 ? 1 : 2), 4e-3f);
    }
  }
}

TEST_F(RunnerTest, ShapesMove) {
  options.mode = Mode::kLenient;  // rows of 32 bytes
  const std::vector<float> x = random_values(256, 12);
  const Evaluation out = fixtures::evaluate(
      options,
      program(
          constant("tensor<int32, [4]>", "p", "[0, 3, 2, 1]") + constant("tensor<int32, [4]>", "s", "[1, 4, 8, 8]") +
          constant("tensor<int32, [4]>", "b", "[0, 1, 2, 0]") + constant("tensor<int32, [4]>", "e", "[1, 4, 8, 8]") +
          constant("tensor<int32, [4]>", "t", "[1, 1, 3, 1]") + constant("tensor<int32, [4]>", "f", "[1, 3, 1, -1]") +
          op("tensor<fp16, [1, 32, 1, 8]>", "a", "transpose(perm = p, x = x)") +
          op("tensor<fp16, [1, 4, 8, 8]>", "c", "reshape(shape = s, x = a)") +
          op("tensor<fp16, [1, 3, 2, 8]>", "d", "slice_by_index(begin = b, end = e, stride = t, x = c)") +
          op("tensor<fp16, [1, 3, 1, 16]>", "y", "reshape(shape = f, x = d)")),
      {{x, 32}}, {{48, 16}});
  ASSERT_TRUE(out.status) << fixtures::message(out.status);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 2; ++j) {
      for (size_t k = 0; k < 8; ++k) {
        const size_t flat = ((i + 1) * 8 + 2 + 3 * j) * 8 + k;  // in the transposed order: token * 8 + channel
        EXPECT_EQ(out.outputs[0][i * 16 + j * 8 + k], x[flat % 8 * 32 + flat / 8]);
      }
    }
  }
}

TEST_F(RunnerTest, MatmulWithFlags) {
  const std::vector<float> x = random_values(4 * 32 * 32, 13);
  for (const bool flip_x : {false, true}) {
    for (const bool flip_y : {false, true}) {
      const std::string shape = "tensor<fp16, [1, 4, 32, 32]>";
      const Evaluation out =
          fixtures::evaluate(options,
                             program(constant("tensor<bool, []>", "fx", flip_x ? "true" : "false") +
                                         constant("tensor<bool, []>", "fy", flip_y ? "true" : "false") +
                                         op(shape, "y", "matmul(transpose_x = fx, transpose_y = fy, x = x, y = x)"),
                                     shape + " x"),
                             {{x, 32}}, {{x.size(), 32}});
      ASSERT_TRUE(out.status) << fixtures::message(out.status);
      for (size_t b = 0; b < 4; ++b) {
        for (size_t i = 0; i < 32; i += 5) {
          for (size_t j = 0; j < 32; ++j) {
            float sum = 0;
            for (size_t k = 0; k < 32; ++k) {
              sum +=
                  x[b * 1024 + (flip_x ? k * 32 + i : i * 32 + k)] * x[b * 1024 + (flip_y ? j * 32 + k : k * 32 + j)];
            }
            ASSERT_EQ(out.outputs[0][b * 1024 + i * 32 + j], round_to_fp16(sum));
          }
        }
      }
    }
  }
}

TEST_F(RunnerTest, ConvWithKernelGroupsAndStrides) {
  const std::vector<float> x = random_values(4 * 6 * 64, 14), w = random_values(6 * 2 * 3 * 3, 15);
  std::string list = "[";
  for (size_t i = 0; i < w.size(); ++i) list += fmt::format("{}{:.9g}", i > 0 ? ", " : "", w[i]);
  const Evaluation out = fixtures::evaluate(
      options,
      program(constant("tensor<string, []>", "pt", "\"custom\"") + constant("tensor<int32, [2]>", "st", "[2, 2]") +
                  constant("tensor<int32, [4]>", "pd", "[1, 0, 1, 0]") +
                  constant("tensor<int32, [2]>", "dl", "[1, 1]") + constant("tensor<int32, []>", "gr", "2") +
                  constant("tensor<fp16, [6, 2, 3, 3]>", "w", list + "]") +
                  op("tensor<fp16, [1, 6, 3, 32]>", "y",
                     "conv(dilations = dl, groups = gr, pad = pd, pad_type = pt, strides = st, weight = w, x = x)"),
              "tensor<fp16, [1, 4, 6, 64]> x"),
      {{x, 64}}, {{6 * 3 * 32, 32}});
  ASSERT_TRUE(out.status) << fixtures::message(out.status);
  for (int o = 0; o < 6; ++o) {
    for (int r = 0; r < 3; ++r) {
      for (int c = 0; c < 32; ++c) {
        float sum = 0;
        for (int i = 0; i < 2; ++i) {
          for (int kr = 0; kr < 3; ++kr) {
            for (int kc = 0; kc < 3; ++kc) {
              const int row = 2 * r + kr - 1, column = 2 * c + kc - 1;
              if (row < 0 || row >= 6 || column < 0 || column >= 64) continue;
              sum += w[static_cast<size_t>(((o * 2 + i) * 3 + kr) * 3 + kc)] *
                     x[static_cast<size_t>(((o / 3 * 2 + i) * 6 + row) * 64 + column)];
            }
          }
        }
        ASSERT_EQ(out.outputs[0][static_cast<size_t>((o * 3 + r) * 32 + c)], round_to_fp16(sum))
            << o << " " << r << " " << c;
      }
    }
  }
}

TEST_F(RunnerTest, LinearAndDequantizedWeights) {
  options.mode = Mode::kLenient;  // rank 3
  const std::vector<float> x = random_values(4 * 32, 16);
  const Evaluation out =
      fixtures::evaluate(options,
                         program("tensor<fp16, [3, 32]> w = constexpr_affine_dequantize()[axis = tensor<int32, []>(0), "
                                 "name = tensor<string, []>(\"w\"), "
                                 "quantized_data = tensor<int8, [3, 32]>(" +
                                     fixtures::repeated("-3", 96) +
                                     "), scale = tensor<fp16, [3]>([0.5, 1, 2]), "
                                     "zero_point = tensor<int8, []>(1)];\n" +
                                     constant("tensor<fp16, [3]>", "b", "[1, 2, 3]") +
                                     op("tensor<fp16, [1, 4, 3]>", "y", "linear(bias = b, weight = w, x = x)"),
                                 "tensor<fp16, [1, 4, 32]> x"),
                         {{x, 32}}, {{12, 3}});
  ASSERT_TRUE(out.status) << fixtures::message(out.status);
  for (size_t t = 0; t < 4; ++t) {
    for (size_t r = 0; r < 3; ++r) {
      const float scale = std::array<float, 3>{0.5f, 1, 2}[r];
      float sum = 0;
      for (size_t i = 0; i < 32; ++i) sum += scale * -4 * x[t * 32 + i];
      EXPECT_EQ(out.outputs[0][t * 3 + r], round_to_fp16(round_to_fp16(sum) + static_cast<float>(r + 1)));
    }
  }
}

// Two inputs: surfaces are bound in the order of the names, not of the declaration, and rows have a pitch of 64 bytes.
TEST_F(RunnerTest, LenientModeBindsByNameAndPitch) {
  options.mode = Mode::kLenient;
  const std::vector<float> first(4 * 16, 5.0f), second(4 * 16, 3.0f);
  const std::string shape = "tensor<fp16, [1, 4, 1, 16]>";
  const Evaluation out =
      fixtures::evaluate(options, program(op(shape, "y", "sub(x = z, y = a)"), shape + " z, " + shape + " a"),
                         {{first, 16}, {second, 16}}, {{64, 16}});
  ASSERT_TRUE(out.status) << fixtures::message(out.status);
  EXPECT_EQ(out.outputs[0][0], 3.0f - 5.0f);  // a is bound first
  EXPECT_EQ(out.outputs[0][63], -2.0f);
}

}  // namespace
}  // namespace baton::apple

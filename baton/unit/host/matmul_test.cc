// Matrix products of every kernel set and packing against plain sums in double: odd shapes, every size of token tile,
// unaligned weights, poisoned outputs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "baton/base/random.h"
#include "baton/quant/samples_test.h"
#include "baton/unit/host/kernel_sets.h"
#include "baton/unit/host/memory.h"
#include "baton/unit/host/operands.h"
#include "baton/unit/host/pack.h"
#include "tests/support/test_names.h"

namespace baton::host {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(Random& random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = random.normal();
  return values;
}

// A matrix stored in `dtype` at an odd address, what it decodes to, and its packed form.
struct TestMatrix {
  // `any_codes`: random blocks instead of encoded normal values, which leave some codes and scales out.
  TestMatrix(DType type, int64_t rows, int64_t columns, Random& random, bool any_codes = false) : dtype(type) {
    const Format& format = format_of(type);
    const size_t row_size = static_cast<size_t>(columns) / format.block_elements * format.block_bytes;
    const size_t count = static_cast<size_t>(rows * columns);
    stored.resize(row_size * static_cast<size_t>(rows) + 1);
    decoded.resize(count);
    const std::vector<std::byte> blocks = any_codes ? random_blocks(format, count / format.block_elements, random)
                                                    : blocks_like(format, random_values(random, count), random);
    std::copy(blocks.begin(), blocks.end(), stored.begin() + 1);
    format.decode(stored.data() + 1, decoded.data(), count);
    matrix = matrix_shape(type, rows, columns);
    memory = *Memory::allocate(static_cast<size_t>(matrix_bytes(matrix)), "memory", "test");
    std::memset(memory.data(), 0xff, memory.bytes());
    std::vector<float> row(static_cast<size_t>(columns));
    pack_panels(matrix, type, stored.data() + 1, 0, matrix.panels, memory.data(), row.data());
    matrix.data = memory.data();
  }

  DType dtype;
  std::vector<std::byte> stored;
  std::vector<float> decoded;
  Matrix matrix;
  Memory memory;
};

struct TestActivations {
  TestActivations(const Kernels& kernels, const Matrix& m, int64_t tokens, Random& random)
      : x(random_values(random, static_cast<size_t>(tokens * (m.columns + 3)))),
        operands(*Operands::create(kernels, tokens, m.columns, "test")) {
    const int64_t stride = m.columns + 3;
    a = Operands::floats(x.data(), stride);
    effective.resize(static_cast<size_t>(tokens * m.columns));
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = x.data() + t * stride;
      float* to = effective.data() + t * m.columns;
      std::copy(row, row + m.columns, to);
      if (!is_integer(m.packing)) continue;
      // An outlier now and then, so that products with and without low planes meet in a tile.
      if (t % 3 == 1) x[static_cast<size_t>(t * stride + m.columns / 2)] = 40;
      operands.make({.integers = true}, t, 0, row, m.columns, t % 5 == 4);
      a = operands.integers(t, 1, m.columns, pool);
      for (int64_t b = 0; b < m.columns / kBlock; ++b) {
        const ActivationBlock& block = a.blocks[b];
        float highest = 0;
        for (int64_t i = 0; i < kBlock; ++i) highest = std::max(highest, std::fabs(row[b * kBlock + i]));
        const float steps = block.low >= 0 ? 16256 : 127;
        for (int64_t i = 0; i < kBlock; ++i) {
          to[b * kBlock + i] = highest / steps * std::nearbyint(row[b * kBlock + i] * (steps / highest));
        }
      }
    }
    if (is_integer(m.packing)) a = operands.integers(0, tokens, m.columns, pool);
  }

  std::vector<float> x, effective;
  ThreadPool pool{1};
  Operands operands;
  Activations a;
};

void check_product(const Kernels& kernels, const TestMatrix& w, int64_t tokens, bool add, Random& random) {
  const Matrix& m = w.matrix;
  SCOPED_TRACE(testing::Message() << kernels.name << " " << to_string(w.dtype) << " rows " << m.rows << " columns "
                                  << m.columns << " tokens " << tokens << " add " << add);
  const TestActivations x(kernels, m, tokens, random);
  const int64_t stride = m.rows + 5;
  std::vector<float> out(static_cast<size_t>(tokens * stride), kPoison);
  std::vector<float> before(out.size(), 0.0f);
  if (add) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < m.rows; ++r) out[t * stride + r] = before[t * stride + r] = random.normal();
    }
  }
  const Memory scratch = *Memory::allocate(static_cast<size_t>(matmul_scratch_bytes(m.columns)), "memory", "test");
  const MultiplyFunction matmul = function_of(kernels, m.packing, x.a.form);
  const int64_t middle = m.panels / 2 / kernels.panels_per_tile * kernels.panels_per_tile;
  matmul({&m, 0, middle, x.a, tokens, out.data(), stride, add, scratch.data()});
  matmul({&m, middle, m.panels, x.a, tokens, out.data(), stride, add, scratch.data()});
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < m.rows; ++r) {
      double sum = before[t * stride + r], magnitude = std::fabs(sum);
      for (int64_t k = 0; k < m.columns; ++k) {
        const double product = static_cast<double>(w.decoded[r * m.columns + k]) * x.effective[t * m.columns + k];
        sum += product;
        magnitude += std::fabs(product);
      }
      ASSERT_NEAR(out[t * stride + r], sum, 2e-6 * magnitude + 1e-7) << "token " << t << " row " << r;
    }
    for (int64_t r = m.rows; r < stride; ++r) ASSERT_TRUE(std::isnan(out[t * stride + r])) << "wrote past the rows";
  }
}

class Matmul : public testing::TestWithParam<std::tuple<const Kernels*, DType>> {};

TEST_P(Matmul, EqualsPlainSums) {
  const auto& [kernels, dtype] = GetParam();
  const int64_t block = format_of(dtype).block_elements;
  Random random(7);
  for (const int64_t rows : {1, 15, 16, 17, 33, 64}) {
    for (const int64_t blocks : {1, 3}) {
      const int64_t columns = block == 1 ? (blocks == 1 ? 1 : 37) : blocks * block;
      const TestMatrix w(dtype, rows, columns, random);
      for (int64_t tokens = 1; tokens <= 7; ++tokens) check_product(*kernels, w, tokens, tokens % 2 == 0, random);
    }
  }
  const TestMatrix w(dtype, 50, block == 1 ? 70 : std::max<int64_t>(2 * block, 96), random);
  for (const int64_t tokens : {8, 11, 12, 13, 14, 23, 24, 31, 32, 33, 39, 46}) {
    check_product(*kernels, w, tokens, tokens == 13 || tokens == 39, random);
  }
}

TEST_P(Matmul, AnyCodesEqualPlainSums) {
  const auto& [kernels, dtype] = GetParam();
  const int64_t block = format_of(dtype).block_elements;
  if (block == 1) GTEST_SKIP() << "no codes";
  Random random(8);
  for (const int64_t columns : {block, 5 * block}) {
    const TestMatrix w(dtype, 37, columns, random, true);
    for (const int64_t tokens : {1, 2, 5, 13, 37}) check_product(*kernels, w, tokens, false, random);
  }
}

// A token's result may not depend on how many others are computed with it.
TEST_P(Matmul, SameBitsAloneAndInABatch) {
  const auto& [kernels, dtype] = GetParam();
  Random random(9);
  const int64_t columns = 512, tokens = 2 * kSortedTokens + 29;
  const TestMatrix w(dtype, 48, columns, random);
  const TestActivations x(*kernels, w.matrix, tokens, random);
  const Memory scratch = *Memory::allocate(static_cast<size_t>(matmul_scratch_bytes(columns)), "memory", "test");
  const MultiplyFunction matmul = function_of(*kernels, w.matrix.packing, x.a.form);
  std::vector<float> together(48 * tokens, kPoison), alone(48, kPoison);
  matmul({&w.matrix, 0, 3, x.a, tokens, together.data(), 48, false, scratch.data()});
  for (int64_t t = 0; t < tokens; ++t) {
    Activations one = x.a;
    if (one.form == Form::kFloats) {
      one.x += t * one.x_stride;
    } else {
      one.blocks += t * (columns / kBlock);
      one.lows += t * (columns / kBlock);
    }
    matmul({&w.matrix, 0, 3, one, 1, alone.data(), 48, false, scratch.data()});
    ASSERT_EQ(0, std::memcmp(alone.data(), together.data() + t * 48, 48 * sizeof(float))) << "token " << t;
  }
}

// Columns go in pairs in bf16: the one beside an odd last one is read with it, so it is written, whatever memory held.
TEST(MatmulTypes, AnOddColumnOfBF16HasAZeroBesideIt) {
  Random random(12);
  for (const int64_t rows : {16, 17, 48}) {
    for (const int64_t columns : {1, 37, 64}) {
      const TestMatrix w(DType::kBF16, rows, columns, random);
      const auto bytes = static_cast<size_t>(matrix_bytes(w.matrix));
      const Memory other = *Memory::allocate(bytes, "memory", "test");
      std::memset(other.data(), 0x5a, other.bytes());
      std::vector<float> row(static_cast<size_t>(columns));
      pack_panels(w.matrix, DType::kBF16, w.stored.data() + 1, 0, w.matrix.panels, other.data(), row.data());
      EXPECT_EQ(0, std::memcmp(other.data(), w.memory.data(), bytes)) << rows << " x " << columns;
    }
  }
}

class Powers : public testing::TestWithParam<const Kernels*> {};

// Products in bf16: activations of one part, on AMX of two for 16-bit weights; integer and F16 weights rounded to bf16.
TEST_P(Matmul, TilesEqualPlainSums) {
  const auto& [kernels, dtype] = GetParam();
  Random random(11);
  const int64_t columns = std::max<int64_t>(64, 2 * format_of(dtype).block_elements);
  for (const int64_t rows : {1, 16, 33, 50}) {
    const TestMatrix w(dtype, rows, columns, random);
    const Form form = form_of(*kernels, w.matrix.packing, true);
    const bool exact = form == Form::kTilePairs;
    if (form != Form::kTiles && !exact) GTEST_SKIP() << kernels->name << " has no tiles for " << to_string(dtype);
    const MultiplyFunction matmul = function_of(*kernels, w.matrix.packing, form);
    for (const int64_t tokens : {1, 15, 16, 17, 32, 33, 47, 64}) {
      SCOPED_TRACE(testing::Message() << "rows " << rows << " tokens " << tokens);
      const bool add = tokens % 2 == 0;
      std::vector<float> x = random_values(random, static_cast<size_t>(tokens * columns));
      const auto values = static_cast<size_t>(round_up(tokens, 2 * kTileTokens) * columns);
      std::vector<uint16_t> high(values, 0x7fc0), low(values, 0x7fc0);  // NaN
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t at = t / kTileTokens * kTileTokens * columns + t % kTileTokens * kBlock;
        kernels->to_tiles(x.data() + t * columns, columns, high.data() + at, exact ? low.data() + at : nullptr);
      }
      const Activations a{.form = form, .high_tiles = high.data(), .low_tiles = exact ? low.data() : nullptr};
      const int64_t stride = rows + 5;
      std::vector<float> out(static_cast<size_t>(tokens * stride), kPoison);
      if (add) {
        for (int64_t t = 0; t < tokens; ++t) std::fill_n(out.begin() + t * stride, rows, 1.0f);
      }
      const Memory scratch = *Memory::allocate(static_cast<size_t>(matmul_scratch_bytes(columns)), "memory", "test");
      matmul({&w.matrix, 0, w.matrix.panels, a, tokens, out.data(), stride, add, scratch.data()});
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t r = 0; r < rows; ++r) {
          double sum = add ? 1 : 0, magnitude = sum;
          for (int64_t k = 0; k < columns; ++k) {
            const double product = static_cast<double>(w.decoded[r * columns + k]) * x[t * columns + k];
            sum += product;
            magnitude += std::fabs(product);
          }
          // Two roundings to 8 bits a product, of random direction; two parts of 8 bits are 16.
          ASSERT_NEAR(out[t * stride + r], sum, (exact ? 2e-5 : 4e-3) * magnitude) << "token " << t << " row " << r;
        }
        for (int64_t r = rows; r < stride; ++r) ASSERT_TRUE(std::isnan(out[t * stride + r])) << "wrote past the rows";
      }
    }
  }
}

// What is beside a row does not show in its bits.
TEST_P(Matmul, TilesGiveTheSameBitsInAnyCompany) {
  const Kernels* const kernels = std::get<0>(GetParam());
  const DType dtype = std::get<1>(GetParam());
  const Packing packing = packing_of(dtype);
  if (!has_tiles(*kernels, packing)) GTEST_SKIP() << "no tiles";
  Random random(13);
  const int64_t columns = 3 * std::max<int64_t>(32, format_of(dtype).block_elements), rows = 50, tokens = 45;
  const TestMatrix w(dtype, rows, columns, random);
  const MultiplyFunction matmul = function_of(*kernels, packing, form_of(*kernels, packing, true));
  const std::vector<float> x = random_values(random, static_cast<size_t>(tokens * columns));
  const Memory scratch = *Memory::allocate(static_cast<size_t>(matmul_scratch_bytes(columns)), "memory", "test");
  // Those from `first` on.
  const auto product = [&](int64_t first, int64_t count) {
    Operands operands = *Operands::create(*kernels, count, columns, "test");
    for (int64_t t = 0; t < count; ++t)
      operands.make({.tiles = true}, t, t, x.data() + (first + t) * columns, columns, false);
    std::vector<float> out(static_cast<size_t>(count * rows), kPoison);
    matmul({&w.matrix, 0, w.matrix.panels, operands.tiles(form_of(*kernels, packing, true)), count, out.data(), rows,
            false, scratch.data()});
    return out;
  };
  const std::vector<float> together = product(0, tokens);
  for (int64_t count = 1; count <= 19; ++count) {
    for (const int64_t first : {int64_t{0}, int64_t{5}, tokens - count}) {
      const std::vector<float> some = product(first, count);
      ASSERT_EQ(0, std::memcmp(some.data(), together.data() + first * rows, some.size() * sizeof(float)))
          << count << " tokens from " << first;
    }
  }
}

std::vector<DType> all_types() {
  std::vector<DType> types;
  for (const Format& format : formats()) {
    if (is_native(format.dtype)) types.push_back(format.dtype);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(Sets, Matmul,
                         testing::Combine(testing::ValuesIn(kernel_sets()), testing::ValuesIn(all_types())),
                         [](const auto& parameter) {
                           return test_name(std::string(std::get<0>(parameter.param)->name) + "_" +
                                            std::string(to_string(std::get<1>(parameter.param))));
                         });

TEST(MatmulTypes, EveryFormatHasKernels) { EXPECT_EQ(all_types().size(), formats().size()); }

// 2^(e - 128) for every e: one activation that is not zero times one weight that is the scale itself.
TEST_P(Powers, EveryExponentOfMxfp4) {
  const Kernels& kernels = *GetParam();
  constexpr int64_t kRows = 256, kColumns = 32;
  std::vector<std::byte> stored(kRows * 17);
  for (size_t r = 0; r < kRows; ++r) {
    stored[17 * r] = static_cast<std::byte>(r);
    stored[17 * r + 1] = std::byte{1};
  }
  Matrix matrix = matrix_shape(DType::kMXFP4, kRows, kColumns);
  const Memory memory = *Memory::allocate(static_cast<size_t>(matrix_bytes(matrix)), "memory", "test");
  float row[kColumns];
  pack_panels(matrix, DType::kMXFP4, stored.data(), 0, matrix.panels, memory.data(), row);
  matrix.data = memory.data();
  std::vector<float> x(kColumns, 0.0f), out(kRows, kPoison);
  x[0] = 1.5f;
  ActivationBlock block;
  LowPlane low;
  kernels.quantize(x.data(), kColumns, false, &block, &low);
  const Memory scratch = *Memory::allocate(static_cast<size_t>(matmul_scratch_bytes(kColumns)), "memory", "test");
  const Activations a{.form = Form::kIntegers, .blocks = &block, .lows = &low};
  function_of(kernels, Packing::kMXFP4,
              a.form)({&matrix, 0, matrix.panels, a, 1, out.data(), kRows, false, scratch.data()});
  // The smallest products of scales are denormal and lose bits.
  for (int e = 16; e < 255; ++e) EXPECT_FLOAT_EQ(out[static_cast<size_t>(e)], std::ldexp(1.5f, e - 128)) << e;
  for (int e = 0; e < 16; ++e) EXPECT_NEAR(out[static_cast<size_t>(e)], std::ldexp(1.5f, e - 128), 1e-39f) << e;
  EXPECT_GT(out[0], 0.0f);
  EXPECT_NEAR(out[1] / out[0], 2, 0.1f);
}
INSTANTIATE_TEST_SUITE_P(Sets, Powers, testing::ValuesIn(kernel_sets()),
                         [](const auto& parameter) { return test_name(parameter.param->name); });

class Quantize : public testing::TestWithParam<const Kernels*> {};

TEST_P(Quantize, RoundsToNearestAndKeepsSums) {
  Random random(3);
  std::vector<float> x = random_values(random, 256);
  std::fill(x.begin() + 32, x.begin() + 64, 0.0f);
  x[70] = -30;  // stands out
  ActivationBlock blocks[8];
  LowPlane plane;
  ASSERT_EQ(GetParam()->quantize(x.data(), 256, false, blocks, &plane), 1);
  EXPECT_EQ(plane.at, 2);
  EXPECT_FLOAT_EQ(plane.scale, blocks[2].scale / 128);
  for (int b = 0; b < 8; ++b) {
    SCOPED_TRACE(b);
    const ActivationBlock& block = blocks[b];
    EXPECT_EQ(block.low, b == 2 ? 0 : -1);
    float highest = 0;
    for (int i = 0; i < 32; ++i) highest = std::max(highest, std::fabs(x[32 * b + i]));
    EXPECT_FLOAT_EQ(block.scale, highest / 127);
    const float steps = b == 2 ? 16256.0f : 127.0f;
    int high[3] = {}, low[3] = {};
    for (int i = 0; i < 32; ++i) {
      const float exact = highest > 0 ? x[32 * b + i] * (steps / highest) : 0;
      const int q = b == 2 ? 128 * block.high[i] + plane.low[i] : block.high[i];
      EXPECT_EQ(q, static_cast<int>(std::nearbyint(exact))) << i;
      EXPECT_LE(std::abs(block.high[i]), 127);
      for (const int part : {i / 16, 2}) {
        high[part] += block.high[i];
        if (b == 2) low[part] += plane.low[i];
      }
      EXPECT_LE(b == 2 ? std::abs(plane.low[i]) : 0, 64);
    }
    for (int part = 0; part < 3; ++part) {
      EXPECT_EQ(block.high_bias[part], -128 * high[part]);
      EXPECT_EQ(b == 2 ? plane.bias[part] : 0, -128 * low[part]);
      const float sum = static_cast<float>(high[part]) + static_cast<float>(low[part]) / 128;
      EXPECT_NEAR(block.scaled_sum[part], block.scale * sum, 1e-5f * highest * 32);
    }
  }
}

// Whether a block has a low plane depends on its row alone, and planes do not change what a row means.
TEST_P(Quantize, OutliersKeepTheirNeighboursPrecise) {
  Random random(4);
  std::vector<float> x = random_values(random, 1024);
  x[500] = 100;
  std::vector<ActivationBlock> blocks(32);
  std::vector<LowPlane> planes(32);
  GetParam()->quantize(x.data(), 1024, false, blocks.data(), planes.data());
  const ActivationBlock& block = blocks[500 / 32];
  ASSERT_GE(block.low, 0);
  const LowPlane& plane = planes[static_cast<size_t>(block.low)];
  for (int i = 0; i < 32; ++i) {
    const float value = block.scale * (static_cast<float>(block.high[i]) + static_cast<float>(plane.low[i]) / 128);
    EXPECT_NEAR(value, x[480 + static_cast<size_t>(i)], 100.0f / 16256);  // one plane: steps of 0.8
  }
}

// An infinity or NaN must not become a finite answer.
TEST_P(Quantize, NonFiniteValuesShow) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), kPoison}) {
    for (const int at : {0, 15, 16, 31}) {
      std::vector<float> x(32, 1.0f);
      x[static_cast<size_t>(at)] = bad;
      ActivationBlock block;
      LowPlane plane;
      GetParam()->quantize(x.data(), 32, false, &block, &plane);
      EXPECT_TRUE(std::isnan(block.scale)) << bad << " at " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Quantize, testing::ValuesIn(kernel_sets()),
                         [](const auto& parameter) { return test_name(parameter.param->name); });

TEST(KernelSets, ScalarIsAlwaysThereAndNamesAreFound) {
  EXPECT_STREQ(kernel_sets().back()->name, "scalar");
  for (const Kernels* set : kernel_sets()) EXPECT_EQ(kernels_by_name(set->name), set);
  EXPECT_EQ(kernels_by_name("abacus"), nullptr);
  const Kernels& exact = **kernels_or_best(kExactKernels);
  for (const Packing packing : {Packing::kF16, Packing::kBF16}) EXPECT_EQ(form_of(exact, packing, true), Form::kFloats);
  EXPECT_EQ(*kernels_or_best(exact.name), &exact);
  for (const Kernels* set : kernel_sets()) {
    if (set == &exact) break;
    EXPECT_TRUE(has_tiles(*set, Packing::kF16)) << set->name << " is better, and exact";
  }
}

}  // namespace
}  // namespace baton::host

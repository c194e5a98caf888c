// The multiply-accumulate of every path against sums in order, bit by bit: one column, several, all; odd sizes; values
// that fp16 knows and f32 would hide.
#include "baton/unit/apple/mac.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "baton/base/random.h"
#include "baton/unit/apple/fp16.h"

namespace baton::apple {
namespace {

// Product, then addition, over input channels in order; the result in fp16, subnormals flushed on the first chips.
uint32_t wanted(std::span<const uint16_t> row, const std::vector<float>& x, const Numerics& numerics) {
  const bool flush = numerics.profile == Profile::kM1;
  const auto flushed = [&](float value) { return flush && std::fabs(value) < kFp16NormalMin ? 0.0f : value; };
  float sum = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const volatile float product = flushed(from_fp16(row[i])) * flushed(x[i]);  // volatile: not fused with the addition
    sum += product;
  }
  return std::bit_cast<uint32_t>(flushed(round_to_fp16(sum)));
}

TEST(Mac, EveryNumberOfColumnsGivesSumsInOrder) {
  Random random(11);
  for (const uint32_t threads : {1u, 3u}) {
    ThreadPool pool(threads);
    for (const size_t rows : {1, 15, 16, 33, 100}) {
      for (const size_t k : {1, 15, 16, 17, 64, 131}) {
        std::vector<uint16_t> weights(rows * k);
        for (uint16_t& weight : weights)
          weight = to_fp16(random.below(8) == 0 ? 3e-6f * random.normal() : random.normal());
        // Unaligned, as in a file.
        std::vector<std::byte> bytes(2 * weights.size() + 1);
        std::memcpy(bytes.data() + 1, weights.data(), 2 * weights.size());
        const MacMatrix matrix({bytes.data() + 1, 2 * weights.size()}, rows, k);
        for (const Profile profile : {Profile::kM1, Profile::kModern}) {
          const Numerics numerics{profile, false, false};
          for (const size_t columns : {1, 2, 9, 16, 17, 32}) {
            MacPanel panel;
            panel.reset(k);
            std::vector<std::vector<float>> x(columns, std::vector<float>(k));
            for (size_t c = 0; c < columns; ++c) {
              for (size_t i = 0; i < k; ++i) {
                x[c][i] = round_to_fp16(random.below(9) == 0 ? 2e-6f * random.normal() : random.normal());
                panel.values[i * kMacColumns + c] = x[c][i];
              }
            }
            panel.finish(numerics);
            std::vector<float> out(rows * kMacColumns, std::nanf(""));
            const MacEvents events =
                multiply(matrix, 0, rows, panel, kMacColumns, numerics, pool, out.data(), kMacColumns);
            EXPECT_FALSE(events.limit || events.undefined);
            for (size_t r = 0; r < rows; ++r) {
              for (size_t c = 0; c < kMacColumns; ++c) {
                const uint32_t want = c < columns ? wanted({weights.data() + r * k, k}, x[c], numerics) : 0;
                ASSERT_EQ(std::bit_cast<uint32_t>(out[r * kMacColumns + c]), want)
                    << rows << "x" << k << ", row " << r << " column " << c << " of " << columns;
              }
            }
          }
        }
      }
    }
  }
}

// Rows that may reach the limit take the watched path, alone or among others.
TEST(Mac, OneColumnIsWatchedToo) {
  ThreadPool pool(1);
  const size_t k = 40;
  std::vector<uint16_t> weights(2 * k, to_fp16(0.5f));
  std::fill_n(weights.begin(), k, to_fp16(100.0f));
  const MacMatrix matrix(std::as_bytes(std::span<const uint16_t>(weights)), 2, k);
  MacPanel panel;
  panel.reset(k);
  for (size_t i = 0; i < k; ++i) panel.values[i * kMacColumns] = 100;
  panel.finish({});
  std::vector<float> out(2 * kMacColumns);
  const MacEvents events = multiply(matrix, 0, 2, panel, kMacColumns, {}, pool, out.data(), kMacColumns);
  EXPECT_TRUE(events.limit);
  EXPECT_EQ(out[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(out[kMacColumns], 2000.0f);
  EXPECT_EQ(out[1], 0.0f);
}

// By hand, what was published of an M3: products rounded one by one, ties away from zero, small ones lost; a sum that
// once reached the limit is lost as a whole; the same in one column and in many.
TEST(Mac, M3RoundsAndLosesProducts) {
  const Numerics m3{Profile::kM3, false, false};
  ThreadPool pool(1);
  const struct {
    std::vector<float> weights, x;
    float want;
  } cases[] = {
      {{0x1p-14f, 1}, {0.5f, 0}, 0},                            // a product of 2^-15
      {{0x1p-14f, 1}, {1, 0}, 0x1p-14f},                        // of 2^-14
      {{0x1p-14f, 0x1p-14f}, {0.5f, 0.5f}, 0},                  // two of 2^-15: each is lost before the sum
      {{0x1p-20f, 1}, {1024, 0}, 0},                            // a subnormal weight
      {{1, 1}, {0x1p-20f, 1024}, 1024},                         // a subnormal value
      {{0x1.1p0f, 1}, {0x1.08p0f, 0}, 0x1.188p0f},              // exact
      {{1 + 0x1p-5f, 1}, {1 + 0x1p-6f, 0}, 1 + 49 * 0x1p-10f},  // 48.5 steps above 1: away from zero
      {{300, -300, 1}, {300, 300, 5}, 0},                       // passes 32768 and comes back: lost
      {{100, 100, 1}, {300, -300, 5}, 5},                       // does not pass
      {{-200, 0, 0}, {200, 0, 0}, 0},
  };
  for (const auto& item : cases) {
    std::vector<uint16_t> weights;
    for (const float value : item.weights) weights.push_back(to_fp16(value));
    const size_t k = weights.size();
    const MacMatrix matrix(std::as_bytes(std::span<const uint16_t>(weights)), 1, k);
    for (const size_t columns : {size_t{1}, size_t{3}}) {
      MacPanel panel;
      panel.reset(k);
      for (size_t i = 0; i < k; ++i) {
        for (size_t c = 0; c < columns; ++c) panel.values[i * kMacColumns + c] = round_to_fp16(item.x[i]);
      }
      panel.finish(m3);
      std::vector<float> out(kMacColumns, 1e9f);
      multiply(matrix, 0, 1, panel, kMacColumns, m3, pool, out.data(), kMacColumns);
      for (size_t c = 0; c < columns; ++c) EXPECT_EQ(out[c], item.want) << item.weights[0] << " x " << item.x[0];
      multiply_row(std::vector<float>(item.weights).data(), panel, m3, out.data());
      if (item.weights[0] != 0x1p-20f) {
        EXPECT_EQ(out[0], item.want);
      }
    }
  }
}

}  // namespace
}  // namespace baton::apple

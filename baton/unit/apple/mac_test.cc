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

}  // namespace
}  // namespace baton::apple

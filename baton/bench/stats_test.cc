// Known answers of the summaries, and the coverage of the interval.
#include "baton/bench/stats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "baton/base/random.h"

namespace baton {
namespace {

TEST(Stats, MedianQuartilesAndDeviation) {
  const std::vector<double> values = {4, 1, 3, 2, 5};
  const Summary summary = summarize(values);
  EXPECT_DOUBLE_EQ(summary.median, 3);
  EXPECT_DOUBLE_EQ(summary.quartile_low, 2);
  EXPECT_DOUBLE_EQ(summary.quartile_high, 4);
  EXPECT_DOUBLE_EQ(summary.mean, 3);
  EXPECT_NEAR(summary.deviation, std::sqrt(2.5), 1e-12);
  EXPECT_DOUBLE_EQ(quantile({1, 2}, 0.5), 1.5);
}

TEST(Stats, ClearDifferenceIsSeenAndNoDifferenceIsNot) {
  Random random(4);
  std::vector<double> a, b, c;
  for (int i = 0; i < 15; ++i) {
    const double drift = 1 + 0.2 * i;  // shared by the pair
    a.push_back(drift * (1.10 + 0.01 * random.normal()));
    b.push_back(drift * (1.00 + 0.01 * random.normal()));
    c.push_back(drift * (1.00 + 0.01 * random.normal()));
  }
  const RatioInterval faster = paired_ratio(a, b, 0.95, 1);
  EXPECT_TRUE(faster.differs());
  EXPECT_NEAR(faster.ratio, 1.10, 0.02);
  EXPECT_LE(faster.low, faster.ratio);
  EXPECT_GE(faster.high, faster.ratio);
  EXPECT_NEAR(paired_ratio(b, a, 0.95, 1).ratio, 1 / faster.ratio, 1e-9);
}

// At 95 % about one in twenty identical pairs may look different; the percentile interval of a median is a little
// short.
TEST(Stats, IdenticalSeriesRarelyDiffer) {
  Random random(9);
  int wrong = 0;
  constexpr int kTrials = 200;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> a, b;
    for (int i = 0; i < 15; ++i) {
      a.push_back(1 + 0.05 * random.normal());
      b.push_back(1 + 0.05 * random.normal());
    }
    wrong += paired_ratio(a, b, 0.95, static_cast<uint64_t>(trial), 1000).differs();
  }
  EXPECT_LE(wrong, kTrials / 8);
}

}  // namespace
}  // namespace baton

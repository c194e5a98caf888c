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

// Two pairs of -1 and +1: the median of two draws is -1 and +1 in a quarter of all draws each, else 0. At 60 % the
// interval leaves out a fifth on each side, at 40 % three tenths.
TEST(Stats, TheIntervalLeavesOutHalfOfTheRestOnEachSide) {
  const std::vector<double> a = {std::exp(-1.0), std::exp(1.0)}, b = {1, 1};
  const RatioInterval wide = paired_ratio(a, b, 0.6, 5), narrow = paired_ratio(a, b, 0.4, 5);
  EXPECT_NEAR(wide.ratio, 1, 1e-12);
  EXPECT_NEAR(wide.low, std::exp(-1.0), 1e-12);
  EXPECT_NEAR(wide.high, std::exp(1.0), 1e-12);
  EXPECT_NEAR(narrow.low, 1, 1e-12);
  EXPECT_NEAR(narrow.high, 1, 1e-12);
}

TEST(Stats, PairsNeeded) {
  EXPECT_EQ(pairs_needed(0.95), 6u);
  EXPECT_EQ(pairs_needed(0.9375), 5u);
  EXPECT_EQ(pairs_needed(0.9), 5u);
  EXPECT_EQ(pairs_needed(0.99), 8u);
}

// How often series without a difference seem to differ, by skewed noise with spikes. The bootstrap alone errs in all
// cases with one pair.
TEST(Stats, AVerdictErrsNoMoreOftenThanItSays) {
  constexpr int kTrials = 400;
  for (const size_t pairs : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 9u, 12u, 16u}) {
    Random random(100 + pairs);
    int wrong = 0, alone = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> a, b;
      const auto noise = [&] { return std::exp(0.1 * random.normal()) * (random.below(8) == 0 ? 0.6 : 1.0); };
      for (size_t i = 0; i < pairs; ++i) a.push_back(noise()), b.push_back(noise());
      const auto seed = static_cast<uint64_t>(trial);
      const RatioInterval verdict = paired_verdict(a, b, 0.95, seed, 300);
      EXPECT_EQ(verdict.known, pairs >= 6);
      wrong += verdict.differs();
      alone += paired_ratio(a, b, 0.95, seed, 300).differs();
    }
    EXPECT_LE(wrong, pairs < 6 ? 0 : kTrials / 13) << pairs << " pairs";  // 20 expected, 30 at three deviations
    EXPECT_GE(alone, pairs == 1 ? kTrials : pairs == 2 ? kTrials / 3 : 0) << pairs << " pairs";
  }
}

// Six pairs of one sign are enough, and what is clear is still seen.
TEST(Stats, AVerdictSeesWhatIsClear) {
  std::vector<double> a = {1.1, 1.2, 1.15, 1.3, 1.05, 1.12}, b(6, 1.0);
  EXPECT_TRUE(paired_verdict(a, b, 0.95, 1).differs());
  EXPECT_GE(paired_verdict(a, b, 0.95, 1).low, 1.05 - 1e-9);
  EXPECT_LE(paired_verdict(a, b, 0.95, 1).low, 1.05 + 1e-9) << "the least ratio: none lies outside with six";
  a.back() = 0.99;
  EXPECT_FALSE(paired_verdict(a, b, 0.95, 1).differs());
  a.pop_back(), b.pop_back();
  EXPECT_FALSE(paired_verdict(a, b, 0.95, 1).known);
}

}  // namespace
}  // namespace baton

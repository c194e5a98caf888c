// Prefill steps come to last what they should, for fast and slow units, and stay within their bounds.
#include "baton/engine/budget.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

// Runs steps of a unit that takes `ms_per_token` and returns the size they settle at.
uint32_t settled(PrefillBudget budget, double ms_per_token, double* longest_ms) {
  for (int step = 0; step < 40; ++step) {
    const uint32_t tokens = budget.tokens();
    const double ms = tokens * ms_per_token;
    *longest_ms = std::max(*longest_ms, ms);
    budget.learn(tokens, ms);
  }
  return budget.tokens();
}

TEST(PrefillBudget, SettlesWhereAStepLastsAsLongAsWanted) {
  for (const double ms_per_token : {0.15, 0.9, 2.0, 7.0, 24.0}) {
    double longest_ms = 0;
    const uint32_t tokens = settled(PrefillBudget(50, 16, 512), ms_per_token, &longest_ms);
    EXPECT_LE(tokens * ms_per_token, 50) << ms_per_token;
    EXPECT_GT((tokens + 16) * ms_per_token, 50) << ms_per_token;
    EXPECT_LE(longest_ms, std::max(50.0, 8 * ms_per_token)) << "an unknown unit begins with 8 tokens";
  }
}

TEST(PrefillBudget, KeepsItsBounds) {
  double longest_ms = 0;
  EXPECT_EQ(settled(PrefillBudget(50, 64, 256), 0.0001, &longest_ms), 256u);
  EXPECT_EQ(settled(PrefillBudget(50, 64, 256), 4000, &longest_ms), 1u);
  EXPECT_EQ(PrefillBudget(50, 64, 256).tokens(), 8u);
  EXPECT_EQ(PrefillBudget(50, 4, 256).tokens(), 4u) << "never above the preferred step at first";
}

// A unit whose steps cost the same whether full or not: short steps must not make the next ones shorter.
TEST(PrefillBudget, StaysAboveTheLeastThatPays) {
  PrefillBudget budget(50, 512, 512, 64);
  EXPECT_EQ(budget.tokens(), 64u);
  for (int i = 0; i < 6; ++i) budget.learn(5, 200);
  EXPECT_EQ(budget.tokens(), 64u);
  EXPECT_EQ(PrefillBudget(50, 32, 32, 64).tokens(), 32u) << "never above the preferred step at first";
}

TEST(PrefillBudget, AboveThePreferredStepIsAMultipleOfIt) {
  double longest_ms = 0;
  EXPECT_EQ(settled(PrefillBudget(50, 64, 512), 0.2, &longest_ms), 192u);
}

// Half of the time is half of the tokens, in whole pieces, and one of them at least.
TEST(PrefillBudget, OfAShorterStep) {
  PrefillBudget budget(50, 64, 512);
  for (int i = 0; i < 12; ++i) budget.learn(budget.tokens(), budget.tokens() * 0.15);
  EXPECT_EQ(budget.tokens(), 320u);
  EXPECT_EQ(budget.tokens(25), 128u);
  EXPECT_EQ(budget.tokens(5), 64u);
  EXPECT_EQ(budget.tokens(500), 320u);
  budget.learn(64, 100);
  EXPECT_EQ(budget.tokens(), 32u);
  EXPECT_EQ(budget.tokens(25), 32u);
}

TEST(PrefillBudget, ShortRemaindersDoNotGrowItAndSlowOnesShrinkIt) {
  PrefillBudget budget(50, 64, 512);
  for (int i = 0; i < 6; ++i) budget.learn(budget.tokens(), 1);
  const uint32_t before = budget.tokens();
  budget.learn(3, 0.1);
  EXPECT_EQ(budget.tokens(), before);
  budget.learn(10, 500);
  EXPECT_EQ(budget.tokens(), 1u);
}

}  // namespace
}  // namespace baton

// The comparison behind the bridge proof.
#include "baton/engine/work.h"

#include <gtest/gtest.h>

#include <limits>

namespace baton {
namespace {

TEST(CompareLogits, PassesWithinTheTolerance) {
  const std::vector<float> own = {1, 5, 3}, moved = {1.01f, 4.99f, 3};
  const Comparison comparison = compare_logits(moved, own, 0.02);
  EXPECT_TRUE(comparison.passed);
  EXPECT_TRUE(comparison.agreed);
  EXPECT_FALSE(comparison.near_tie);
  EXPECT_NEAR(comparison.max_abs_dlogit, 0.01, 1e-5);
  EXPECT_FALSE(compare_logits(moved, own, 0.005).passed);
}

TEST(CompareLogits, ADisagreementWithinTheToleranceIsANearTie) {
  const std::vector<float> own = {1, 5, 4.99f}, moved = {1, 4.985f, 5};
  const Comparison comparison = compare_logits(moved, own, 0.02);
  EXPECT_TRUE(comparison.passed);
  EXPECT_FALSE(comparison.agreed);
  EXPECT_TRUE(comparison.near_tie);
}

TEST(CompareLogits, ANearTieDoesNotExcuseADifferenceAboveTheTolerance) {
  const std::vector<float> own = {1, 5, 4.99f}, moved = {3, 4.985f, 5};
  const Comparison comparison = compare_logits(moved, own, 0.02);
  EXPECT_FALSE(comparison.passed);
  EXPECT_TRUE(comparison.near_tie);
}

TEST(CompareLogits, WhatIsNotANumberNeverPasses) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity, -infinity}) {
    for (const bool in_moved : {true, false}) {
      std::vector<float> own = {1, 5, 3}, moved = own;
      (in_moved ? moved : own)[2] = bad;
      const Comparison comparison = compare_logits(moved, own, infinity);
      EXPECT_FALSE(comparison.passed);
      EXPECT_EQ(comparison.max_abs_dlogit, infinity);
    }
  }
}

TEST(StateBytes, GrowWithTokensOnlyWhereTheStateDoes) {
  Layout one;
  one.segments.push_back({SlotKind::kKeys, 0, DType::kF16, {2, 1, 4}, {4, 4, 1}, 8});
  one.segments.push_back({SlotKind::kRecurrent, 1, DType::kF32, {1, 3, 3}, {9, 3, 1}, 9});
  EXPECT_EQ(state_bytes(one), 16u + 36u);
  EXPECT_EQ(state_bytes_estimate(one, 10), 160u + 36u);
}

}  // namespace
}  // namespace baton

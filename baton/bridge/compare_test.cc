// Differences and bounds against values by hand, and through every layout.
#include "baton/bridge/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/fake_state.h"

namespace baton::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// One attention layer of two heads of two values, one recurrent layer of one head [2, 2] with its convolution.
Program small_program() { return fake_program(2, 2, 2, 2, 2, 2, 1, 4); }

std::unique_ptr<FakeState> filled(const FakeOrder& order, uint64_t position) {
  const Program program = small_program();
  auto state = std::make_unique<FakeState>(fake_layout(program, 8, order), 8);
  state->set_position(position);
  for (size_t slot = 0; slot < program.slots.size(); ++slot) {
    float value = 0;
    state->for_each_index(slot, [&](const Dims& index) { state->set(slot, index, value += 1); });
  }
  return state;
}

bool is_zero(const SegmentDifference& seen) {
  for (const PartDifference& part : seen.heads) {
    if (part != PartDifference()) return false;
  }
  return seen.rms == 0;
}

TEST(CompareStates, ByHand) {
  const auto own = filled({}, 1), other = filled({}, 1);
  const size_t keys = 2;
  // Head 0 of the keys is [1, 2], head 1 [3, 4].
  other->set(keys, {1, 0, 0}, 3.5f);
  const StateDifference seen = compare_states(*other, *own);
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0].heads.size(), 1u) << "a convolution window is one part";
  EXPECT_EQ(seen[1].heads.size(), 2u);
  ASSERT_EQ(seen[keys].heads.size(), 2u);
  EXPECT_EQ(seen[keys].heads[0], PartDifference());
  EXPECT_DOUBLE_EQ(seen[keys].heads[1].rms, 0.5 / 5);
  EXPECT_DOUBLE_EQ(seen[keys].heads[1].largest, 0.5 / std::sqrt(12.5));
  EXPECT_DOUBLE_EQ(seen[keys].rms, 0.1 / std::sqrt(2.0));
  for (const size_t slot : {size_t{0}, size_t{1}, size_t{3}}) EXPECT_TRUE(is_zero(seen[slot])) << slot;
}

TEST(CompareStates, SeesEveryValueInEveryLayoutAndNothingBehindThePosition) {
  constexpr uint64_t kPosition = 5;
  const FakeOrder orders[] = {{}, {.order = {1, 0, 2}, .pad = 3}, {.order = {2, 1, 0}, .kv = DType::kF16}};
  for (const FakeOrder& order : orders) {
    const auto own = filled({}, kPosition);
    const auto same = filled(order, kPosition);
    for (const SegmentDifference& seen : compare_states(*same, *own)) EXPECT_TRUE(is_zero(seen));
    for (size_t slot = 0; slot < 4; ++slot) {
      own->for_each_index(slot, [&](const Dims& index) {
        const float was = same->get(slot, index);
        same->set(slot, index, was + 1);
        const StateDifference seen = compare_states(*same, *own);
        EXPECT_GT(seen[slot].heads[index[0]].rms, 0);
        EXPECT_GT(seen[slot].heads[index[0]].largest, seen[slot].heads[index[0]].rms);
        EXPECT_GT(seen[slot].rms, 0);
        same->set(slot, index, was);
      });
    }
  }
}

TEST(CompareStates, LongPartsAreReadInPieces) {
  const Program program = fake_program(1, 1, 1, 96, 2, 2, 1, 4);
  FakeState own(fake_layout(program, 300, {}), 300), other(fake_layout(program, 300, {.order = {1, 0, 2}}), 300);
  own.fill(1, 300);
  other.fill(1, 300);
  EXPECT_TRUE(is_zero(compare_states(other, own)[0]));
  other.set(0, {0, 299, 95}, own.get(0, {0, 299, 95}) + 1);
  EXPECT_GT(compare_states(other, own)[0].rms, 0);
}

TEST(CompareStates, NothingPassesForZerosOrWhatIsNotANumber) {
  const auto own = filled({}, 2), other = filled({}, 2);
  own->for_each_index(3, [&](const Dims& index) { own->set(3, index, 0); });
  EXPECT_EQ(compare_states(*other, *own)[3].heads[0].rms, kInfinity);
  other->for_each_index(3, [&](const Dims& index) { other->set(3, index, 0); });
  EXPECT_TRUE(is_zero(compare_states(*other, *own)[3])) << "zero against zero";
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (FakeState* which : {own.get(), other.get()}) {
      which->set(1, {0, 0, 0}, bad);
      const SegmentDifference seen = compare_states(*other, *own)[1];
      EXPECT_EQ(seen.heads[0].rms, kInfinity);
      EXPECT_EQ(seen.heads[0].largest, kInfinity);
      EXPECT_EQ(seen.rms, kInfinity);
      which->set(1, {0, 0, 0}, 1);
    }
  }
}

TEST(OneStep, IsTheDistanceToTheNextValue) {
  const FakeOrder orders[] = {{}, {.kv = DType::kF16}, {.kv = DType::kBF16}};
  const int bits[] = {23, 10, 7};
  for (size_t i = 0; i < 3; ++i) {
    const auto own = filled(orders[i], 1);
    // Keys of head 1: 3 and 4, whose steps are 2 and 4 units of the last place of 1.
    const PartDifference seen = one_step(*own)[2].heads[1];
    EXPECT_DOUBLE_EQ(seen.rms, std::ldexp(std::sqrt(20.0) / 5, -bits[i]));
    EXPECT_DOUBLE_EQ(seen.largest, std::ldexp(4 / std::sqrt(12.5), -bits[i]));
  }
  const auto own = filled({.kv = DType::kF16}, 1);
  own->set(2, {0, 0, 0}, 0);
  own->set(2, {0, 0, 1}, 0);
  EXPECT_EQ(one_step(*own)[2].heads[0], PartDifference());
}

TEST(CompareLogits, ByHand) {
  const std::vector<float> own = {0, std::log(3.0f)}, other = {0.5f, std::log(3.0f)};
  const LogitsDifference seen = compare_logits(other, own);
  EXPECT_NEAR(seen.rms, 0.5 / std::sqrt(2.0), 1e-7);
  EXPECT_NEAR(seen.largest, 0.5, 1e-7);
  // p_own = (1/4, 3/4); p_other = (e^0.5, 3) / (e^0.5 + 3).
  const double sum = std::exp(0.5) + 3;
  EXPECT_NEAR(seen.kl, 0.25 * std::log(0.25 * sum / std::exp(0.5)) + 0.75 * std::log(0.75 * sum / 3), 1e-7);
  EXPECT_TRUE(seen.agreed);
  const LogitsDifference same = compare_logits(own, own);
  EXPECT_EQ(same.kl, 0);
  EXPECT_EQ(same.rms, 0);
}

TEST(CompareLogits, WhatIsNotANumberIsInfinitelyFar) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const bool in_other : {true, false}) {
      std::vector<float> own = {1, 5, 3}, other = own;
      (in_other ? other : own)[2] = bad;
      const LogitsDifference seen = compare_logits(other, own);
      EXPECT_EQ(seen.largest, kInfinity);
      EXPECT_FALSE(judge(seen, {kInfinity, kInfinity, kInfinity}).passed);
    }
  }
}

TEST(Judge, EachFigureAgainstItsOwnBound) {
  const LogitsDifference seen{.rms = 1, .largest = 2, .kl = 3, .agreed = true};
  EXPECT_TRUE(judge(seen, {1, 2, 3}).passed) << "at the bound";
  EXPECT_FALSE(judge(seen, {0.99, 2, 3}).passed);
  EXPECT_FALSE(judge(seen, {1, 1.99, 3}).passed);
  EXPECT_FALSE(judge(seen, {1, 2, 2.99}).passed);
}

TEST(Judge, ADisagreementPassesOnlyAsANearTie) {
  const std::vector<float> own = {0, 2, 1, 0}, tie = {0, 1.45f, 1.55f, 0}, other = {0, 0.9f, 2.1f, 0};
  const LogitsBounds bounds = {0.6, 0.6, 0.6};
  EXPECT_TRUE(judge(compare_logits(tie, own), bounds).passed);
  EXPECT_TRUE(judge(compare_logits(tie, own), bounds).near_tie);
  EXPECT_FALSE(judge(compare_logits(other, own), bounds).passed);
  EXPECT_FALSE(judge(compare_logits(other, own), bounds).near_tie);
  EXPECT_FALSE(judge(compare_logits(own, own), bounds).near_tie) << "it agrees";
}

TEST(Bounds, CoverScaleAndAdd) {
  ProofBounds bounds;
  bounds.cover(StateDifference{{1.5, {{1, 5}, {2, 4}}}, {3, {{3, 3}}}});
  bounds.cover(StateDifference{{0.5, {{0, 9}, {0, 0}}}, {4, {{1, 1}}}});
  EXPECT_EQ(bounds.of(0), (SegmentBounds{1.5, {2, 9}}));
  EXPECT_EQ(bounds.of(1), (SegmentBounds{4, {3, 3}}));
  EXPECT_EQ(bounds.of(2), SegmentBounds()) << "what is not named is bound to nothing";
  bounds.cover(LogitsDifference{.rms = 1, .largest = 2, .kl = 3});
  bounds.cover(LogitsDifference{.rms = 2, .largest = 1, .kl = 1});
  EXPECT_EQ(bounds.logits, (LogitsBounds{2, 2, 3}));
  EXPECT_FALSE(bounds.exact());
  EXPECT_TRUE(ProofBounds().exact());
  ProofBounds both;
  both.segments = {{9, {1, 1}}};
  both.logits = {1, 9, 1};
  both.cover(bounds);
  EXPECT_EQ(both.of(0), (SegmentBounds{9, {2, 9}}));
  EXPECT_EQ(both.of(1), (SegmentBounds{4, {3, 3}}));
  EXPECT_EQ(both.logits, (LogitsBounds{2, 9, 3}));
  bounds.between = "a -> b";
  ProofBounds sum = bounds;
  sum.scale(3);
  sum.add(bounds);
  EXPECT_EQ(sum.of(0), (SegmentBounds{6, {8, 36}}));
  EXPECT_EQ(sum.logits, (LogitsBounds{8, 8, 30})) << "kl is of second order";
  EXPECT_EQ(sum.between, "a -> b, then a -> b");
  ProofBounds wider = bounds;
  wider.segments[0] = {1, {5, 11}};
  wider.logits = {3, 1, 4};
  const ProofBounds rest = wider.beyond(bounds);
  EXPECT_EQ(rest.of(0), (SegmentBounds{0, {3, 2}}));
  EXPECT_EQ(rest.of(1), SegmentBounds());
  EXPECT_EQ(rest.logits, (LogitsBounds{1, 0, 1}));
  bounds.add(rest);
  EXPECT_EQ(bounds.logits, (LogitsBounds{3, 2, 4}));
  EXPECT_EQ(bounds.between, "a -> b");
}

TEST(Bounds, TheWorstPartIsTheOneNearestItsBound) {
  ProofBounds bounds;
  bounds.segments = {{1, {1, 1}}, {10, {10, 10}}};
  const WorstPart near = worst_part({{0.4, {{0.5, 0.25}, {0.1, 0.75}}}, {6, {{6, 2}}}}, bounds);
  EXPECT_EQ(near.slot, 0u);
  EXPECT_EQ(near.head, 1u);
  EXPECT_EQ(near.figure, WorstPart::Figure::kHeadLargest);
  EXPECT_TRUE(near.passed());
  EXPECT_DOUBLE_EQ(near.share(), 0.75);
  EXPECT_TRUE(worst_part({{1, {{1, 1}}}, {10, {{10, 10}}}}, bounds).passed()) << "at the bound";
  EXPECT_FALSE(worst_part({{0, {{0, 0}}}, {0, {{10.01, 0}}}}, bounds).passed());
  EXPECT_FALSE(worst_part({{0, {{0, 0}}}, {0, {{0, 10.01}}}}, bounds).passed());
  EXPECT_FALSE(worst_part({{0, {{0, 0}}}, {10.01, {{0, 0}}}}, bounds).passed());
  EXPECT_TRUE(worst_part({{0, {{0, 0}}}}, {}).passed()) << "the same bits";
  EXPECT_FALSE(worst_part({{0, {{0, 0}}}, {0, {{1e-9, 0}}}}, {}).passed());
  const StateShape layout = state_shape(small_program(), DType::kF32);
  EXPECT_EQ(to_text(WorstPart{2, 1, WorstPart::Figure::kHeadLargest, 0.5, 0.25}, layout),
            "layer 1 keys head 1: largest 0.5 of 0.25 allowed");
  EXPECT_EQ(to_text(WorstPart{2, 1, WorstPart::Figure::kSegmentRms, 0.5, 0.25}, layout),
            "layer 1 keys: rms 0.5 of 0.25 allowed");
}

}  // namespace
}  // namespace baton::test

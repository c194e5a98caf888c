// Who made a state: steps run together, bounds that hold, and one form only.
#include "baton/state/provenance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "baton/base/random.h"

namespace baton {
namespace {

const StateMaker kEmulatedCard{"cuda", "cuda/emulated-f32/0123abcd"};
const StateMaker kCpu{"cpu", "cpu/avx512/0123abcd"}, kRef{"ref", "ref/f32/0123abcd"};

TEST(ProvenanceTest, StepsOfOneKindAndSizeRunTogether) {
  Provenance made;
  made.add(kCpu, StepKind::kPrefill, 512);
  made.add(kCpu, StepKind::kPrefill, 512);
  made.add(kCpu, StepKind::kPrefill, 37);
  made.add(kRef, StepKind::kDecode, 1);
  made.add(kRef, StepKind::kDecode, 1, 6);
  made.add(kRef, StepKind::kDecode, 1, 1, true);
  made.add(kRef, StepKind::kPrefill, 0);
  const std::vector<StateStep> steps = {{0, StepKind::kPrefill, false, 512, 2},
                                        {0, StepKind::kPrefill, false, 37, 1},
                                        {1, StepKind::kDecode, false, 1, 8}};  // neighbours do not show in decodes
  EXPECT_EQ(made.steps, steps);
  EXPECT_EQ(made.makers, (std::vector<StateMaker>{kCpu, kRef}));
  EXPECT_EQ(made.tokens(), 1069u);
  EXPECT_EQ(made.tokens_of(0), 1061u);
  EXPECT_TRUE(made.replayable());
  EXPECT_TRUE(check_provenance(made, 1069));
  EXPECT_FALSE(check_provenance(made, 1068));
  EXPECT_FALSE(check_provenance(made, 1070));
  EXPECT_EQ(to_lines(made), (std::vector<std::string>{"cpu (cpu/avx512/0123abcd): prefill 512 x2, prefill 37",
                                                      "ref (ref/f32/0123abcd): decode 8"}));
}

TEST(ProvenanceTest, WhatWasRoundedSaysSo) {
  Provenance made;
  made.add(kCpu, StepKind::kPrefill, 512, 2);
  made.add(kRef, StepKind::kDecode, 1, 8);
  Provenance rounded = made.rounded();
  EXPECT_EQ(rounded.steps, made.steps);
  EXPECT_EQ(to_lines(rounded), (std::vector<std::string>{"cpu (cpu/avx512/0123abcd+bf16): prefill 512 x2",
                                                         "ref (ref/f32/0123abcd+bf16): decode 8"}));
  EXPECT_FALSE(rounded.replayable());
  rounded.add(kRef, StepKind::kDecode, 1, 4);
  EXPECT_EQ(rounded.makers.size(), 3u);
  EXPECT_FALSE(rounded.replayable());
  // Again: what was rounded and what was not since are one maker's.
  rounded = rounded.rounded();
  EXPECT_EQ(rounded.steps.back(), (StateStep{1, StepKind::kDecode, false, 1, 12}));
  EXPECT_TRUE(check_provenance(rounded, 1036));
  EXPECT_EQ(Provenance::unknown(7).rounded(), Provenance::unknown(7));
  const Provenance longest = Provenance::of("cpu", std::string(kMakerArithmeticMax, 'a'), 7);
  EXPECT_EQ(longest.rounded(), Provenance::unknown(7));
}

TEST(ProvenanceTest, OnlyPrefillsAreShared) {
  Provenance made;
  made.add(kCpu, StepKind::kDecode, 1, 3);
  EXPECT_TRUE(check_provenance(made, 3));
  made.steps[0].shared = true;
  EXPECT_FALSE(check_provenance(made, 3));
  made.steps[0] = {0, StepKind::kMixed, true, 3, 1};
  EXPECT_FALSE(check_provenance(made, 3));
  made.steps[0] = {0, StepKind::kPrefill, true, 3, 1};
  EXPECT_TRUE(check_provenance(made, 3));
}

TEST(ProvenanceTest, EveryKeyOfAMakerCounts) {
  Provenance made;
  made.add(kCpu, StepKind::kDecode, 1);
  made.add({"cpu", "cpu/avx2/0123abcd"}, StepKind::kDecode, 1);
  EXPECT_EQ(made.makers.size(), 2u);
  EXPECT_EQ(made.steps.size(), 2u);
}

// Thousands of steps of many makers: within the bounds, in the one form, and no token is lost.
TEST(ProvenanceTest, ALongLifeStaysWithinTheBounds) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    const uint64_t makers = 1 + random.below(12);
    Provenance made;
    uint64_t tokens = 0;
    bool was_replayable = true;
    for (int step = 0; step < 1500; ++step) {
      const uint64_t count = 1 + random.below(300);
      const bool decode = random.below(2) == 0;
      made.add({"unit", fmt::format("unit/{}", random.below(makers))}, decode ? StepKind::kDecode : StepKind::kPrefill,
               decode ? 1 : count, decode ? count : 1, random.below(4) == 0);
      tokens += count;
      const Status sound = check_provenance(made, tokens);
      ASSERT_TRUE(sound) << sound.error().message;
      was_replayable = was_replayable && made.replayable();
    }
    EXPECT_FALSE(was_replayable);  // 1,500 steps do not fit
    EXPECT_EQ(made.makers.size(), std::min<uint64_t>(makers, kMakersMax));
    const bool unknown = made.makers.back().unit == kMakerUnknown;
    EXPECT_EQ(unknown, makers >= kMakersMax) << makers;
  }
}

TEST(ProvenanceTest, FullToTheLastStepIsStillKnown) {
  Provenance made;
  for (uint64_t i = 0; i < kStepsMax; ++i) made.add(kCpu, StepKind::kPrefill, 1 + i % 2);
  EXPECT_EQ(made.steps.size(), kStepsMax);
  EXPECT_TRUE(made.replayable());
  made.add(kCpu, StepKind::kDecode, 1);
  EXPECT_FALSE(made.replayable());
  EXPECT_EQ(made.steps.size(), 2u);
  EXPECT_TRUE(check_provenance(made, kStepsMax / 2 * 3 + 1));
}

TEST(ProvenanceTest, AMakerThatComesWhenAllIsFullHasOneStep) {
  Provenance made;
  for (uint64_t i = 0; i < kStepsMax; ++i) made.add(kCpu, StepKind::kPrefill, 1 + i % 2);
  made.add({"another", "f32"}, StepKind::kPrefill, 7);
  ASSERT_EQ(made.steps.size(), 2u);
  EXPECT_EQ(made.tokens_of(1), 7u);
  EXPECT_TRUE(check_provenance(made, kStepsMax / 2 * 3 + 7));
}

TEST(ProvenanceTest, SaysWhoIsEmulated) {
  EXPECT_TRUE(is_emulated(kEmulatedCard.arithmetic));
  EXPECT_TRUE(is_emulated("ane/emulated-m1-strict/0123abcd"));
  for (const char* other :
       {"cuda/sm_90/0badcafe/0123abcd", "emulated", "cuda-emulated/0123abcd", "cpu/avx2/emulated", ""})
    EXPECT_FALSE(is_emulated(other)) << other;
  EXPECT_EQ(with_emulated("cuda:device=1", kEmulatedCard.arithmetic), "cuda:device=1 (emulated)");
  EXPECT_EQ(with_emulated("cpu", kCpu.arithmetic), "cpu");
  Provenance made;
  made.add(kEmulatedCard, StepKind::kPrefill, 37);
  EXPECT_EQ(to_lines(made), (std::vector<std::string>{"cuda (emulated, cuda/emulated-f32/0123abcd): prefill 37"}));
}

TEST(ProvenanceTest, AStrangersStepsCannotBeRepeated) {
  EXPECT_FALSE(Provenance::unknown(5).replayable());
  EXPECT_FALSE(Provenance::of(kMakerForeign, "mlx", 5).replayable());
  EXPECT_TRUE(check_provenance(Provenance::of(kMakerForeign, "mlx", 5), 5));
  EXPECT_TRUE(check_provenance(Provenance::unknown(0), 0));
  EXPECT_TRUE(Provenance::unknown(0).makers.empty());
}

}  // namespace
}  // namespace baton

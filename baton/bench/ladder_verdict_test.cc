// The Pareto front and significance on hand-made figures.
#include "baton/bench/ladder_verdict.h"

#include <gtest/gtest.h>

#include <cmath>

#include "baton/base/random.h"

namespace baton {
namespace {

constexpr size_t kWindows = 40, kRounds = 7;

// Windows share their difficulty over points; `noise` is a point's own.
LadderPoint point(const std::string& type, uint64_t bytes, double kld, double tps, double noise, uint64_t seed) {
  Random shared(1), own(seed);
  LadderPoint point{type, bytes, {}, {}, {}, {}};
  for (size_t i = 0; i < kWindows; ++i) {
    const double difficulty = 1 + 0.5 * std::fabs(shared.normal());
    point.kld.push_back(kld * difficulty + noise * own.normal());
    point.nll.push_back(2.5 * difficulty + point.kld.back());
  }
  for (size_t i = 0; i < kRounds; ++i) {
    const double drift = 1 - 0.05 * static_cast<double>(i);
    point.decode_tps.push_back(tps * drift * (1 + 0.002 * own.normal()));
    point.prefill_tps.push_back(10 * point.decode_tps.back());
  }
  return point;
}

TEST(Ladder, ParetoFront) {
  const std::vector<LadderPoint> points = {
      point("big", 100, 0.001, 10, 0, 2),
      point("slow", 60, 0.010, 5, 0, 3),  // larger and slower than "small", but closer
      point("bad", 60, 0.030, 6, 0, 4),   // faster than "slow", worse than "small" in all
      point("small", 50, 0.020, 20, 0, 5),
      point("fast", 55, 0.020 + 1e-9, 30, 0, 6),  // larger, no closer, faster
  };
  const LadderVerdict verdict = judge_ladder(points, 0.95, 1);
  EXPECT_TRUE(verdict.has_speed);
  const std::vector<bool> expected = {true, true, false, true, true};
  for (size_t i = 0; i < points.size(); ++i) EXPECT_EQ(verdict.standings[i].pareto, expected[i]) << points[i].type;
  EXPECT_EQ(verdict.standings[2].dominated_by, 3u);
  EXPECT_FALSE(verdict.standings[0].dominated_by);

  // Without speeds "fast" loses its only merit.
  std::vector<LadderPoint> quality_only = points;
  for (LadderPoint& item : quality_only) item.decode_tps.clear(), item.prefill_tps.clear();
  const LadderVerdict without = judge_ladder(quality_only, 0.95, 1);
  EXPECT_FALSE(without.has_speed);
  EXPECT_FALSE(without.standings[4].pareto);
  EXPECT_EQ(without.standings[4].dominated_by, 3u);
  EXPECT_FALSE(without.neighbours.front().decode);
}

TEST(Ladder, EqualPointsShareTheFront) {
  const std::vector<LadderPoint> points = {point("a", 10, 0.1, 5, 0, 2), point("b", 10, 0.1, 5, 0, 2)};
  const LadderVerdict verdict = judge_ladder(points, 0.95, 1);
  EXPECT_TRUE(verdict.standings[0].pareto);
  EXPECT_TRUE(verdict.standings[1].pareto);
  EXPECT_FALSE(verdict.standings[0].challenged_by);
}

TEST(Ladder, PairingFindsWhatNoiseOfTheTextHides) {
  // The spread over windows (0.5 of the value) is a hundred times the difference; the pairs all agree on it.
  const auto a = point("a", 10, 0.0200, 5, 1e-6, 2), b = point("b", 11, 0.0199, 5, 1e-6, 3);
  const auto interval = paired_difference(a.kld, b.kld, 0.95, 1);
  EXPECT_TRUE(interval.differs());
  EXPECT_NEAR(interval.value, 1.4e-4, 4e-5);
  EXPECT_LT(interval.low, interval.value);
  EXPECT_GT(interval.high, interval.value);
  // And noise of the points' own is not taken for a difference.
  int seen = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto c = point("c", 10, 0.02, 5, 1e-3, 100 + seed), d = point("d", 11, 0.02, 5, 1e-3, 200 + seed);
    seen += paired_difference(c.kld, d.kld, 0.95, 1).differs() ? 1 : 0;
  }
  EXPECT_LE(seen, 8);  // 2 expected of 40
}

TEST(Ladder, FrontByChanceIsChallenged) {
  // "lucky" is larger and by chance a little closer than "plain": not significant.
  std::vector<LadderPoint> points = {point("lucky", 11, 0.02, 5, 1e-3, 7), point("plain", 10, 0.02, 5, 1e-3, 8)};
  if (judge_ladder(points, 0.95, 1).standings[0].dominated_by) std::swap(points[0].kld, points[1].kld);
  const LadderVerdict verdict = judge_ladder(points, 0.95, 1);
  ASSERT_TRUE(verdict.standings[0].pareto);
  EXPECT_EQ(verdict.standings[0].challenged_by, 1u);
  EXPECT_FALSE(verdict.standings[1].challenged_by);
  ASSERT_EQ(verdict.neighbours.size(), 1u);
  EXPECT_FALSE(verdict.neighbours[0].kld.differs());
  std::string text;
  for (const std::string& line : verdict_text(points, verdict)) text += line + "\n";
  EXPECT_NE(text.find("lucky (plain)"), std::string::npos) << text;
  EXPECT_NE(text.find("lucky and plain"), std::string::npos) << text;
}

// Byte-identical copies: with one run of each, the faster one by chance was said to dominate.
TEST(Ladder, FewRoundsGiveNoVerdictOnSpeed) {
  std::vector<LadderPoint> points = {point("source", 10, 0, 5.0, 0, 2), point("copy", 10, 0, 5.1, 0, 2)};
  for (LadderPoint& item : points) item.kld.assign(item.kld.size(), 0), item.nll = points[0].nll;
  for (LadderPoint& item : points) item.decode_tps.resize(5), item.prefill_tps.resize(5);
  const LadderVerdict verdict = judge_ladder(points, 0.95, 1);
  EXPECT_TRUE(verdict.too_few_rounds);
  EXPECT_FALSE(verdict.has_speed);
  for (const LadderStanding& standing : verdict.standings) EXPECT_TRUE(standing.pareto);
  EXPECT_FALSE(verdict.neighbours[0].decode->known);
  EXPECT_FALSE(verdict.neighbours[0].decode->differs());
  std::string text;
  for (const std::string& line : verdict_text(points, verdict)) text += line + "\n";
  EXPECT_NE(text.find("Too few rounds to say which speeds differ: 6 are needed at 95 % (-r 6)."), std::string::npos)
      << text;
  EXPECT_NE(text.find("Dominated, as measured: none"), std::string::npos) << text;
  EXPECT_EQ(text.find("decode speeds"), std::string::npos) << "no list of what does not differ\n" << text;
}

// An emulator's speeds say nothing of the device: they take no part, and the words say so.
TEST(Ladder, EmulatedSpeedsTakeNoPart) {
  std::vector<LadderPoint> points = {point("source", 10, 0, 5.0, 0, 2), point("copy", 5, 0, 50.0, 0, 2)};
  const auto text_of = [&](const LadderVerdict& verdict) {
    std::string text = advise(points, verdict).text + "\n";
    for (const std::string& line : verdict_text(points, verdict)) text += line + "\n";
    return text;
  };
  EXPECT_TRUE(judge_ladder(points, 0.95, 1).has_speed);
  const LadderVerdict verdict = judge_ladder(points, 0.95, 1, true);
  EXPECT_FALSE(verdict.has_speed);
  EXPECT_TRUE(verdict.emulated);
  EXPECT_NE(text_of(verdict).find("(speed takes no part: emulated)"), std::string::npos) << text_of(verdict);
  for (const char* word : {"decode speed:", "It decodes", "decode speeds", "Speeds were not measured"})
    EXPECT_EQ(text_of(verdict).find(word), std::string::npos) << text_of(verdict);
  for (LadderPoint& item : points) item.decode_tps.resize(2), item.prefill_tps.resize(2);
  EXPECT_EQ(text_of(judge_ladder(points, 0.95, 1)).find("not measured"), std::string::npos);
  for (LadderPoint& item : points) item.decode_tps.clear(), item.prefill_tps.clear();
  EXPECT_FALSE(judge_ladder(points, 0.95, 1, true).emulated);
}

// With rounds enough, a lead in speed alone still has to be more than chance.
TEST(Ladder, CopiesOfOneFileDoNotDominateEachOther) {
  std::vector<LadderPoint> points = {point("source", 10, 0.1, 5, 0, 2), point("copy", 10, 0.1, 5, 0, 2)};
  points[1].decode_tps = points[0].decode_tps;
  for (size_t i = 0; i < points[1].decode_tps.size(); ++i) points[1].decode_tps[i] *= i % 3 == 0 ? 0.99 : 1.005;
  const LadderVerdict chance = judge_ladder(points, 0.95, 1);
  EXPECT_TRUE(chance.standings[0].pareto && chance.standings[1].pareto);
  for (double& speed : points[1].decode_tps) speed *= 1.5;
  EXPECT_FALSE(judge_ladder(points, 0.95, 1).standings[0].pareto);
}

TEST(Ladder, FewWindowsGiveNoVerdictOnQuality) {
  std::vector<LadderPoint> points = {point("a", 11, 0.01, 5, 0, 2), point("b", 10, 0.02, 5, 0, 3)};
  for (LadderPoint& item : points) item.kld.resize(kVerdictWindowsMin - 1), item.nll.resize(kVerdictWindowsMin - 1);
  const LadderVerdict verdict = judge_ladder(points, 0.95, 1);
  EXPECT_FALSE(verdict.intervals_known);
  EXPECT_FALSE(verdict.neighbours[0].kld.differs());
  EXPECT_FALSE(verdict.standings[0].challenged_by);
  std::string text;
  for (const std::string& line : verdict_text(points, verdict)) text += line;
  EXPECT_NE(text.find("too few to say"), std::string::npos);
}

// Speeds that drift by 30 % over the rounds still compare exactly, as each round has both.
TEST(Ladder, SpeedsAreComparedByRound) {
  const std::vector<LadderPoint> points = {point("a", 11, 0.01, 5.0, 0, 2), point("b", 10, 0.02, 5.1, 0, 3),
                                           point("c", 9, 0.03, 5.1, 0, 3)};
  const LadderVerdict verdict = judge_ladder(points, 0.95, 1);
  ASSERT_EQ(verdict.neighbours.size(), 2u);
  ASSERT_TRUE(verdict.neighbours[0].decode);
  EXPECT_TRUE(verdict.neighbours[0].decode->differs());
  EXPECT_NEAR(verdict.neighbours[0].decode->ratio, 1.02, 0.004);
  EXPECT_FALSE(verdict.neighbours[1].decode->differs());
}

// Three types lose 0.1 %, 0.5 % and 3 %, the second with noise around 1 %.
TEST(Ladder, TheSmallestThatIsSureToLoseLittleIsRecommended) {
  std::vector<LadderPoint> points = {point("F16", 100, 0, 10, 0, 2), point("Q8", 50, 0.001, 20, 0, 3),
                                     point("Q6", 40, 0.002, 15, 0, 4), point("Q4", 25, 0.03, 30, 0, 5)};
  points[0].is_source = true;
  const auto advice = [&] { return advise(points, judge_ladder(points, 0.95, 1)); };
  EXPECT_EQ(advice().take, 2u);
  const std::string text = advice().text;
  for (const char* part :
       {"Take Q6: ", "less than 1 % of perplexity with 95 % confidence", "40 % of the source",
        "The next smaller, Q4, loses +4.", "1.50x as fast as the source", "Q8 decodes 1.33x as fast as Q6"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;

  // The mean is below 1 %, the interval is not: not sure.
  points[2] = point("Q6", 40, 0.004, 15, 0.02, 4);
  ASSERT_LT(paired_difference(points[2].nll, points[0].nll, 0.95, 1).value, 0.0095);
  EXPECT_EQ(advice().take, 1u);
  // Nothing is good enough; nothing to compare with; too few windows; no speeds.
  points[1] = point("Q8", 50, 0.02, 20, 0, 3);
  EXPECT_FALSE(advice().take);
  EXPECT_NE(advice().text.find("No recommendation: no type here"), std::string::npos) << advice().text;
  points[1] = point("Q8", 50, 0.001, 20, 0, 3);
  points[0].is_source = false;
  EXPECT_NE(advice().text.find("no quantized type"), std::string::npos);
  points[0].is_source = true;
  for (LadderPoint& item : points) item.decode_tps.clear(), item.prefill_tps.clear();
  EXPECT_NE(advice().text.find("Speeds were not measured"), std::string::npos);
  for (LadderPoint& item : points) item.kld.resize(kVerdictWindowsMin - 1), item.nll.resize(kVerdictWindowsMin - 1);
  EXPECT_FALSE(advice().take);
  EXPECT_NE(advice().text.find("fewer than 10 windows"), std::string::npos);
}

}  // namespace
}  // namespace baton

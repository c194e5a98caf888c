// How often identical configurations look different, under drift, spikes and slow first runs; what peers print.
#include "baton/bench/ab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "baton/base/random.h"

namespace baton {
namespace {

// Speeds of consecutive runs on a bad machine.
class Noise {
 public:
  explicit Noise(uint64_t seed) : random_(seed) {
    drift_ = 0.02f * random_.normal();
    wave_ = random_.uniform(1, 40);
  }
  // `place`: of the run in its round, 0 to 3.
  double factor(int place) {
    const double run = runs_++;
    walk_ += 0.01 * random_.normal();
    double log_speed = drift_ * run;                                   // throttling, up to some per cent a run
    log_speed += 0.05 * std::sin(2 * std::numbers::pi * run / wave_);  // neighbours that come and go
    log_speed += walk_ + 0.03 * random_.normal();
    if (place == 0) log_speed -= 0.1;                                     // cold after the rest
    if (random_.uniform() < 0.1f) log_speed -= random_.uniform(0, 0.7f);  // something else ran
    return std::exp(log_speed);
  }
  bool coin() { return random_.uniform() < 0.5f; }

 private:
  Random random_;
  double drift_ = 0, wave_ = 1, walk_ = 0;
  int runs_ = 0;
};

std::vector<AbRound> rounds_of(Noise& noise, int count, double a_over_b) {
  std::vector<AbRound> rounds;
  for (int i = 0; i < count; ++i) {
    AbRound round;
    round.a_outside = noise.coin();
    int a = 0, b = 0;
    for (int place = 0; place < 4; ++place) {
      const bool is_a = (place == 0 || place == 3) == round.a_outside;
      if (is_a) {
        round.a[a++] = 100 * a_over_b * noise.factor(place);
      } else {
        round.b[b++] = 100 * noise.factor(place);
      }
    }
    rounds.push_back(round);
  }
  return rounds;
}

struct Tally {
  double differs = 0, covers = 0;  // shares of the trials
};
Tally trials(int count, int rounds, double confidence, double a_over_b) {
  Tally tally;
  for (int trial = 0; trial < count; ++trial) {
    Noise noise(static_cast<uint64_t>(trial) * 977 + 5);
    const auto verdict = ab_verdict(rounds_of(noise, rounds, a_over_b), confidence, 1, 1);
    EXPECT_TRUE(verdict) << verdict.error().message;
    if (!verdict) return tally;
    tally.differs += verdict->differs() ? 1.0 / count : 0;
    tally.covers += verdict->interval.low <= a_over_b && a_over_b <= verdict->interval.high ? 1.0 / count : 0;
  }
  return tally;
}

// At 90 % at most one in ten, and one in a thousand at 99.9 %: more than 3 standard errors of the trials above it is a
// broken promise.
TEST(Ab, IdenticalConfigurationsDifferNoMoreOftenThanStated) {
  for (const int rounds : {8, 14}) {
    const Tally at_90 = trials(1000, rounds, 0.90, 1);
    EXPECT_LE(at_90.differs, 0.10 + 3 * std::sqrt(0.1 * 0.9 / 1000)) << rounds;
    EXPECT_GE(at_90.covers, 0.90 - 3 * std::sqrt(0.1 * 0.9 / 1000)) << rounds;
    EXPECT_GT(at_90.differs, 0.01) << "an interval this wide shows nothing";
  }
  EXPECT_LE(trials(1000, 14, 0.999, 1).differs, 0.001 + 3 * std::sqrt(0.001 / 1000));
}

TEST(Ab, IntervalCoversTheTruthAndSeesClearDifferences) {
  const Tally faster = trials(300, 14, 0.95, 1.5);
  EXPECT_GE(faster.covers, 0.95 - 3 * std::sqrt(0.05 * 0.95 / 300));
  EXPECT_GE(faster.differs, 0.95);
  EXPECT_GE(trials(300, 14, 0.999, 1.8).differs, 0.9);
}

// Without noise the ratio is exact, and turning A and B round turns it round.
TEST(Ab, RatioIsOfAOverB) {
  std::vector<AbRound> rounds, turned;
  for (int i = 0; i < 12; ++i) {
    const double slower = std::pow(0.9, i);  // drift
    rounds.push_back({true, {220 * slower, 220 * slower}, {200 * slower, 200 * slower}});
    turned.push_back({true, {200 * slower, 200 * slower}, {220 * slower, 220 * slower}});
  }
  const auto verdict = ab_verdict(rounds, 0.999, 1, 1), other = ab_verdict(turned, 0.999, 1, 1);
  EXPECT_NEAR(verdict->interval.ratio, 1.1, 1e-12);
  EXPECT_TRUE(verdict->differs());
  EXPECT_NEAR(other->interval.ratio, 1 / 1.1, 1e-12);
}

TEST(Ab, TheIntervalIsTheWiderOfTheTwo) {
  Random random(3);
  std::vector<AbRound> rounds;
  for (int i = 0; i < 12; ++i) {
    const auto speed = [&] { return 100 * std::exp(0.05 * random.normal()); };
    rounds.push_back({true, {speed(), speed()}, {speed(), speed()}});
  }
  const auto verdict = ab_verdict(rounds, 0.999, 1, 1);
  ASSERT_TRUE(verdict);
  EXPECT_NE(verdict->exact.low, verdict->bootstrap.low);
  EXPECT_NE(verdict->exact.high, verdict->bootstrap.high);
  EXPECT_EQ(verdict->interval.low, std::min(verdict->exact.low, verdict->bootstrap.low));
  EXPECT_EQ(verdict->interval.high, std::max(verdict->exact.high, verdict->bootstrap.high));
}

// Tables of the signed-rank test: at 5 % two-sided, 10 values leave 9 of the 55 pair means out on each side (critical
// value 8); 6 values leave 1, 5 none.
TEST(Ab, IntervalsAreThoseOfTheTables) {
  std::vector<double> values;
  for (int i = 1; i <= 10; ++i) values.push_back(i * i);
  std::vector<double> means;
  for (size_t i = 0; i < 10; ++i) {
    for (size_t j = i; j < 10; ++j) means.push_back((values[i] + values[j]) / 2);
  }
  std::sort(means.begin(), means.end());
  const auto interval = signed_rank_interval(values, 0.05);
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->low, means[8]);
  EXPECT_EQ(interval->high, means[55 - 9]);
  EXPECT_EQ(interval->centre, quantile(means, 0.5));
  const auto six = signed_rank_interval(std::span(values).first(6), 0.05);
  ASSERT_TRUE(six);
  EXPECT_EQ(six->low, 1);
  EXPECT_EQ(six->high, 36);
  EXPECT_FALSE(signed_rank_interval(std::span(values).first(5), 0.05));
}

TEST(Ab, TooFewRoundsAreRefusedWithTheNumberNeeded) {
  EXPECT_EQ(ab_rounds_needed(0.90, 1), 5u);
  EXPECT_EQ(ab_rounds_needed(0.99, 1), 8u);
  EXPECT_EQ(ab_rounds_needed(0.999, 1), 11u);
  EXPECT_EQ(ab_rounds_needed(0.999, 2), 12u);
  const std::vector<AbRound> rounds(7, AbRound{true, {1, 1}, {1, 1}});
  const auto verdict = ab_verdict(rounds, 0.99, 1, 1);
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().message, "7 rounds cannot show a difference in 1 tests at 99 %: at least 8");
}

TEST(Ab, EqualSpeedsAreNoDifference) {
  const std::vector<AbRound> rounds(12, AbRound{true, {5, 5}, {5, 5}});
  EXPECT_FALSE(ab_verdict(rounds, 0.999, 1, 1)->differs());
}

// An emulator's time says nothing of the device, however far apart the two are.
TEST(Ab, NoVerdictBetweenEmulatedAndMeasured) {
  const std::vector<AbRound> rounds(12, AbRound{true, {9, 9}, {5, 5}});
  const AbVerdict verdict = *ab_verdict(rounds, 0.999, 1, 1);
  EXPECT_EQ(ab_words(verdict, false, false), "A is faster");
  EXPECT_EQ(ab_words(verdict, true, true), "A is faster (emulated)");
  EXPECT_EQ(ab_words(verdict, true, false), "none: A is emulated and B measured");
  EXPECT_EQ(ab_words(verdict, false, true), "none: B is emulated and A measured");
}

TEST(SpeedRows, QualityIsThatOfTheRow) {
  const auto rows = parse_speed_rows(
      R"([{"n_prompt": 5, "n_gen": 0, "avg_ts": 1, "quality": "emulated"},
          {"n_prompt": 0, "n_gen": 5, "avg_ts": 1, "quality": "measured"}, {"n_prompt": 0, "n_gen": 6, "avg_ts": 1}])",
      "peer");
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_TRUE((*rows)[0].emulated);
  EXPECT_FALSE((*rows)[1].emulated);
  EXPECT_FALSE((*rows)[2].emulated);
}

TEST(SpeedRows, ListOfLlamaBench) {
  const auto rows = parse_speed_rows(R"(loading ...
[
  {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 327.4, "samples_ts": [ 300.0, 330.0, 352.2 ]},
  {"n_prompt": 0, "n_gen": 64, "avg_ts": 27.0, "samples_ts": []}
]
)",
                                     "peer");
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].name(), "pp512");
  EXPECT_EQ((*rows)[0].tokens_per_second, 330);
  EXPECT_EQ((*rows)[1].name(), "tg64");
  EXPECT_EQ((*rows)[1].tokens_per_second, 27);
  EXPECT_FALSE((*rows)[0].same_test((*rows)[1]));
}

TEST(SpeedRows, LinesWithLogsBetween) {
  const auto rows = parse_speed_rows(
      "warning: x\n{\"n_prompt\": 0, \"n_gen\": 8, \"n_depth\": 64, \"n_sequences\": 4, \"avg_ts\": 9}\nbye\n", "peer");
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ((*rows)[0].name(), "tg8 x 4 @ d64");
}

TEST(SpeedRows, WhatIsMissingIsSaid) {
  const auto message = [](const char* text) { return parse_speed_rows(text, "peer").error().message; };
  EXPECT_EQ(message("no such model\n"), "peer: printed no JSON rows of llama-bench");
  EXPECT_EQ(message(""), "peer: printed no JSON rows of llama-bench");
  EXPECT_EQ(message("[{\"n_prompt\": 5}]"), "peer: a row without 'n_gen'");
  EXPECT_EQ(message("[{\"n_prompt\": 5, \"n_gen\": 0}]"), "peer: a row without speeds");
  EXPECT_EQ(message("[{\"n_prompt\": 5, \"n_gen\": 0, \"avg_ts\": 0}]"), "peer: pp5 has no speed above 0");
  EXPECT_EQ(message("[{\"n_prompt\": -5, \"n_gen\": 0, \"avg_ts\": 1}]"), "peer: a row without 'n_prompt'");
}

TEST(SplitWords, QuotesKeepSpaces) {
  EXPECT_EQ(*split_words("  -t 1 -m 'a b.gguf' --x=\"\" y\"z w\" "),
            (std::vector<std::string>{"-t", "1", "-m", "a b.gguf", "--x=", "yz w"}));
  EXPECT_TRUE(split_words("")->empty());
  EXPECT_FALSE(split_words("a 'b"));
}

}  // namespace
}  // namespace baton

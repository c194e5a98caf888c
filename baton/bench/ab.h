// Which of two configurations is faster, by interleaved runs: four runs a round, A B B A or B A A B by the toss of a
// coin, so that a steady drift cancels inside a round and whatever else depends on the place in a round falls on both.
//
// A round gives one number, log(a1 a2 / (b1 b2)) / 2. When A and B are the same, the coin alone decides its sign,
// whatever the noise is like (drift, spikes, a slow first run): the signed-rank test (Wilcoxon, "Individual Comparisons
// by Ranking Methods", 1945) on these numbers then errs no more often than it says, with any number of rounds. A
// percentile bootstrap does not: with 5 to 15 values its intervals are too short. The interval given is the wider of
// the two.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/bench/stats.h"

namespace baton {

inline constexpr uint32_t kAbRoundsMin = 5, kAbRoundsMax = 200;

struct AbRound {
  bool a_outside = true;        // A B B A
  double a[2] = {}, b[2] = {};  // speeds, above 0, in the order of the runs
};

// The fewest rounds, at least kAbRoundsMin, that can show a difference at `confidence` (0 to 1) among `tests` tests
// that are judged together.
uint32_t ab_rounds_needed(double confidence, uint32_t tests);

struct AbVerdict {
  RatioInterval interval;  // of A's speed over B's; the wider of these two
  RatioInterval exact, bootstrap;
  bool differs() const { return interval.differs(); }
};
// `confidence` holds for all `tests` together (each gets its share of the error). kInvalidInput for too few rounds.
Result<AbVerdict> ab_verdict(std::span<const AbRound> rounds, double confidence, uint32_t tests, uint64_t seed);

// Signed-rank interval of the centre of symmetric values, and its estimate (Hodges and Lehmann, "Estimates of Location
// Based on Rank Tests", 1963): the median of the means of all pairs. Not above `alpha`, two-sided. Empty when no
// interval of so few values is so sure.
struct CentreInterval {
  double centre = 0, low = 0, high = 0;
};
std::optional<CentreInterval> signed_rank_interval(std::span<const double> values, double alpha);

// A row of the JSON of llama-bench or of `baton bench`.
struct SpeedRow {
  uint32_t prefill_tokens = 0, decode_tokens = 0, depth = 0, sequences = 1;
  double tokens_per_second = 0;  // the median of the samples, or the mean where there are none
  bool emulated = false;         // the row says so: "quality"; what does not say counts as measured
  std::string name() const;
  bool same_test(const SpeedRow& other) const;
};
// A JSON list, or one object a line; other lines before and between are skipped, as programs write logs. kInvalidInput
// names `source` and what is missing.
Result<std::vector<SpeedRow>> parse_speed_rows(std::string_view text, std::string_view source);

// "A is faster", "B is faster", "no difference shown", with "(emulated)" behind it when both times are. Without a
// verdict, "none: " and why: an emulated time is the emulator's and says nothing of the device.
std::string ab_words(const AbVerdict& verdict, bool a_emulated, bool b_emulated);
bool ab_comparable(bool a_emulated, bool b_emulated);

// Words of a command line: split at spaces, quotes '...' and "..." keep them. kInvalidInput for a quote without end.
Result<std::vector<std::string>> split_words(std::string_view text);

}  // namespace baton

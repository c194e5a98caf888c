// What a ladder of quantized copies shows: which are on the Pareto front of size, closeness to the source and decode
// speed, and which differences are larger than their errors. Pure functions over measured figures.
//
// Closeness is the mean KL divergence from the source model. Tokens of one window share their context, so windows are
// what intervals draw from; speeds are compared round by round, as rounds go over all types in turn.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/bench/stats.h"

namespace baton {

// With fewer windows a bootstrap interval is too narrow to be believed, and nothing is said.
inline constexpr size_t kVerdictWindowsMin = 10;

struct LadderPoint {
  std::string type;
  uint64_t bytes = 0;
  std::vector<double> kld, nll;                 // means of each window, the same windows for all points
  std::vector<double> prefill_tps, decode_tps;  // by round; empty: not measured
  bool is_source = false;
};

// mean(a) - mean(b) with a percentile bootstrap interval over pairs.
struct DifferenceInterval {
  double value = 0, low = 0, high = 0;
  bool known = false;  // enough pairs
  bool differs() const { return known && (low > 0 || high < 0); }
};
DifferenceInterval paired_difference(std::span<const double> a, std::span<const double> b, double confidence,
                                     uint64_t seed, uint32_t rounds = 2000);

// Two types next to each other in size.
struct LadderComparison {
  size_t larger = 0, smaller = 0;                // points
  DifferenceInterval kld, nll;                   // smaller - larger
  std::optional<RatioInterval> prefill, decode;  // smaller / larger; empty: not measured
};

struct LadderStanding {
  // By the figures as measured: no other point is at least as good in all of size, KL divergence and decode speed and
  // better in one; in speed alone by more than chance.
  bool pareto = false;
  std::optional<size_t> dominated_by;  // a point on the front
  // Of points on the front: a smaller (or equally large) point whose KL divergence and decode speed are not
  // significantly worse, so that the place rests on differences that may be chance.
  std::optional<size_t> challenged_by;
};

struct LadderVerdict {
  double confidence = 0;
  bool has_speed = false;                    // decode speed took part
  bool too_few_rounds = false;               // speeds were measured, but nothing can be said of them
  bool emulated = false;                     // speeds are an emulator's: they say nothing of the device
  bool intervals_known = false;              // enough windows for challenged_by and the comparisons of quality
  std::vector<LadderStanding> standings;     // by point
  std::vector<LadderComparison> neighbours;  // the largest first
};
LadderVerdict judge_ladder(std::span<const LadderPoint> points, double confidence, uint64_t seed,
                           bool emulated = false);

// A type is recommended when the upper end of the interval of its loss of perplexity is at most this.
inline constexpr double kLossAcceptedPercent = 1;

struct LadderAdvice {
  std::optional<size_t> take;  // a point: the smallest such type
  std::string text;            // why, or why nothing can be recommended
};
LadderAdvice advise(std::span<const LadderPoint> points, const LadderVerdict& verdict);

// The verdict in sentences, one each.
std::vector<std::string> verdict_text(std::span<const LadderPoint> points, const LadderVerdict& verdict);

}  // namespace baton

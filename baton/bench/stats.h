// Summaries of repeated measurements: medians and spreads, and bootstrap intervals on the ratio of two series.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton {

// Of at least one value. `spread` is half the distance between the quartiles.
struct Summary {
  double median = 0, low = 0, high = 0, mean = 0, deviation = 0;
  double quartile_low = 0, quartile_high = 0;
};
Summary summarize(std::span<const double> values);

// Value at `fraction` (0 to 1) of the sorted values, interpolated.
double quantile(std::vector<double> values, double fraction);

// median(a) / median(b) with a percentile bootstrap interval (Efron, "Bootstrap Methods", 1979): both series are drawn
// with replacement `rounds` times. Pairs (interleaved runs) are drawn together, so that drift shared by both cancels.
struct RatioInterval {
  double ratio = 1, low = 1, high = 1;
  bool known = true;  // false: so few pairs say nothing, and `low` and `high` are not to be shown
  bool differs() const { return known && (low > 1 || high < 1); }
};
RatioInterval paired_ratio(std::span<const double> a, std::span<const double> b, double confidence, uint64_t seed,
                           uint32_t rounds = 4000);

// The same for a verdict: the wider of the bootstrap's interval and of that of the sign test (the order statistics that
// hold the median, whatever the noise is like). Series that do not differ seem to in at most 1 - confidence of all
// cases, with any number of pairs; with fewer than `pairs_needed` nothing is known. The bootstrap alone errs in 100,
// 50, 25, 12 and 6 % of all cases with 1 to 5 pairs at 95 %.
RatioInterval paired_verdict(std::span<const double> a, std::span<const double> b, double confidence, uint64_t seed,
                             uint32_t rounds = 4000);
// The fewest pairs that can show a difference: 6 at 95 %, as 2^-5 of all fair sequences of 6 signs are of one sign.
uint32_t pairs_needed(double confidence);

}  // namespace baton

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
  bool differs() const { return low > 1 || high < 1; }
};
RatioInterval paired_ratio(std::span<const double> a, std::span<const double> b, double confidence, uint64_t seed,
                           uint32_t rounds = 4000);

}  // namespace baton

// Order statistics and the bootstrap.
#include "baton/bench/stats.h"

#include <algorithm>
#include <cmath>

#include "baton/base/random.h"
#include "baton/base/status.h"

namespace baton {

double quantile(std::vector<double> values, double fraction) {
  BATON_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const double at = fraction * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

Summary summarize(std::span<const double> values) {
  BATON_CHECK(!values.empty());
  const std::vector<double> all(values.begin(), values.end());
  Summary summary;
  summary.median = quantile(all, 0.5);
  summary.quartile_low = quantile(all, 0.25);
  summary.quartile_high = quantile(all, 0.75);
  summary.low = *std::min_element(all.begin(), all.end());
  summary.high = *std::max_element(all.begin(), all.end());
  const double count = static_cast<double>(all.size());
  for (const double value : all) summary.mean += value / count;
  for (const double value : all) summary.deviation += (value - summary.mean) * (value - summary.mean);
  summary.deviation = all.size() > 1 ? std::sqrt(summary.deviation / (count - 1)) : 0;
  return summary;
}

RatioInterval paired_ratio(std::span<const double> a, std::span<const double> b, double confidence, uint64_t seed,
                           uint32_t rounds) {
  BATON_CHECK(a.size() == b.size() && !a.empty());
  // Logarithms of the pairs' ratios: symmetric, so that a / b and b / a give the same verdict.
  std::vector<double> logs;
  for (size_t i = 0; i < a.size(); ++i) logs.push_back(std::log(a[i] / b[i]));
  Random random(seed);
  std::vector<double> medians, drawn(logs.size());
  for (uint32_t round = 0; round < rounds; ++round) {
    for (double& value : drawn) value = logs[random.below(logs.size())];
    medians.push_back(quantile(drawn, 0.5));
  }
  const double tail = (1 - confidence) / 2;
  return {std::exp(quantile(logs, 0.5)), std::exp(quantile(medians, tail)), std::exp(quantile(medians, 1 - tail))};
}

}  // namespace baton

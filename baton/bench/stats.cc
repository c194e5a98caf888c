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

uint32_t pairs_needed(double confidence) {
  uint32_t pairs = 1;
  while (pairs < 64 && std::ldexp(2.0, -static_cast<int>(pairs)) > 1 - confidence) ++pairs;
  return pairs;
}

RatioInterval paired_verdict(std::span<const double> a, std::span<const double> b, double confidence, uint64_t seed,
                             uint32_t rounds) {
  RatioInterval interval = paired_ratio(a, b, confidence, seed, rounds);
  interval.known = a.size() >= pairs_needed(confidence);
  if (!interval.known) return interval;
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  std::sort(ratios.begin(), ratios.end());
  // The largest k with 2 P(at most k of n fair coins fall heads) <= 1 - confidence: so many lie outside on each side.
  const auto n = static_cast<double>(ratios.size());
  double term = std::ldexp(1.0, -static_cast<int>(ratios.size())), below = term;
  size_t k = 0;
  while (true) {
    term *= (n - static_cast<double>(k)) / static_cast<double>(k + 1);
    if (2 * (below + term) > 1 - confidence) break;
    below += term;
    ++k;
  }
  interval.low = std::min(interval.low, ratios[k]);
  interval.high = std::max(interval.high, ratios[ratios.size() - 1 - k]);
  return interval;
}

}  // namespace baton

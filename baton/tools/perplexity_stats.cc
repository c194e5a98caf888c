// Means with their errors, and the paired comparison.
#include <algorithm>
#include <cmath>
#include <limits>

#include "baton/tools/perplexity.h"

namespace baton {
namespace {

struct Moments {
  double mean = 0, variance = 0;  // of the values, by n
};

template <class Value>
Moments moments_of(size_t count, const Value& value) {
  Moments moments;
  if (count == 0) return moments;
  for (size_t i = 0; i < count; ++i) moments.mean += value(i);
  moments.mean /= static_cast<double>(count);
  // Around the mean: the difference of two large sums would lose the small variances of near equal models.
  for (size_t i = 0; i < count; ++i) moments.variance += (value(i) - moments.mean) * (value(i) - moments.mean);
  moments.variance /= static_cast<double>(count);
  return moments;
}

// Standard error of the mean of the windows' means; below zero with one window.
template <class Value>
double window_error(size_t count, uint32_t per_window, const Value& value) {
  const size_t windows = per_window > 0 ? count / per_window : 0;
  if (windows < 2) return -1;
  std::vector<double> means(windows, 0.0);
  for (size_t i = 0; i < windows * per_window; ++i) means[i / per_window] += value(i) / per_window;
  const Moments moments = moments_of(windows, [&](size_t i) { return means[i]; });
  return std::sqrt(moments.variance / static_cast<double>(windows - 1));
}

template <class Value>
Measured mean_of(size_t count, uint32_t per_window, const Value& value) {
  const Moments moments = moments_of(count, value);
  Measured result{moments.mean, std::numeric_limits<double>::quiet_NaN(), window_error(count, per_window, value)};
  if (count > 1) result.error = std::sqrt(moments.variance / static_cast<double>(count - 1));
  return result;
}

// f(x) with the errors of x times |df/dx|.
Measured scaled(const Measured& from, double value, double derivative) {
  return {value, from.error * derivative, from.error_windows < 0 ? -1 : from.error_windows * derivative};
}

double sorted_quantile(const std::vector<double>& sorted, double fraction) {
  const double at = fraction * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Measured perplexity_of(std::span<const double> nll, uint32_t per_window) {
  const Measured mean = mean_of(nll.size(), per_window, [&](size_t i) { return nll[i]; });
  return scaled(mean, std::exp(mean.value), std::exp(mean.value));
}

PairedQuality compare_scores(const TokenScores& model, const TokenScores& reference, uint32_t per_window) {
  const size_t count = model.nll.size();
  BATON_CHECK(count > 0 && reference.nll.size() == count && model.kld.size() == count &&
              model.same_top.size() == count);
  PairedQuality quality;
  quality.ppl = perplexity_of(model.nll, per_window);
  quality.reference_ppl = perplexity_of(reference.nll, per_window);
  quality.log_ratio = mean_of(count, per_window, [&](size_t i) { return model.nll[i] - reference.nll[i]; });
  const double ratio = std::exp(quality.log_ratio.value);
  quality.ratio = scaled(quality.log_ratio, ratio, ratio);
  // The delta method: d(PPL - PPL_ref) = PPL d(nll) - PPL_ref d(nll_ref). Token by token this is llama.cpp's sum of the
  // variances less twice the covariance.
  const double ppl = quality.ppl.value, reference_ppl = quality.reference_ppl.value;
  quality.delta_ppl =
      mean_of(count, per_window, [&](size_t i) { return ppl * model.nll[i] - reference_ppl * reference.nll[i]; });
  quality.delta_ppl.value = ppl - reference_ppl;

  quality.kld = mean_of(count, per_window, [&](size_t i) { return model.kld[i]; });
  std::vector<double> sorted = model.kld;
  std::sort(sorted.begin(), sorted.end());
  quality.kld_median = sorted_quantile(sorted, 0.5);
  quality.kld_p99 = sorted_quantile(sorted, 0.99);
  quality.kld_p999 = sorted_quantile(sorted, 0.999);
  quality.kld_max = sorted.back();

  quality.top1 = mean_of(count, per_window, [&](size_t i) { return static_cast<double>(model.same_top[i]); });
  const auto delta_p = [&](size_t i) { return std::exp(-model.nll[i]) - std::exp(-reference.nll[i]); };
  quality.delta_p = mean_of(count, per_window, delta_p);
  const Measured square = mean_of(count, per_window, [&](size_t i) { return delta_p(i) * delta_p(i); });
  const double root = std::sqrt(square.value);
  quality.rms_delta_p = scaled(square, root, root > 0 ? 0.5 / root : 0);
  return quality;
}

}  // namespace baton

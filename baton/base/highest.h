// The index of the highest of many values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

namespace baton {

// The first of the highest; NaN is never it. 0 when there is none.
inline size_t index_of_highest(std::span<const float> values) {
  // Sixteen runs side by side: in one alone, every comparison waits for the one before.
  constexpr size_t kRuns = 16;
  float run[kRuns];
  std::fill(run, run + kRuns, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kRuns <= values.size(); i += kRuns) {
    for (size_t j = 0; j < kRuns; ++j) run[j] = values[i + j] > run[j] ? values[i + j] : run[j];
  }
  float highest = *std::max_element(run, run + kRuns);
  for (; i < values.size(); ++i) highest = values[i] > highest ? values[i] : highest;
  const auto at = std::find(values.begin(), values.end(), highest);
  return at == values.end() ? 0 : static_cast<size_t>(at - values.begin());
}

}  // namespace baton

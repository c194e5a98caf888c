// Perplexity of a model on one unit, by windows: each window starts from an empty state, and the tokens from
// `counted_from` on count. PPL = exp(nll / counted).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "baton/unit/unit.h"

namespace baton {

struct PerplexityOptions {
  uint32_t window = 512;      // tokens; a last, shorter window is left out
  uint32_t counted_from = 1;  // index in the window of the first token whose probability counts, at least 1
  std::function<void(uint64_t done, uint64_t total)> on_window;  // progress; may be empty
};

struct Perplexity {
  double nll = 0;  // summed negative log-likelihood, nats
  uint64_t counted = 0;
  double value() const;
};

// Errors: fewer tokens than a window, or the unit's own.
Result<Perplexity> measure_perplexity(Executor& executor, std::span<const int32_t> tokens,
                                      const PerplexityOptions& options);

// -log softmax(logits)[token], in double.
double negative_log_likelihood(std::span<const float> logits, int32_t token);

}  // namespace baton

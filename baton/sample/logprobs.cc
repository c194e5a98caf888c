// Log-softmax of one row, and its largest values.
#include "baton/sample/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace baton {

Status check_logprobs(const char* what, uint32_t top) {
  if (top <= kLogprobsMax) return {};
  return fail(Code::kInvalidInput, fmt::format("{} is {}: must be from 0 to {}", what, top, kLogprobsMax));
}

Status check_logits(std::span<const float> logits) {
  // Any NaN or infinity makes the sum of x - x a NaN; the slow search only runs then.
  float poison = 0.0f;
  for (const float logit : logits) poison += logit - logit;
  if (poison == 0.0f) return {};
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) {
      return fail(Code::kDevice, fmt::format("the logit of token {} is {}: the unit computed nonsense, or its types do "
                                             "not hold this model's values (ref keeps f32)",
                                             id, logits[id]));
    }
  }
  return {};
}

Result<Logprobs> logprobs_of(std::span<const float> logits, int32_t id, uint32_t top) {
  BATON_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size());
  BATON_OK(check_logits(logits));
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
  const double log_sum = highest + std::log(sum);
  const auto logprob = [&](int32_t of) {
    return std::min(static_cast<float>(static_cast<double>(logits[static_cast<size_t>(of)]) - log_sum), 0.0f);
  };
  Logprobs made{.logprob = logprob(id)};
  const size_t count = std::min<size_t>(top, logits.size());
  if (count == 0) return made;
  // The likeliest so far, in order; `logprob` is the logit until all are found.
  std::vector<TokenLogprob>& best = made.top;
  best.reserve(count + 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (best.size() == count && !(logits[i] > best.back().logprob)) continue;
    const auto behind =
        std::find_if(best.begin(), best.end(), [&](const auto& each) { return logits[i] > each.logprob; });
    best.insert(behind, {static_cast<int32_t>(i), logits[i]});
    if (best.size() > count) best.pop_back();
  }
  for (TokenLogprob& each : best) each.logprob = logprob(each.id);
  return made;
}

}  // namespace baton

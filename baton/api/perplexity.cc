// Perplexity by windows.
#include "baton/api/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace baton {
namespace {
constexpr uint64_t kLogitsMax = 4 << 20;  // values held at a time
}

double Perplexity::value() const { return std::exp(nll / static_cast<double>(std::max<uint64_t>(counted, 1))); }

double negative_log_likelihood(std::span<const float> logits, int32_t token) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
  return std::log(sum) - (static_cast<double>(logits[token]) - highest);
}

Result<Perplexity> measure_perplexity(Executor& executor, std::span<const int32_t> tokens,
                                      const PerplexityOptions& options) {
  const uint64_t vocab = static_cast<uint64_t>(executor.model().program.vocab);
  const uint64_t windows = tokens.size() / options.window;
  if (windows == 0 || options.counted_from < 1 || options.counted_from >= options.window) {
    return fail(Code::kInvalidInput,
                fmt::format("{} tokens do not fill a window of {} (counted from {}); give a longer text", tokens.size(),
                            options.window, options.counted_from));
  }
  const uint64_t chunk = std::clamp<uint64_t>(kLogitsMax / vocab, 1, options.window);
  std::vector<float> logits(chunk * vocab);
  Perplexity result;
  for (uint64_t window = 0; window < windows; ++window) {
    const auto ids = tokens.subspan(window * options.window, options.window);
    BATON_TRY(const auto state, executor.new_state(options.window));
    // Logits behind token i predict token i + 1.
    const uint64_t silent = options.counted_from - 1;
    if (silent > 0) BATON_OK(executor.prefill(*state, ids.first(silent), {}));
    for (uint64_t done = silent; done + 1 < options.window; done += chunk) {
      const uint64_t count = std::min(chunk, options.window - 1 - done);
      BATON_OK(executor.prefill(*state, ids.subspan(done, count), std::span(logits).first(count * vocab)));
      for (uint64_t i = 0; i < count; ++i) {
        result.nll += negative_log_likelihood(std::span(logits).subspan(i * vocab, vocab), ids[done + i + 1]);
        ++result.counted;
      }
    }
    if (options.on_window) options.on_window(window + 1, windows);
  }
  return result;
}

}  // namespace baton

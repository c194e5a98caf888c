// Perplexity of models by windows, and the paired comparison of models with a reference over the same windows. Each
// window starts from an empty state, and the tokens from `counted_from` on count. PPL = exp(mean nll).
//
// Windows as llama.cpp's perplexity tool counts them: the text is cut into windows of 512 tokens, a last shorter one is
// left out, and the first half of each, and one token more, is context only: tokens 257 to 511 count, 255 of each
// window. Where the tokenizer puts a BOS before a text, it takes the place of the first token of every window.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "baton/api/text_model.h"
#include "baton/unit/unit.h"

namespace baton {

struct PerplexityOptions {
  uint32_t window = 512;      // tokens; a last, shorter window is left out
  uint32_t counted_from = 1;  // index in the window of the first token whose probability counts, at least 1
  uint64_t windows_max = 0;   // 0: all
  int32_t window_start = -1;  // token put in place of the first of each window (BOS); -1: none
  uint32_t threads = 1;       // for the comparison of logits; 0: physical cores
  // Progress, with the perplexity so far of the first model; may be empty.
  std::function<void(uint64_t done, uint64_t total, double ppl)> on_window = {};
};

// What the peers count: see the top of the page.
inline uint32_t peer_counted_from(uint32_t window) { return window / 2 + 1; }

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

// What one model gives to each counted token, in text order. `kld` and `same_top` only against a reference.
struct TokenScores {
  std::vector<double> nll;        // -log p(token), nats
  std::vector<double> kld;        // sum over the vocabulary of p_ref (log p_ref - log p), nats
  std::vector<uint8_t> same_top;  // 1: the likeliest token is the reference's (the lowest id of equal ones)
};

struct WindowScores {
  uint64_t windows = 0;
  uint32_t per_window = 0;               // counted tokens of a window
  std::vector<TokenScores> models;       // in the order given
  std::optional<TokenScores> reference;  // nll only
};

// All models over the same windows in one pass; the reference's logits are computed once. Softmax and sums are in
// double. Memory: three rows of logits for each token of a piece of a window, at most 4 Mi values each, and 17 bytes
// per model and counted token; a state of `window` tokens on each executor. `reference` may be null: no comparison
// then. The executors are distinct. kMismatch when vocabularies differ in size (texts are the caller's to compare:
// check_same_vocabulary); kInvalidInput when a window is not filled. `stop`, when given, ends the pass with kCancelled.
Result<WindowScores> score_windows(std::span<Executor* const> models, Executor* reference,
                                   std::span<const int32_t> tokens, const PerplexityOptions& options,
                                   const std::function<bool()>& stop = {});

// Token ids of a text as the peers read it: without one newline at its end, with a BOS where the tokenizer asks for it.
struct PerplexityText {
  std::vector<int32_t> ids;
  int32_t window_start = -1;  // for PerplexityOptions
};
Result<PerplexityText> read_perplexity_text(const TextModel& model, const std::filesystem::path& file);

// kMismatch when the two do not have the same tokens: a comparison of their probabilities would mean nothing.
Status check_same_vocabulary(const TextModel& model, const TextModel& reference);

// A value and its standard error. Errors take the tokens as independent draws, as llama.cpp does;
// `error_windows` takes the windows as the draws (tokens of one window share their context, so that the first is too
// small): the standard deviation of the windows' values over the root of their number. Below zero: one window only;
// `error` of one token is NaN.
struct Measured {
  double value = 0;
  double error = 0;
  double error_windows = -1;
};

// exp(mean) with error exp(mean) * sqrt((mean of squares - square of mean) / (n - 1)), as llama.cpp.
Measured perplexity_of(std::span<const double> nll, uint32_t per_window);

// One model against the reference, on the same tokens.
struct PairedQuality {
  Measured ppl, reference_ppl;
  Measured delta_ppl;  // model - reference; the error has the covariance of the two in it
  Measured log_ratio;  // ln(PPL / PPL of the reference)
  Measured ratio;      // PPL / PPL of the reference
  Measured kld;        // mean
  double kld_median = 0, kld_p99 = 0, kld_p999 = 0, kld_max = 0;
  Measured top1;         // share of tokens with the same likeliest token
  Measured delta_p;      // mean of p - p_ref of the token that stands in the text
  Measured rms_delta_p;  // root of its mean square
};
PairedQuality compare_scores(const TokenScores& model, const TokenScores& reference, uint32_t per_window);

}  // namespace baton

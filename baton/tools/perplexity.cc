// The pass over the windows.
#include "baton/tools/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "baton/base/file.h"
#include "baton/base/highest.h"
#include "baton/base/thread_pool.h"
#include "baton/model/container.h"
#include "baton/state/values.h"

namespace baton {
namespace {

constexpr uint64_t kLogitsMax = 4 << 20;  // values of a buffer
constexpr size_t kTextBytesMax = size_t{256} << 20;

// Logits of one token as log p = logit - log_sum, in double.
double log_sum_of(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
  return highest + std::log(sum);
}

uint32_t top_of(std::span<const float> logits) { return static_cast<uint32_t>(index_of_highest(logits)); }

// The reference's distributions over a piece of a window.
struct Piece {
  std::vector<float> logits;          // [piece, width of a row]
  std::vector<double> probabilities;  // [piece, width of a row]
  std::vector<double> log_sum;        // [piece]
  std::vector<uint32_t> top;
};

class Pass {
 public:
  Pass(std::span<Executor* const> models, Executor* reference, std::span<const int32_t> tokens,
       const PerplexityOptions& options)
      : models_(models),
        reference_(reference),
        tokens_(tokens),
        options_(options),
        width_(static_cast<uint64_t>(models.front()->model().program.output_width)),
        piece_tokens_(std::clamp<uint64_t>(kLogitsMax / width_, 1, options.window)),
        pool_(options.threads) {}

  Result<WindowScores> run(const std::function<bool()>& stop) {
    WindowScores scores;
    scores.windows = tokens_.size() / options_.window;
    if (options_.windows_max > 0) scores.windows = std::min(scores.windows, options_.windows_max);
    scores.per_window = options_.window - options_.counted_from;
    const uint64_t counted = scores.windows * scores.per_window;
    scores.models.resize(models_.size());
    for (TokenScores& model : scores.models) {
      model.nll.resize(counted);
      if (reference_ == nullptr) continue;
      model.kld.resize(counted);
      model.same_top.resize(counted);
    }
    logits_.resize(piece_tokens_ * width_);
    if (reference_ != nullptr) {
      scores.reference.emplace().nll.resize(counted);
      piece_.logits.resize(piece_tokens_ * width_);
      piece_.probabilities.resize(piece_tokens_ * width_);
      piece_.log_sum.resize(piece_tokens_);
      piece_.top.resize(piece_tokens_);
    }
    for (uint64_t window = 0; window < scores.windows; ++window) {
      if (stop && stop()) return fail(Code::kCancelled, "interrupted");
      BATON_OK(run_window(window, scores));
      if (!options_.on_window) continue;
      const auto& nll = scores.models.front().nll;
      for (uint64_t i = window * scores.per_window; i < (window + 1) * scores.per_window; ++i) running_nll_ += nll[i];
      const double counted_so_far = static_cast<double>((window + 1) * scores.per_window);
      options_.on_window(window + 1, scores.windows, std::exp(running_nll_ / counted_so_far));
    }
    return scores;
  }

 private:
  Status run_window(uint64_t window, WindowScores& scores) {
    const auto text = tokens_.subspan(window * options_.window, options_.window);
    std::vector<int32_t> ids(text.begin(), text.end());
    if (options_.window_start >= 0) ids.front() = options_.window_start;
    // Logits behind token i predict token i + 1; the last token predicts nothing that is known.
    const uint64_t silent = options_.counted_from - 1;
    std::vector<std::unique_ptr<SequenceState>> states;
    std::unique_ptr<SequenceState> reference_state;
    const auto start = [&](Executor& executor) -> Result<std::unique_ptr<SequenceState>> {
      BATON_TRY(auto state, executor.new_state(options_.window));
      if (silent > 0) BATON_OK(executor.prefill(*state, std::span(ids).first(silent), {}));
      return state;
    };
    for (Executor* model : models_) {
      BATON_TRY(auto state, start(*model));
      states.push_back(std::move(state));
    }
    if (reference_ != nullptr) {
      BATON_TRY(reference_state, start(*reference_));
    }
    for (uint64_t done = silent; done + 1 < options_.window; done += piece_tokens_) {
      const uint64_t count = std::min(piece_tokens_, options_.window - 1 - done);
      const auto input = std::span<const int32_t>(ids).subspan(done, count);
      const auto next = std::span<const int32_t>(ids).subspan(done + 1, count);
      const uint64_t at = window * scores.per_window + (done - silent);
      if (reference_ != nullptr) {
        const auto logits = std::span(piece_.logits).first(count * width_);
        BATON_OK(reference_->prefill(*reference_state, input, logits));
        BATON_OK(check_numbers(logits, *reference_, window, done));
        score_reference(next, std::span(scores.reference->nll).subspan(at, count));
      }
      for (size_t i = 0; i < models_.size(); ++i) {
        const auto logits = std::span(logits_).first(count * width_);
        BATON_OK(models_[i]->prefill(*states[i], input, logits));
        BATON_OK(check_numbers(logits, *models_[i], window, done));
        score_model(next, scores.models[i], at);
      }
    }
    return {};
  }

  Status check_numbers(std::span<const float> logits, const Executor& executor, uint64_t window, uint64_t done) const {
    const auto bad = first_not_finite(std::as_bytes(logits), DType::kF32);
    if (!bad) return {};
    return fail(
        Code::kCorrupt,
        fmt::format("{}: window {}, token {}: logit {} is {}: the model's weights or the unit are broken, there "
                    "is no perplexity",
                    executor.model().spec.name, window, done + *bad / width_, *bad % width_, logits[*bad]));
  }

  void score_reference(std::span<const int32_t> next, std::span<double> nll) {
    pool_.parallel_for(static_cast<int64_t>(next.size()), 1, [&](int64_t begin, int64_t end, uint32_t) {
      for (int64_t i = begin; i < end; ++i) {
        const auto logits = std::span<const float>(piece_.logits).subspan(i * width_, width_);
        const double log_sum = log_sum_of(logits);
        double* probabilities = piece_.probabilities.data() + i * width_;
        for (uint64_t id = 0; id < width_; ++id) probabilities[id] = std::exp(logits[id] - log_sum);
        piece_.log_sum[i] = log_sum;
        piece_.top[i] = top_of(logits);
        nll[i] = log_sum - logits[next[i]];
      }
    });
  }

  void score_model(std::span<const int32_t> next, TokenScores& scores, uint64_t at) {
    pool_.parallel_for(static_cast<int64_t>(next.size()), 1, [&](int64_t begin, int64_t end, uint32_t) {
      for (int64_t i = begin; i < end; ++i) {
        const auto logits = std::span<const float>(logits_).subspan(i * width_, width_);
        const double log_sum = log_sum_of(logits);
        scores.nll[at + i] = log_sum - logits[next[i]];
        if (reference_ == nullptr) continue;
        const float* reference = piece_.logits.data() + i * width_;
        const double* probabilities = piece_.probabilities.data() + i * width_;
        double kld = 0;
        for (uint64_t id = 0; id < width_; ++id) {
          kld += probabilities[id] * ((reference[id] - piece_.log_sum[i]) - (logits[id] - log_sum));
        }
        // It cannot be negative; rounding of the sums can make it so by about 1e-16.
        scores.kld[at + i] = std::max(kld, 0.0);
        scores.same_top[at + i] = top_of(logits) == piece_.top[i] ? 1 : 0;
      }
    });
  }

  std::span<Executor* const> models_;
  Executor* reference_;
  std::span<const int32_t> tokens_;
  const PerplexityOptions& options_;
  const uint64_t width_, piece_tokens_;
  ThreadPool pool_;
  Piece piece_;
  std::vector<float> logits_;  // [piece, width of a row] of the model at work
  double running_nll_ = 0;     // of the first model
};

Status check_windows(std::span<const int32_t> tokens, const PerplexityOptions& options) {
  if (options.counted_from < 1 || options.counted_from >= options.window) {
    return fail(Code::kInvalidInput, fmt::format("counted from token {} of windows of {}: it must be 1 to {}",
                                                 options.counted_from, options.window, options.window - 1));
  }
  if (tokens.size() < options.window) {
    return fail(Code::kInvalidInput,
                fmt::format("{} tokens do not fill a window of {}; give a longer text or a smaller "
                            "window",
                            tokens.size(), options.window));
  }
  return {};
}

}  // namespace

double Perplexity::value() const { return std::exp(nll / static_cast<double>(std::max<uint64_t>(counted, 1))); }

double negative_log_likelihood(std::span<const float> logits, int32_t token) {
  return log_sum_of(logits) - logits[token];
}

Result<WindowScores> score_windows(std::span<Executor* const> models, Executor* reference,
                                   std::span<const int32_t> tokens, const PerplexityOptions& options,
                                   const std::function<bool()>& stop) {
  BATON_CHECK(!models.empty());
  BATON_OK(check_windows(tokens, options));
  const int32_t vocab = models.front()->model().program.vocab;
  const auto check_vocab = [&](const Executor& executor) -> Status {
    if (executor.model().program.vocab == vocab) return {};
    return fail(Code::kMismatch,
                fmt::format("{} has {} tokens, {} has {}: they cannot be compared", executor.model().spec.name,
                            executor.model().program.vocab, models.front()->model().spec.name, vocab));
  };
  for (const Executor* model : models) BATON_OK(check_vocab(*model));
  if (reference != nullptr) BATON_OK(check_vocab(*reference));
  Pass pass(models, reference, tokens, options);
  return pass.run(stop);
}

Result<Perplexity> measure_perplexity(Executor& executor, std::span<const int32_t> tokens,
                                      const PerplexityOptions& options) {
  Executor* const models[] = {&executor};
  BATON_TRY(const WindowScores scores, score_windows(models, nullptr, tokens, options));
  Perplexity result;
  for (const double nll : scores.models.front().nll) result.nll += nll;
  result.counted = scores.models.front().nll.size();
  return result;
}

Result<PerplexityText> read_perplexity_text(const TextModel& model, const std::filesystem::path& file) {
  if (!model.tokenizer) return no_tokenizer(model);
  BATON_TRY(std::string text, read_file(file, kTextBytesMax));
  if (text.ends_with('\n')) text.pop_back();
  PerplexityText result;
  BATON_TRY(result.ids, model.tokenizer->encode(text, false));  // no EOS: the text is cut anyway
  if (model.tokenizer->add_bos() && model.tokenizer->bos_id() >= 0) {
    result.window_start = model.tokenizer->bos_id();
    result.ids.insert(result.ids.begin(), result.window_start);
  }
  return result;
}

Status check_same_vocabulary(const TextModel& model, const TextModel& reference) {
  const Model& a = *model.model;
  const Model& b = *reference.model;
  if (a.program.vocab != b.program.vocab) {
    return fail(Code::kMismatch,
                fmt::format("{} has {} tokens, the reference {} has {}: their probabilities cannot be compared; give "
                            "models of one vocabulary",
                            a.container->path.string(), a.program.vocab, b.container->path.string(), b.program.vocab));
  }
  if (model.tokenizer && reference.tokenizer && model.tokenizer->fingerprint() != reference.tokenizer->fingerprint()) {
    return fail(Code::kMismatch, fmt::format("the tokenizers of {} and of the reference {} differ: the same id is not "
                                             "the same token",
                                             a.container->path.string(), b.container->path.string()));
  }
  return {};
}

}  // namespace baton

// Bias and penalties, then greedy, or top-k, top-p, min-p, temperature and a draw. Candidates are sorted (logit
// descending, then id), so the same logits give the same order on every platform.
#include "baton/sample/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <utility>

#include "baton/sample/draw_weight.h"

namespace baton {
namespace {

constexpr size_t kSortedMin = 256;
constexpr int32_t kWindowMax = 1 << 20;
constexpr float kFloatMax = std::numeric_limits<float>::max();

bool penalises(const SamplerParams& params) {
  return params.repeat_last_n != 0 &&
         (params.repeat_penalty != 1.0f || params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f);
}

// Written so that NaN fails too.
Status check_penalties(const SamplerParams& params) {
  if (!(params.repeat_penalty > 0.0f && params.repeat_penalty <= 100.0f)) {
    return fail(Code::kInvalidInput,
                fmt::format("repeat_penalty is {}: must be above 0 and at most 100 (1: off)", params.repeat_penalty));
  }
  for (const auto& [name, value] :
       {std::pair("presence_penalty", params.presence_penalty), {"frequency_penalty", params.frequency_penalty}}) {
    if (!(value >= -100.0f && value <= 100.0f))
      return fail(Code::kInvalidInput, fmt::format("{} is {}: must be from -100 to 100 (0: off)", name, value));
  }
  if (params.repeat_last_n < -1 || params.repeat_last_n > kWindowMax) {
    return fail(Code::kInvalidInput,
                fmt::format("repeat_last_n is {}: must be from 0 to {}, or -1 for the whole answer",
                            params.repeat_last_n, kWindowMax));
  }
  return {};
}

Status check_bias(const SamplerParams& params, int32_t vocab_size) {
  std::vector<int32_t> ids;
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return fail(Code::kInvalidInput,
                  fmt::format("logit_bias: id {} is outside the vocabulary of {}", id, vocab_size));
    }
    if (!(bias >= -100.0f && bias <= 100.0f)) {
      return fail(Code::kInvalidInput,
                  fmt::format("logit_bias: the bias of id {} is {}: must be from -100 to 100", id, bias));
    }
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice == ids.end()) return {};
  return fail(Code::kInvalidInput, fmt::format("logit_bias: id {} is there twice", *twice));
}

Status check(const SamplerParams& params, int32_t vocab_size) {
  if (vocab_size <= 0 || vocab_size > kDrawIdsMax)
    return fail(Code::kInvalidInput, fmt::format("sampler: vocabulary of {} tokens", vocab_size));
  // Written so that NaN fails too.
  if (!(params.temperature >= 0.0f && params.temperature <= 100.0f)) {
    return fail(Code::kInvalidInput, fmt::format("temperature is {}: must be from 0 to 100", params.temperature));
  }
  if (params.top_k < 0)
    return fail(Code::kInvalidInput, fmt::format("top_k is {}: must be 0 (all) or more", params.top_k));
  if (!(params.top_p > 0.0f && params.top_p <= 1.0f)) {
    return fail(Code::kInvalidInput, fmt::format("top_p is {}: must be above 0 and at most 1", params.top_p));
  }
  if (!(params.min_p >= 0.0f && params.min_p <= 1.0f)) {
    return fail(Code::kInvalidInput, fmt::format("min_p is {}: must be from 0 to 1", params.min_p));
  }
  BATON_OK(check_penalties(params));
  BATON_OK(check_bias(params, vocab_size));
  if (params.logprobs) BATON_OK(check_logprobs("logprobs", *params.logprobs));
  for (const int32_t id : params.banned_ids) {
    if (id < 0 || id >= vocab_size) {
      return fail(Code::kInvalidInput, fmt::format("banned id {} is outside the vocabulary of {}", id, vocab_size));
    }
  }
  return {};
}

}  // namespace

Sampler::Sampler(SamplerParams params, int32_t vocab_size)
    : params_(std::move(params)),
      random_(params_.seed),
      banned_(static_cast<size_t>(vocab_size), 0),
      candidates_(static_cast<size_t>(vocab_size)),
      weights_(static_cast<size_t>(vocab_size)) {
  for (const int32_t id : params_.banned_ids) banned_[static_cast<size_t>(id)] = 1;
  if (params_.constraint) {
    open_.resize((banned_.size() + 31) / 32);
    allowed_.resize(open_.size());
    for (size_t id = 0; id < banned_.size(); ++id) open_[id / 32] |= uint32_t{banned_[id] == 0} << (id % 32);
  }
  if (penalises(params_) || !params_.logit_bias.empty()) adjusted_.resize(static_cast<size_t>(vocab_size));
  if (!penalises(params_)) return;
  drawn_.resize(static_cast<size_t>(vocab_size));
  window_.resize(static_cast<size_t>(std::max(params_.repeat_last_n, 0)));
}

Result<Sampler> Sampler::create(SamplerParams params, int32_t vocab_size) {
  BATON_OK(check(params, vocab_size));
  Sampler sampler(std::move(params), vocab_size);
  if (std::find(sampler.banned_.begin(), sampler.banned_.end(), 0) == sampler.banned_.end()) {
    return fail(Code::kInvalidInput, "every token is banned");
  }
  return sampler;
}

Result<int32_t> Sampler::sample(std::span<const float> logits, std::optional<Logprobs>* logprobs) try {
  if (logits.size() != banned_.size()) {
    return fail(Code::kInvalidInput, fmt::format("{} logits for a vocabulary of {}", logits.size(), banned_.size()));
  }
  if (broken_) return fail(Code::kInternal, "the constraint did not take a token that it had allowed");
  BATON_OK(check_logits(logits));
  BATON_OK(find_allowed());
  const std::span<const float> adjusted = adjust(logits);
  Random random = random_;
  const int32_t id = params_.temperature > 0.0f ? draw(adjusted, random) : greedy(adjusted);
  if (logprobs != nullptr && params_.logprobs) {
    BATON_TRY(*logprobs, logprobs_of(logits, id, *params_.logprobs));
  }
  if (params_.constraint) {
    broken_ = true;
    if (const Status taken = params_.constraint->accept(id); !taken)
      return fail(Error(taken.error()).in(fmt::format("token {}, which the constraint had allowed", id)));
    broken_ = false;
  }
  random_ = random;
  if (!drawn_.empty()) remember(id);
  return id;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "no memory for a draw");
}

Status Sampler::find_allowed() {
  if (!params_.constraint) return {};
  params_.constraint->allow(allowed_);
  uint32_t any = 0;
  for (size_t i = 0; i < allowed_.size(); ++i) any |= allowed_[i] &= open_[i];
  if (any != 0) return {};
  return fail(Code::kInvalidInput,
              "what the answer must look like (response_format, a grammar) leaves no token that may be drawn: allow "
              "more there, or ban less");
}

template <class Use>
void Sampler::for_allowed(Use&& use) const {
  if (allowed_.empty()) {
    for (size_t id = 0; id < banned_.size(); ++id) {
      if (banned_[id] == 0) use(id);
    }
    return;
  }
  for (size_t i = 0; i < allowed_.size(); ++i) {
    for (uint32_t left = allowed_[i]; left != 0; left &= left - 1)
      use(32 * i + static_cast<size_t>(std::countr_zero(left)));
  }
}

void Sampler::show_numbers(std::span<uint64_t> next) const {
  Random random = random_;
  for (uint64_t& number : next) number = random.next();
}

std::vector<int32_t> Sampler::window() const {
  if (remembered_ < window_.size()) return {window_.begin(), window_.begin() + static_cast<ptrdiff_t>(remembered_)};
  std::vector<int32_t> ids = window_;
  if (!ids.empty()) std::rotate(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(remembered_ % ids.size()), ids.end());
  return ids;
}

void Sampler::drew(int32_t id) {
  BATON_CHECK(!params_.constraint);
  if (params_.temperature > 0.0f) random_.next();
  if (!drawn_.empty()) remember(id);
}

void Sampler::reset(uint64_t seed) {
  random_ = Random(seed);
  std::fill(drawn_.begin(), drawn_.end(), 0);
  remembered_ = 0;
  broken_ = false;
  if (params_.constraint) params_.constraint->reset();
}

void Sampler::remember(int32_t id) {
  ++drawn_[static_cast<size_t>(id)];
  if (!window_.empty()) {
    int32_t& place = window_[remembered_ % window_.size()];
    if (remembered_ >= window_.size()) --drawn_[static_cast<size_t>(place)];
    place = id;
  }
  ++remembered_;
}

std::span<const float> Sampler::adjust(std::span<const float> logits) {
  if (params_.logit_bias.empty() && remembered_ == 0) return logits;
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  for (const auto& [id, bias] : params_.logit_bias) {
    float& logit = adjusted_[static_cast<size_t>(id)];
    logit = std::clamp(logit + bias, -kFloatMax, kFloatMax);
  }
  if (remembered_ == 0) return adjusted_;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (const uint32_t count = drawn_[id]; count > 0) {
      float& logit = adjusted_[id];
      logit = logit > 0.0f ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
      logit -= static_cast<float>(count) * params_.frequency_penalty + params_.presence_penalty;
      logit = std::clamp(logit, -kFloatMax, kFloatMax);
    }
  }
  return adjusted_;
}

int32_t Sampler::greedy(std::span<const float> logits) const {
  int32_t best = -1;
  for_allowed([&](size_t id) {
    if (best < 0 || logits[id] > logits[static_cast<size_t>(best)]) best = static_cast<int32_t>(id);
  });
  return best;
}

size_t Sampler::keep_top_k(size_t count) {
  const size_t kept = std::min(count, static_cast<size_t>(params_.top_k));
  sort_front(kept, count);
  return kept;
}

// Sorts only as much of the front as the sum needs: a full sort of 248,320 candidates would take longer than a small
// model's forward pass.
size_t Sampler::keep_top_p(size_t count, float top) {
  const double scale = draw_scale(1.0f);
  uint64_t total = 0, sum = 0;
  for (size_t i = 0; i < count; ++i) total += draw_weight(top - candidates_[i].logit, scale);
  const uint64_t wanted = least_sum(params_.top_p, total);
  size_t kept = 0;
  for (size_t sorted = 0; kept < count;) {
    const size_t more = std::min(count - sorted, std::max(kSortedMin, sorted * 3));
    sort_front(more, count - sorted, sorted);
    sorted += more;
    for (; kept < sorted; ++kept) {
      sum += draw_weight(top - candidates_[kept].logit, scale);
      if (sum >= wanted) return kept + 1;
    }
  }
  return count;
}

// Among [from, from + count): the `kept` likeliest come first, in order.
void Sampler::sort_front(size_t kept, size_t count, size_t from) {
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const auto begin = candidates_.begin() + static_cast<ptrdiff_t>(from);
  const auto middle = begin + static_cast<ptrdiff_t>(kept);
  if (kept < count) std::nth_element(begin, middle, begin + static_cast<ptrdiff_t>(count), likelier);
  std::sort(begin, middle, likelier);
}

int32_t Sampler::draw(std::span<const float> logits, Random& random) {
  size_t count = 0;
  for_allowed([&](size_t id) { candidates_[count++] = {logits[id], static_cast<int32_t>(id)}; });
  float top = candidates_[0].logit;
  for (size_t i = 1; i < count; ++i) top = std::max(top, candidates_[i].logit);

  // Candidates are in order of id until a filter sorts them; either order is the same everywhere.
  if (params_.top_k > 0) count = keep_top_k(count);
  if (params_.top_p < 1.0f) count = keep_top_p(count, top);
  if (params_.min_p > 0.0f) {
    const uint64_t least = least_weight(params_.min_p);
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      if (draw_weight(top - candidates_[i].logit, draw_scale(1.0f)) >= least) candidates_[kept++] = candidates_[i];
    }
    count = kept;
  }

  const double scale = draw_scale(params_.temperature);
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i) total += weights_[i] = draw_weight(top - candidates_[i].logit, scale);
  uint64_t left = random.below(total);
  size_t drawn = 0;
  for (; left >= weights_[drawn]; ++drawn) left -= weights_[drawn];
  return candidates_[drawn].id;
}

Result<Top2> top2_gap(std::span<const float> logits) {
  if (logits.empty()) return fail(Code::kInvalidInput, "no logits");
  BATON_OK(check_logits(logits));
  Top2 top;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (top.id < 0 || logits[i] > logits[static_cast<size_t>(top.id)]) {
      top.second_id = std::exchange(top.id, id);
    } else if (top.second_id < 0 || logits[i] > logits[static_cast<size_t>(top.second_id)]) {
      top.second_id = id;
    }
  }
  if (top.second_id >= 0) top.gap = logits[static_cast<size_t>(top.id)] - logits[static_cast<size_t>(top.second_id)];
  return top;
}

}  // namespace baton

// Milliseconds and sixty-thousandths: nothing is rounded on the way.
#include "baton/serve/rate_limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::serve {
namespace {

constexpr int64_t kMinuteMs = 60'000, kDebtMinutes = 60;

void add_headers(http::Headers& to, std::string_view of, const RateBucket& bucket) {
  to.emplace_back(fmt::format("x-ratelimit-limit-{}", of), fmt::to_string(bucket.per_minute()));
  to.emplace_back(fmt::format("x-ratelimit-remaining-{}", of), fmt::to_string(bucket.remaining()));
  to.emplace_back(fmt::format("x-ratelimit-reset-{}", of), span_text(bucket.ms_until_full()));
}

}  // namespace

void RateBucket::refill(int64_t now_ms) {
  if (at_ms_ == INT64_MIN) at_ms_ = now_ms;
  if (now_ms <= at_ms_) return;
  // More than it takes to fill it from the deepest debt would be too large a number, for nothing.
  const int64_t passed = std::min(now_ms - at_ms_, (kDebtMinutes + 1) * kMinuteMs);
  level_ = std::min(full(), level_ + passed * per_minute_);
  at_ms_ = now_ms;
}

void RateBucket::take(uint64_t amount) {
  const int64_t deepest = -kDebtMinutes * full();
  const auto most = static_cast<uint64_t>((level_ - deepest) / kScale);
  level_ = amount > most ? deepest : level_ - static_cast<int64_t>(amount) * kScale;
}

uint32_t RateBucket::remaining() const { return static_cast<uint32_t>(std::max<int64_t>(level_, 0) / kScale); }

int64_t RateBucket::ms_to(int64_t level) const {
  return level_ >= level ? 0 : (level - level_ + per_minute_ - 1) / per_minute_;
}

RateLimits::RateLimits(const ApiKeys& keys, const Clock& clock) : clock_(clock) {
  for (const ApiKey& key : keys.all()) {
    all_.push_back({key.requests_per_minute > 0, key.tokens_per_minute > 0,
                    RateBucket(std::max(key.requests_per_minute, 1u)),
                    RateBucket(std::max(key.tokens_per_minute, 1u))});
  }
}

void RateLimits::refill(Buckets& buckets) const {
  const int64_t now_ms = clock_.now_ns() / 1'000'000;
  buckets.requests.refill(now_ms);
  buckets.tokens.refill(now_ms);
}

RateLimits::Verdict RateLimits::take_request(uint32_t key) {
  Verdict verdict;
  if (key >= all_.size()) return verdict;
  const std::lock_guard lock(mutex_);
  Buckets& buckets = all_[key];
  refill(buckets);
  const bool requests = !buckets.has_requests || buckets.requests.has(1);
  // A prompt may be larger than all that fits in: whoever has any left may ask, and owes the rest.
  const bool tokens = !buckets.has_tokens || buckets.tokens.has(1);
  verdict.allowed = requests && tokens;
  if (verdict.allowed) {
    if (buckets.has_requests) buckets.requests.take(1);
  } else {
    const RateBucket& empty = requests ? buckets.tokens : buckets.requests;
    const char* const what = requests ? "tokens" : "requests";
    if (!requests) verdict.retry_ms = buckets.requests.ms_until(1);
    if (!tokens) verdict.retry_ms = std::max(verdict.retry_ms, buckets.tokens.ms_until(1));
    verdict.message = fmt::format("this key's {} {} in a minute are used up: ask again in {}", empty.per_minute(), what,
                                  span_text(verdict.retry_ms));
  }
  if (buckets.has_requests) add_headers(verdict.headers, "requests", buckets.requests);
  if (buckets.has_tokens) add_headers(verdict.headers, "tokens", buckets.tokens);
  return verdict;
}

void RateLimits::take_tokens(uint32_t key, uint64_t tokens) {
  if (key >= all_.size() || !all_[key].has_tokens) return;
  const std::lock_guard lock(mutex_);
  refill(all_[key]);
  all_[key].tokens.take(tokens);
}

std::string span_text(int64_t ms) {
  if (ms < 1000) return fmt::format("{}ms", ms);
  std::string text;
  if (ms >= 3'600'000) text += fmt::format("{}h", ms / 3'600'000);
  if (ms >= 60'000) text += fmt::format("{}m", ms / 60'000 % 60);
  const int64_t rest = ms % 60'000;
  return text +
         (rest % 1000 == 0 ? fmt::format("{}s", rest / 1000) : fmt::format("{}.{:03}s", rest / 1000, rest % 1000));
}

}  // namespace baton::serve

// Requests that only leave checkpoints.
#include "baton/api/idle_prefill.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

// What a stop in the midst of a long question costs at most.
constexpr uint64_t kKeepTokens = 256;

}  // namespace

Status IdlePrefill::certain(std::vector<int32_t> tokens) {
  next_ = std::move(tokens);
  return busy() ? Status() : begin();
}

Status IdlePrefill::begin() {
  if (next_.empty()) return {};
  if (may_go_on_ && !may_go_on_()) {
    next_.clear();
    return {};
  }
  CompletionRequest request{runtime_.make_request(std::exchange(next_, {})), {}};
  prepare_(request.request);
  const uint64_t tokens = request.request.tokens.size();
  // Behind what was told before: that has its checkpoints, or its end has one.
  for (uint64_t at = std::min<uint64_t>(told_, tokens) + kKeepTokens; at < tokens; at += kKeepTokens)
    request.request.keep_at.push_back(at);
  told_ = tokens;
  request.request.max_new_tokens = 0;
  request.request.reuse = ReuseMode::kAny;
  request.request.passing = reinterpret_cast<uintptr_t>(this);
  BATON_TRY(answer_, runtime_.start(std::move(request)));
  return {};
}

Status IdlePrefill::poll(std::chrono::nanoseconds timeout) {
  if (!busy()) return {};
  if (may_go_on_ && !may_go_on_()) {
    next_.clear();
    answer_->cancel();
  }
  auto done = answer_->next(timeout, {});
  if (done && !*done) return {};
  answer_.reset();
  if (!done) return fail(std::move(done).error());
  const RequestStats& stats = (*done)->stats;
  // With the last token, which goes through a decode step when nothing came in between.
  prefilled_tokens_ += stats.prefill_tokens + ((*done)->reason == FinishReason::kCancelled ? 0 : 1);
  return begin();
}

Status IdlePrefill::stop() {
  next_.clear();
  if (busy()) answer_->cancel();
  while (busy()) BATON_OK(poll(std::chrono::milliseconds(20)));
  return {};
}

}  // namespace baton

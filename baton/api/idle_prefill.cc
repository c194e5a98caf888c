// Requests that only leave checkpoints.
#include "baton/api/idle_prefill.h"

#include <utility>

namespace baton {

Status IdlePrefill::certain(std::vector<int32_t> tokens) {
  next_ = std::move(tokens);
  return busy() ? Status() : begin();
}

Status IdlePrefill::begin() {
  if (next_.empty()) return {};
  CompletionRequest request{runtime_.make_request(std::exchange(next_, {})), {}};
  prepare_(request.request);
  request.request.max_new_tokens = 0;
  request.request.reuse = ReuseMode::kAny;
  BATON_TRY(answer_, runtime_.start(std::move(request)));
  return {};
}

Status IdlePrefill::poll(std::chrono::nanoseconds timeout) {
  if (!busy()) return {};
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

// Strategy `idle-prefill`: while an answer decodes or is read and the next question typed, a unit with nothing to do
// prefills what the next prompt surely begins with, and leaves it as a checkpoint. The turn that comes then begins from
// there (Request::reuse kAny): what is left is the hand-over and what was not certain before. A chat at a terminal and
// a server that gets a question piece by piece use it alike: Conversation::certain says what is.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "baton/api/runtime.h"

namespace baton {

// Used from the runtime's thread; both must outlive it. Needs EngineLimits::checkpoint_bytes_max.
class IdlePrefill {
 public:
  // `prepare` gives a request its tenant and the units that have nothing to do; tokens, reuse and lengths are set here.
  // `may_go_on` (may be empty: always) is asked before each request and at each poll: false ends what is under way as
  // `stop` does, within a step.
  IdlePrefill(Runtime& runtime, std::function<void(Request&)> prepare, std::function<bool()> may_go_on = {})
      : runtime_(runtime), prepare_(std::move(prepare)), may_go_on_(std::move(may_go_on)) {}

  // What the next prompt begins with, as far as it is known. What is under way goes on to its end; then the newest.
  // Errors of Engine::submit.
  Status certain(std::vector<int32_t> tokens);
  // Looks after what is under way, for at most so long. An error: of the request that was under way; a later `certain`
  // begins anew.
  Status poll(std::chrono::nanoseconds timeout);
  // The turn comes: what is under way ends within a step, and what it left stays.
  Status stop();

  bool busy() const { return answer_.has_value(); }
  // Processed by all requests so far, beginnings from checkpoints not counted.
  uint64_t prefilled_tokens() const { return prefilled_tokens_; }

 private:
  Status begin();

  Runtime& runtime_;
  std::function<void(Request&)> prepare_;
  std::function<bool()> may_go_on_;
  std::optional<Answer> answer_;
  size_t told_ = 0;            // tokens of the last request
  std::vector<int32_t> next_;  // empty: nothing that is not under way
  uint64_t prefilled_tokens_ = 0;
};

}  // namespace baton

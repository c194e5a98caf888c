// How much each key may ask for in a minute: requests, and tokens of prompts and answers.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "baton/base/clock.h"
#include "baton/http/server.h"
#include "baton/serve/api_keys.h"

namespace baton::serve {

// A token bucket in whole numbers: `per_minute` fit in, as many come in each minute, evenly. It is full at the start.
class RateBucket {
 public:
  explicit RateBucket(uint32_t per_minute) : per_minute_(per_minute), level_(full()) {}

  void refill(int64_t now_ms);  // a clock that goes back counts as one that stands
  bool has(uint32_t amount) const { return level_ >= int64_t{amount} * kScale; }
  // More than there is makes a debt, of an hour at most.
  void take(uint64_t amount);
  uint32_t per_minute() const { return per_minute_; }
  uint32_t remaining() const;  // whole ones; 0: also of a debt
  // From the last refill until `has(amount)`, rounded up; and until it is full.
  int64_t ms_until(uint32_t amount) const { return ms_to(int64_t{amount} * kScale); }
  int64_t ms_until_full() const { return ms_to(full()); }

 private:
  static constexpr int64_t kScale = 60'000;  // one, in units of which `per_minute_` come in each millisecond
  int64_t full() const { return int64_t{per_minute_} * kScale; }
  int64_t ms_to(int64_t level) const;

  uint32_t per_minute_;
  int64_t level_, at_ms_ = INT64_MIN;
};

// Of all keys. Any thread.
class RateLimits {
 public:
  // The clock outlives it.
  RateLimits(const ApiKeys& keys, const Clock& clock);

  struct Verdict {
    bool allowed = true;
    int64_t retry_ms = 0;        // otherwise: when it will be
    std::string message = {};    // and what was used up
    http::Headers headers = {};  // x-ratelimit-*, of keys that have limits
  };
  // A request comes; one that is allowed is taken from what there is.
  Verdict take_request(uint32_t key);
  // What an answer took: of a prompt when it is read, of what was written at the end.
  void take_tokens(uint32_t key, uint64_t tokens);

 private:
  struct Buckets {
    bool has_requests = false, has_tokens = false;
    RateBucket requests, tokens;
  };
  void refill(Buckets& buckets) const;

  const Clock& clock_;
  std::mutex mutex_;
  std::vector<Buckets> all_;  // by number of the key
};

// As OpenAI writes spans of time: "20ms", "1.5s", "6m0s".
std::string span_text(int64_t ms);

}  // namespace baton::serve

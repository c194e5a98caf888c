// How likely a model found a token: log-softmax over a whole row of its logits, as they left the model. What a request
// does to a draw (logit bias, constraint, bans, penalties, temperature) does not show in them: so do llama.cpp's server
// and vLLM it, and OpenAI since its logit_bias does not move logprobs. Ids that no text stands for count too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "baton/base/status.h"

namespace baton {

// Alternatives of a token that can be asked for.
inline constexpr uint32_t kLogprobsMax = 20;

struct TokenLogprob {
  int32_t id = -1;
  float logprob = 0;  // natural logarithm, at most 0

  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

struct Logprobs {
  float logprob = 0;                   // of the token itself
  std::vector<TokenLogprob> top = {};  // likeliest first, the lower id on ties; the token is among them or not

  friend bool operator==(const Logprobs&, const Logprobs&) = default;
};

// `id` is below logits.size(). `top`: how many alternatives, fewer where there are fewer ids. kDevice for a logit that
// is NaN or infinite. O(logits) exponentials; throws std::bad_alloc.
Result<Logprobs> logprobs_of(std::span<const float> logits, int32_t id, uint32_t top);
// kInvalidInput names `what` when it asks for more than kLogprobsMax.
Status check_logprobs(const char* what, uint32_t top);
// kDevice names the first logit that is NaN or infinite.
Status check_logits(std::span<const float> logits);

}  // namespace baton

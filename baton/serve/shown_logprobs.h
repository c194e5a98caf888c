// Tokens and how likely they were, as answers show them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "baton/sample/logprobs.h"
#include "baton/serve/protocol.h"
#include "baton/text/tokenizer.h"

namespace baton::serve {

// One for each of `ids`.
std::vector<ShownLogprob> shown_logprobs(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                         std::span<const Logprobs> logprobs);
// Of a prompt, whose first token has none (NaN).
std::vector<ShownLogprob> shown_prompt_logprobs(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                                std::span<const Logprobs> logprobs);

}  // namespace baton::serve

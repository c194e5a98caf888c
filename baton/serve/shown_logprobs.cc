// Ids to text and bytes, one by one.
#include "baton/serve/shown_logprobs.h"

#include <algorithm>
#include <limits>

#include "baton/text/detokenizer.h"

namespace baton::serve {
namespace {

ShownLogprob shown(const Tokenizer& tokenizer, int32_t id, float logprob) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  ShownLogprob made{.token = {}, .bytes = {bytes.begin(), bytes.end()}, .id = id, .logprob = logprob};
  Utf8Stream stream;
  stream.push(bytes, &made.token);
  stream.finish(&made.token);
  return made;
}

ShownLogprob shown(const Tokenizer& tokenizer, int32_t id, const Logprobs& logprobs) {
  ShownLogprob made = shown(tokenizer, id, logprobs.logprob);
  for (const TokenLogprob& other : logprobs.top) made.top.push_back(shown(tokenizer, other.id, other.logprob));
  return made;
}

}  // namespace

std::vector<ShownLogprob> shown_logprobs(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                         std::span<const Logprobs> logprobs) {
  std::vector<ShownLogprob> made;
  for (size_t i = 0; i < std::min(ids.size(), logprobs.size()); ++i)
    made.push_back(shown(tokenizer, ids[i], logprobs[i]));
  return made;
}

std::vector<ShownLogprob> shown_prompt_logprobs(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                                std::span<const Logprobs> logprobs) {
  if (ids.empty()) return {};
  std::vector<ShownLogprob> made = {shown(tokenizer, ids[0], std::numeric_limits<float>::quiet_NaN())};
  for (ShownLogprob& token : shown_logprobs(tokenizer, ids.subspan(1), logprobs)) made.push_back(std::move(token));
  return made;
}

}  // namespace baton::serve

// OpenAI's /v1/responses. Nothing is stored: a conversation comes whole each time, `previous_response_id` is refused.
//
// Read: model, input (a text; items of type message, function_call, function_call_output, reasoning), instructions,
// tools of type function, tool_choice, parallel_tool_calls, text.format, max_output_tokens, temperature, top_p,
// top_logprobs and include message.output_text.logprobs, reasoning.effort ("none": no reasoning, others: reasoning, of
// no degrees), stream, metadata (sent back), top_k, stop and ChatForm::extensions.
// Ignored: store, user, safety_identifier, service_tier, prompt_cache_key, prompt_cache_retention,
// prompt_cache_options, stream_options, max_tool_calls (there are no tools of the server's), reasoning.summary
// (reasoning is given whole), include reasoning.encrypted_content (it is given as text).
#pragma once

#include "baton/serve/formats/body.h"
#include "baton/serve/protocol.h"

namespace baton::serve::formats {

tl::expected<ApiRequest, ApiError> read_responses(const Json& body);
// What fields of a chat are called here.
FieldNames responses_names();

}  // namespace baton::serve::formats

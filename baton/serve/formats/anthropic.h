// Anthropic's /v1/messages.
//
// Read: model, max_tokens, messages (roles user, assistant and system; a text, or blocks of type text, tool_use,
// tool_result and thinking; the last is not the assistant's), system (a text or blocks), tools with input_schema,
// tool_choice (auto, any, tool, none; disable_parallel_tool_use), stop_sequences, temperature, top_k, top_p, thinking
// (enabled and adaptive: yes; disabled or not given: no), output_config.format, stream, ChatForm::extensions.
// Ignored: metadata, service_tier, inference_geo, cache_control (what prompts begin with is kept anyway), speed,
// thinking.budget_tokens and output_config.effort (a model has no degrees of it), signatures.
#pragma once

#include "baton/serve/formats/body.h"
#include "baton/serve/protocol.h"

namespace baton::serve::formats {

tl::expected<ApiRequest, ApiError> read_messages_body(const Json& body);
// /v1/messages/count_tokens: the same, without max_tokens; and what it answers.
tl::expected<ApiRequest, ApiError> read_count_tokens(const Json& body);
Json count_tokens_body(uint64_t tokens);
// {"type": "error", "error": {"type", "message"}}
Json anthropic_error(const ApiError& error);
FieldNames anthropic_names();

}  // namespace baton::serve::formats

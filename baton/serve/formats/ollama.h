// Ollama's /api/chat and /api/generate, in lines of JSON.
//
// Read: model, messages (role, content, thinking, tool_calls, tool_name, tool_call_id), prompt, system, raw, tools,
// format ("json" or a schema), think (a degree, "low", is yes), stream (default true), logprobs, top_logprobs,
// options: num_predict (below 0: as many as there is room for), temperature, top_k, top_p, min_p, seed, stop,
// repeat_penalty, presence_penalty, frequency_penalty, num_ctx (at most the model's context; it is the server's).
// keep_alive. A request without a prompt, or messages, loads the model (ApiRequest::load_only), or with keep_alive 0
// lets go of it. Ignored, what fits a model to a device: num_keep, num_batch, num_gpu, main_gpu, num_thread, numa,
// low_vram, f16_kv, use_mmap, use_mlock. Not in answers: `context`.
#pragma once

#include "baton/serve/formats/body.h"
#include "baton/serve/protocol.h"

namespace baton::serve::formats {

tl::expected<ApiRequest, ApiError> read_ollama_chat(const Json& body);
tl::expected<ApiRequest, ApiError> read_ollama_generate(const Json& body);
FieldNames ollama_names(bool chat);
// Seconds of "keep_alive": a number, or a text as "5m", "1h30m", "-1s"; below 0: for ever. Empty: not given.
std::optional<double> take_keep_alive(Body& body);
// `options` of a request that draws no tokens: as /api/chat reads them. Gives num_ctx.
std::optional<uint32_t> take_options(Body& body);
Json ollama_error(const ApiError& error);  // {"error": message}

}  // namespace baton::serve::formats

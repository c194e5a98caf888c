// Requests and answers as OpenAI's API writes them in JSON: what `baton batch` reads and writes, line by line, and what
// a server would. Fields that would change the answer and cannot be followed are refused, by name; those that cannot
// change it are not looked at.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "baton/api/runtime.h"

namespace baton::openai {

using Json = nlohmann::ordered_json;

enum class Endpoint : uint8_t { kChat, kCompletions };
// Of "/v1/chat/completions" and "/v1/completions".
std::optional<Endpoint> endpoint_of(std::string_view url);

// What a client gets in place of an answer. Empty `param` and `code` are null in JSON.
struct ApiError {
  int status = 400;  // of HTTP
  std::string message;
  std::string type = "invalid_request_error";
  std::string param = {}, code = {};
};
Json error_body(const ApiError& error);  // {"error": {message, type, param, code}}
// An error of the runtime: 400 when the request is at fault, else 500.
ApiError api_error(const Error& error, std::string_view param = {});

// A body that was read. Empty: not given, the caller's default holds.
struct ApiRequest {
  Endpoint endpoint = Endpoint::kChat;
  ChatInput chat;      // of kChat: messages only
  std::string prompt;  // of kCompletions
  std::optional<uint32_t> tokens_max;
  std::optional<float> temperature, top_p, min_p, presence_penalty, frequency_penalty;
  std::optional<int32_t> top_k;
  std::optional<int64_t> seed;
  std::optional<std::vector<std::string>> stops;

  // Puts in what was given.
  void apply(CompletionRequest& to) const;
};
// `model` is not looked at: there is one. min_p and top_k are taken too, which OpenAI's API does not have.
tl::expected<ApiRequest, ApiError> read_request(Endpoint endpoint, const Json& body);
// The prompt as tokens: messages through the chat template, a prompt as `run --raw` takes it. More tokens than the
// context holds: code "context_length_exceeded".
tl::expected<std::vector<int32_t>, ApiError> prompt_tokens(const Runtime& runtime, const ApiRequest& request);

// Where other prompts may part from this one, for Request::keep_at: before the content of the last message, and, of
// longer chats, behind the system's. Positions in `tokens`, which are the prompt's; none where the template cannot say.
std::vector<uint64_t> branching_positions(const Runtime& runtime, const ChatInput& chat,
                                          const std::vector<int32_t>& tokens);

// What a body says beside the answer.
struct AnswerFacts {
  std::string id, model, fingerprint;
  int64_t created = 0;  // seconds since 1970
};
// A chat.completion or text_completion with one choice. Not of a completion that was cancelled.
Json answer_body(Endpoint endpoint, const AnswerFacts& facts, const Completion& completion);

}  // namespace baton::openai

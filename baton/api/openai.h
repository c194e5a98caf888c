// Requests and answers as OpenAI's API writes them in JSON: what `baton batch` reads and writes, line by line, and what
// a server would. Fields that would change the answer and cannot be followed are refused, by name; those that cannot
// change it are not looked at.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "baton/api/grammar.h"
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

// How calls of tools are asked for.
enum class ToolChoice : uint8_t { kAuto, kNone, kRequired, kNamed };

// Of kCompletions: a text, or tokens.
struct Prompt {
  std::string text;
  std::optional<std::vector<int32_t>> ids;
};

// A body that was read. Empty: not given, the caller's default holds.
struct ApiRequest {
  Endpoint endpoint = Endpoint::kChat;
  std::string model;  // empty: the default one
  // Of kChat; `tools` as the template sees them (OpenAI's form), and in `extra` what chat_template_kwargs gave.
  ChatInput chat;
  std::vector<Prompt> prompts;  // of kCompletions: at least one, of a batch's line one
  std::optional<uint32_t> tokens_max;
  std::optional<float> temperature, top_p, min_p, presence_penalty, frequency_penalty, repeat_penalty;
  std::optional<int32_t> top_k;
  std::optional<int64_t> seed;
  std::optional<std::vector<std::string>> stops;
  std::vector<int32_t> stop_ids;                      // beside the model's
  std::vector<std::pair<int32_t, float>> logit_bias;  // ids, each once
  bool ignore_eos = false;

  // Of a server.
  bool stream = false;
  bool include_usage = false;        // a stream's last chunk
  uint32_t choices = 1;              // `n`, of each prompt
  std::optional<uint32_t> logprobs;  // so many alternatives of each token; 0: its own alone
  bool echo = false;                 // of kCompletions: the prompt in front of the answer
  AnswerFormat format;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;                   // of kNamed
  bool parallel_tools = true;              // more than one call in an answer
  std::optional<bool> thinking;            // enable_thinking
  bool load_only = false;                  // no prompt: the model is loaded (keep_alive 0: let go), nothing runs
  std::optional<double> keep_alive;        // seconds that the model stays behind it; below 0: for ever
  std::optional<uint32_t> context_tokens;  // that the client counts on: more than there are is refused
  Json user_data;  // what the protocol wants back in its answer (metadata, previous ids); null: nothing

  // Of all prompts; `choices` of them of the first, and so on.
  uint32_t answers() const { return choices * static_cast<uint32_t>(std::max<size_t>(prompts.size(), 1)); }
  // Puts in what was given.
  void apply(CompletionRequest& to) const;
};
// Who reads: a batch refuses what only a server can do (stream, n, logprobs, tools, formats).
enum class Reader : uint8_t { kBatch, kServer };
// min_p, top_k and repetition_penalty are taken too, which OpenAI's API does not have.
tl::expected<ApiRequest, ApiError> read_request(Endpoint endpoint, const Json& body, Reader reader = Reader::kBatch);
// `response_format`, and the extensions `regex` and `grammar` (openai_format.cc); `tools`, `tool_choice` and
// `parallel_tool_calls` (openai_tools.cc), and messages that hold calls or their results: as the template sees them.
tl::expected<AnswerFormat, ApiError> read_format(const Json& body);
tl::expected<void, ApiError> read_tools(const Json& body, ApiRequest& to);
// read_tools also holds results to the calls that they answer; with tool_choice none the model is shown no tools.
tl::expected<Json, ApiError> read_tool_message(const Json& message, const std::string& where);
// 400 for tools that the model's template would not show, or whose calls nothing here could read.
tl::expected<void, ApiError> check_tools(const TextModel& model, const ApiRequest& request);
// Whether the answer has to be a call (required, or one named): FormatCompiler::tool_calls.
bool must_call(const ApiRequest& request);
// The prompt as tokens: messages through the chat template, prompt `index` as `run --raw` takes it. More tokens than
// the context holds: code "context_length_exceeded".
tl::expected<std::vector<int32_t>, ApiError> prompt_tokens(const Runtime& runtime, const ApiRequest& request,
                                                           size_t index = 0);

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

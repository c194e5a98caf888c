// How a client's interface writes requests and answers: OpenAI's (three of them), Ollama's, Anthropic's. A protocol is
// pure: JSON in, an ApiRequest or an error out; parts of answers in, bytes out. What runs in between is the same for
// all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/answer_parts.h"
#include "baton/api/openai.h"

namespace baton::serve {

using openai::ApiError;
using openai::ApiRequest;
using openai::Json;

// Of one token that was drawn; see Completion::logprobs.
struct ShownLogprob {
  std::string token;           // as text; U+FFFD for what is no whole character
  std::vector<uint8_t> bytes;  // of it
  int32_t id = 0;
  float logprob = 0;
  std::vector<ShownLogprob> top = {};  // likeliest first; of these `top` is empty
};

// What is known before the first part of an answer.
struct AnswerHead {
  std::string id;     // without a prefix: 24 letters and digits
  std::string model;  // as the client asked for it
  std::string fingerprint;
  int64_t created = 0;  // seconds since 1970
  uint64_t prompt_tokens = 0;
  std::string request_id = {};  // as X-Request-Id
};

enum class Finish : uint8_t { kStop, kStopString, kLength, kToolCalls, kCancelled };

// Of one choice, behind its last part.
struct ChoiceEnd {
  Finish finish = Finish::kStop;
  std::string stop_string = {};  // of kStopString
};

// Of all choices, behind the last.
struct AnswerTail {
  uint64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, reasoning_tokens = 0;
  double queue_ms = 0, load_ms = 0, prefill_ms = 0, decode_ms = 0, total_ms = 0;
  Json baton;  // the extension object; null: none
};

// Writes one answer, of `n` choices, as a stream or as a whole; made for one request, used from one thread. For a
// stream each call gives the bytes to send (often none). A writer collects what it needs for the whole.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual std::string content_type() const = 0;  // of what was asked for: a stream or a whole
  virtual std::string begin(const AnswerHead& head) = 0;
  // `logprobs`: of the tokens that the part was made of, where they were asked for; may come with an empty text.
  virtual std::string part(uint32_t choice, const AnswerPart& part, const std::vector<ShownLogprob>& logprobs) = 0;
  virtual std::string end_choice(uint32_t choice, const ChoiceEnd& end) = 0;
  // Of a stream the last bytes, of a whole the body.
  virtual std::string end(const AnswerTail& tail) = 0;
  // In a stream that has begun: an error, and its end.
  virtual std::string error(const ApiError& error) = 0;
  // What keeps a quiet stream open (an SSE comment); empty: this one has none.
  virtual std::string keep_alive() const = 0;
};

class Protocol {
 public:
  virtual ~Protocol() = default;
  // The body of a request, each field honoured, documented as ignored, or refused by its name.
  virtual tl::expected<ApiRequest, ApiError> read(const Json& body) const = 0;
  // `request`: as `read` gave it; lives longer than the writer.
  virtual std::unique_ptr<AnswerWriter> writer(const ApiRequest& request) const = 0;
  // Instead of an answer, with the status of `error`.
  virtual Json error_body(const ApiError& error) const = 0;
};

// Lives for ever.
const Protocol& openai_chat();
const Protocol& openai_completions();
const Protocol& openai_responses();    // /v1/responses
const Protocol& anthropic_messages();  // /v1/messages
const Protocol& ollama_chat();         // /api/chat: NDJSON
const Protocol& ollama_generate();     // /api/generate

}  // namespace baton::serve

// Lines of OpenAI's batch files: requests in, answers out; one JSON object each. docs/batch.md has both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "baton/api/openai.h"

namespace baton::openai {

// A request that could be read so far that it can be answered, be it with an error of its body.
struct BatchRequest {
  std::string custom_id;
  Endpoint endpoint = Endpoint::kChat;
  Json body;
};
// Why a line is no request. `byte`: of the line, where its JSON ends to be valid.
struct LineError {
  std::string code, message;
  std::optional<std::string> custom_id = {};
  std::optional<uint64_t> byte = {};
};
// Arrays and objects nest 64 deep at most.
tl::expected<BatchRequest, LineError> read_request_line(std::string_view line);
// The custom_id alone; empty when the line is no object with one.
std::optional<std::string> custom_id_of(std::string_view line);

// A line of answers ends with a newline. `number`: of the request's line, from 1; what its ids are made of.
std::string answer_line(uint64_t number, const std::string& custom_id, int status, const Json& body);
// Of a line that is no request: there is no response.
std::string error_line(uint64_t number, const LineError& error);
std::string answer_id(Endpoint endpoint, uint64_t number);  // of a body

// What is looked at in a line of answers that is there already.
struct AnsweredLine {
  uint64_t number = 0;
  std::optional<std::string> custom_id;  // empty: the request had none
  bool responded = false;                // else the line was no request
  bool answered = false;                 // with status 200
  std::string model, fingerprint;        // of an answer
};
// Empty when it is no line that this wrote.
std::optional<AnsweredLine> read_answered_line(std::string_view line);
// Whether a line that ends too early may be the beginning of one of those.
bool begins_answer(std::string_view torn);

}  // namespace baton::openai

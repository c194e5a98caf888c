// For tests of protocols: a request that is read, an answer that is written, and its events.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "baton/serve/protocol.h"

namespace baton::serve {

inline AnswerPart text_part(std::string text) { return {.text = std::move(text)}; }
inline AnswerPart thought(std::string text) { return {.kind = AnswerPart::Kind::kReasoning, .text = std::move(text)}; }
inline AnswerPart call_part(uint32_t call, std::string name) {
  return {.kind = AnswerPart::Kind::kToolCall, .call = call, .name = std::move(name)};
}
inline AnswerPart arguments_part(uint32_t call, std::string text) {
  return {.kind = AnswerPart::Kind::kToolArguments, .text = std::move(text), .call = call};
}

inline AnswerHead test_head() {
  return {
      .id = "abcdefghijklmnopqrstuvwx", .model = "m", .fingerprint = "fp", .created = 1700000000, .prompt_tokens = 11};
}
inline AnswerTail test_tail() {
  return {.prompt_tokens = 11,
          .cached_tokens = 4,
          .completion_tokens = 7,
          .reasoning_tokens = 2,
          .queue_ms = 1,
          .load_ms = 2,
          .prefill_ms = 3,
          .decode_ms = 4.5,
          .total_ms = 10,
          .baton = nullptr};
}

// All that is written of an answer of one choice.
inline std::string written(const Protocol& protocol, const ApiRequest& request, const std::vector<AnswerPart>& parts,
                           const ChoiceEnd& end = {}) {
  const auto writer = protocol.writer(request);
  std::string out = writer->begin(test_head());
  for (const AnswerPart& part : parts) out += writer->part(0, part, {});
  out += writer->end_choice(0, end);
  return out + writer->end(test_tail());
}

// {"event" as it is named, "data"} of each server-sent event.
inline std::vector<std::pair<std::string, openai::Json>> events_of(const std::string& stream) {
  std::vector<std::pair<std::string, openai::Json>> events;
  std::istringstream lines(stream);
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("event: ")) name = line.substr(7);
    if (line.starts_with("data: ")) events.emplace_back(name, openai::Json::parse(line.substr(6)));
  }
  return events;
}

inline std::vector<openai::Json> lines_of(const std::string& stream) {
  std::vector<openai::Json> made;
  std::istringstream lines(stream);
  for (std::string line; std::getline(lines, line);) made.push_back(openai::Json::parse(line));
  return made;
}

inline ApiRequest read_or_fail(const Protocol& protocol, std::string_view body) {
  auto read = protocol.read(openai::Json::parse(body));
  EXPECT_TRUE(read) << body << ": " << (read ? "" : read.error().message);
  return read ? *std::move(read) : ApiRequest{};
}

// The name of the field that is refused; its message names it too.
inline std::string refused(const Protocol& protocol, const openai::Json& body) {
  const auto read = protocol.read(body);
  if (read) return "accepted";
  EXPECT_EQ(read.error().status, 400);
  EXPECT_NE(read.error().message.find(read.error().param), std::string::npos) << read.error().message;
  return read.error().param;
}

// `base` with `more`, a JSON object, put in.
inline openai::Json with(std::string_view base, std::string_view more) {
  openai::Json body = openai::Json::parse(base);
  body.update(openai::Json::parse(more));
  return body;
}

struct BadField {
  const char* more;
  const char* field;
};

}  // namespace baton::serve

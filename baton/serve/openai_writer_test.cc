// Answers as OpenAI's clients read them.
#include <gtest/gtest.h>

#include <cmath>

#include "baton/serve/protocol.h"

namespace baton::serve {
namespace {

using Kind = AnswerPart::Kind;

const AnswerHead kHead{"abcdefghijklmnopqrstuvwx", "m", "fp_1", 5, 7};

std::vector<Json> chunks_of(std::string_view text) {
  std::vector<Json> events;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    EXPECT_NE(end, std::string_view::npos);
    EXPECT_TRUE(text.starts_with("data: "));
    const std::string_view data = text.substr(6, end - 6);
    events.push_back(data == "[DONE]" ? Json("DONE") : Json::parse(data));
    text.remove_prefix(end + 2);
  }
  return events;
}

// All that a writer says of some parts.
std::string openai_written(const Protocol& protocol, const ApiRequest& request, const std::vector<AnswerPart>& parts,
                           Finish finish = Finish::kStop, const std::vector<ShownLogprob>& logprobs = {}) {
  const auto writer = protocol.writer(request);
  std::string bytes = writer->begin(kHead);
  for (const AnswerPart& part : parts) bytes += writer->part(0, part, logprobs);
  bytes += writer->end_choice(0, {finish});
  AnswerTail tail;
  tail.prompt_tokens = 7;
  tail.cached_tokens = 4;
  tail.completion_tokens = 3;
  tail.reasoning_tokens = 1;
  tail.baton = {{"queue_ms", 1}};
  return bytes + writer->end(tail);
}

const std::vector<AnswerPart> kParts = {{Kind::kReasoning, "hm"},
                                        {Kind::kText, "a"},
                                        {Kind::kText, "b"},
                                        {Kind::kToolCall, "", 0, "f"},
                                        {Kind::kToolArguments, "{\"x\"", 0},
                                        {Kind::kToolArguments, ": 1}", 0}};

TEST(OpenAiChatWriter, Whole) {
  const Json body = Json::parse(openai_written(openai_chat(), {}, kParts, Finish::kToolCalls));
  EXPECT_EQ(body["id"], "chatcmpl-abcdefghijklmnopqrstuvwx");
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
  const Json& message = body["choices"][0]["message"];
  EXPECT_EQ(message["content"], "ab");
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_EQ(message["tool_calls"][0]["function"], Json::parse(R"({"name": "f", "arguments": "{\"x\": 1}"})"));
  EXPECT_EQ(body["usage"], Json::parse(R"({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10,
      "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 1}})"));
  EXPECT_EQ(body["baton"]["queue_ms"], 1);
  const Json calls_alone = Json::parse(openai_written(openai_chat(), {}, {kParts[3], kParts[4], kParts[5]}));
  EXPECT_TRUE(calls_alone["choices"][0]["message"]["content"].is_null());
}

TEST(OpenAiChatWriter, StreamIsTheWholeInPieces) {
  ApiRequest request;
  request.stream = request.include_usage = true;
  const auto events = chunks_of(openai_written(openai_chat(), request, kParts, Finish::kToolCalls));
  EXPECT_EQ(events.back(), "DONE");
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json::parse(R"({"role": "assistant", "content": ""})"));
  std::string text, reasoning, arguments, ids;
  for (size_t i = 1; i + 2 < events.size(); ++i) {
    const Json& delta = events[i]["choices"][0]["delta"];
    text += delta.value("content", "");
    reasoning += delta.value("reasoning_content", "");
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      ids += call.value("id", "");
      arguments += call["function"].value("arguments", "");
    }
    EXPECT_TRUE(events[i]["usage"].is_null());
  }
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(arguments, "{\"x\": 1}");
  EXPECT_TRUE(ids.starts_with("call_"));
  const Json& last = events[events.size() - 3];
  EXPECT_EQ(last["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(last["choices"][0]["delta"], Json::object());
  const Json& usage = events[events.size() - 2];
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["total_tokens"], 10);
}

TEST(OpenAiChatWriter, NothingSaidIsStillAStream) {
  ApiRequest request;
  request.stream = true;
  const auto events = chunks_of(openai_written(openai_chat(), request, {}));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[1]["choices"][0]["finish_reason"], "stop");
  EXPECT_FALSE(events[1].contains("usage"));
}

TEST(OpenAiChatWriter, ErrorInAStream) {
  ApiRequest request;
  request.stream = true;
  const auto writer = openai_chat().writer(request);
  const auto events = chunks_of(writer->error({.status = 503, .message = "no", .type = "server_error"}));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["error"]["message"], "no");
}

TEST(OpenAiChatWriter, Logprobs) {
  ApiRequest request;
  request.logprobs = 1;
  const ShownLogprob token{"a", {97}, 3, -0.5f, {{"b", {98}, 4, -0.25f}}};
  const Json body = Json::parse(openai_written(openai_chat(), request, {{Kind::kText, "a"}}, Finish::kStop, {token}));
  EXPECT_EQ(body["choices"][0]["logprobs"]["content"], Json::parse(R"([{"token": "a", "logprob": -0.5, "bytes": [97],
      "top_logprobs": [{"token": "b", "logprob": -0.25, "bytes": [98]}]}])"));
  request.stream = true;
  const auto events = chunks_of(openai_written(openai_chat(), request, {{Kind::kText, "a"}}, Finish::kStop, {token}));
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["content"].size(), 1u);
}

TEST(OpenAiCompletionsWriter, LogprobsInColumns) {
  ApiRequest request;
  request.endpoint = openai::Endpoint::kCompletions;
  request.logprobs = 1;
  const std::vector<ShownLogprob> tokens = {{"\xC3\xA9", {0xC3, 0xA9}, 1, std::nanf("")},
                                            {"x", {120}, 2, -1.0f, {{"y", {121}, 3, -0.5f}}}};
  const Json body =
      Json::parse(openai_written(openai_completions(), request, {{Kind::kText, "\xC3\xA9x"}}, Finish::kLength, tokens));
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["text"], "\xC3\xA9x");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::parse(R"(["\u00e9", "x"])"));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json::parse("[null, -1.0]"));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0, 1]"));
  // The token itself is always among them.
  EXPECT_EQ(choice["logprobs"]["top_logprobs"], Json::parse(R"([null, {"y": -0.5, "x": -1.0}])"));
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("cmpl-"));
}

// Of an answer without a token: columns that are empty.
TEST(OpenAiCompletionsWriter, LogprobsOfNothing) {
  ApiRequest request;
  request.endpoint = openai::Endpoint::kCompletions;
  request.logprobs = 1;
  const Json none = Json::parse(openai_written(openai_completions(), request, {}, Finish::kStop, {}));
  const Json& shown = none["choices"][0]["logprobs"];
  for (const char* column : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(shown[column], Json::array()) << column;
  request.logprobs.reset();
  const Json unasked = Json::parse(openai_written(openai_completions(), request, {}, Finish::kStop, {}));
  EXPECT_TRUE(unasked["choices"][0]["logprobs"].is_null());
}

// Two tokens for one character, then one of white space and a letter.
TEST(OpenAiCompletionsWriter, TokensWithinACharacter) {
  ApiRequest request;
  request.endpoint = openai::Endpoint::kCompletions;
  request.logprobs = 1;
  const std::vector<ShownLogprob> tokens = {
      {"a", {97}, 1, -1.0f},
      {"\xEF\xBF\xBD", {0xE6, 0x97}, 2, -1.0f, {{"\xEF\xBF\xBD", {0xE7}, 4, -2.0f}}},
      {"\xEF\xBF\xBD", {0xA5}, 3, -1.0f},
      {" b", {32, 98}, 5, -1.0f}};
  const Json body = Json::parse(
      openai_written(openai_completions(), request, {{Kind::kText, "a\xE6\x97\xA5 b"}}, Finish::kLength, tokens));
  const Json& shown = body["choices"][0]["logprobs"];
  EXPECT_EQ(shown["tokens"], Json::parse(R"(["a", "bytes:\\xe6\\x97", "bytes:\\xa5", " b"])"));
  EXPECT_EQ(shown["text_offset"], Json::parse("[0, 1, 1, 2]"));
  EXPECT_EQ(shown["top_logprobs"][1], Json::parse(R"({"bytes:\\xe7": -2.0, "bytes:\\xe6\\x97": -1.0})"));
}

TEST(OpenAiCompletionsWriter, Stream) {
  ApiRequest request;
  request.stream = true;
  const auto events = chunks_of(
      openai_written(openai_completions(), request, {{Kind::kText, "a"}, {Kind::kText, ""}, {Kind::kText, "b"}}));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["choices"][0]["text"], "a");
  EXPECT_EQ(events[1]["choices"][0]["text"], "b");
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "stop");
}

}  // namespace
}  // namespace baton::serve

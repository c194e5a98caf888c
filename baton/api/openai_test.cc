// Bodies and lines of OpenAI's format.
#include "baton/api/openai.h"

#include <gtest/gtest.h>

#include "baton/api/batch_line.h"

namespace baton::openai {
namespace {

Json chat(std::string_view more = "{}") {
  Json body = Json::parse(R"({"model": "m", "messages": [{"role": "user", "content": "hi"}]})");
  body.update(Json::parse(more));
  return body;
}

std::string refused_field(const Json& body, Endpoint endpoint = Endpoint::kChat) {
  const auto read = read_request(endpoint, body);
  if (read) return "accepted";
  EXPECT_EQ(read.error().status, 400);
  EXPECT_FALSE(read.error().message.empty());
  return read.error().param;
}

TEST(OpenAiRequest, FieldsThatAreFollowed) {
  const auto read = read_request(Endpoint::kChat, chat(R"({"max_completion_tokens": 7, "temperature": 0.5, "top_p": 0,
      "min_p": 0.1, "top_k": 3, "presence_penalty": -2, "frequency_penalty": 1, "seed": -5, "stop": ["a", "b"]})"));
  ASSERT_TRUE(read) << read.error().message;
  CompletionRequest to;
  to.stops = {"other"};
  read->apply(to);
  const SamplerParams& sampler = to.request.sampler;
  EXPECT_EQ(to.request.max_new_tokens, 7u);
  EXPECT_EQ(sampler.temperature, 0.5f);
  EXPECT_GT(sampler.top_p, 0.0f);
  EXPECT_LT(sampler.top_p, 1e-20f);
  EXPECT_EQ(sampler.min_p, 0.1f);
  EXPECT_EQ(sampler.top_k, 3);
  EXPECT_EQ(sampler.presence_penalty, -2.0f);
  EXPECT_EQ(sampler.frequency_penalty, 1.0f);
  EXPECT_EQ(sampler.seed, static_cast<uint64_t>(-5));
  EXPECT_EQ(to.stops, (std::vector<std::string>{"a", "b"}));
}

TEST(OpenAiRequest, WhatIsNotGivenStays) {
  const auto read = read_request(Endpoint::kChat, chat(R"({"temperature": null, "stop": null, "max_tokens": null})"));
  ASSERT_TRUE(read) << read.error().message;
  CompletionRequest to;
  to.request.max_new_tokens = 9;
  to.request.sampler = {.temperature = 0.25f, .top_p = 0.5f, .seed = 4};
  to.stops = {"x"};
  read->apply(to);
  EXPECT_EQ(to.request.max_new_tokens, 9u);
  EXPECT_EQ(to.request.sampler.temperature, 0.25f);
  EXPECT_EQ(to.request.sampler.top_p, 0.5f);
  EXPECT_EQ(to.request.sampler.seed, 4u);
  EXPECT_EQ(to.stops, std::vector<std::string>{"x"});
}

TEST(OpenAiRequest, FieldsThatWouldChangeTheAnswerAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"stream", "true"},
      {"n", "2"},
      {"tools", R"([{"type": "function"}])"},
      {"tool_choice", R"("required")"},
      {"response_format", R"({"type": "json_object"})"},
      {"logprobs", "true"},
      {"logit_bias", R"({"5": 100})"},
      {"reasoning_effort", R"("low")"},
      {"no_such_field", "null"},
      {"temperature", "3"},
      {"temperature", R"("hot")"},
      {"top_p", "-0.1"},
      {"max_tokens", "0"},
      {"max_tokens", "1.5"},
      {"max_tokens", "18446744073709551615"},
      {"seed", "0.5"},
      {"stop", R"([""])"},
      {"stop", "5"},
  };
  for (const auto& [name, value] : cases)
    EXPECT_EQ(refused_field(chat(std::string("{\"") + name + "\": " + value + "}")), name) << value;
  EXPECT_EQ(refused_field(chat(R"({"max_tokens": 3, "max_completion_tokens": 4})")), "max_tokens");
  EXPECT_EQ(refused_field(chat(R"({"prompt": "x"})")), "prompt");
}

TEST(OpenAiRequest, FieldsThatChangeNothingAreTaken) {
  for (const char* more : {R"({"stream": false, "n": 1, "tools": [], "tool_choice": "none", "logprobs": false})",
                           R"({"response_format": {"type": "text"}, "logit_bias": {}, "stream": null})",
                           R"({"user": "u", "metadata": {"a": "b"}, "store": true, "service_tier": "auto"})",
                           R"({"max_tokens": 4, "max_completion_tokens": 4})"}) {
    EXPECT_EQ(refused_field(chat(more)), "accepted") << more;
  }
}

TEST(OpenAiRequest, Messages) {
  const auto read = read_request(Endpoint::kChat, Json::parse(R"({"messages": [
      {"role": "developer", "content": "be brief"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "x"},
      {"role": "assistant", "content": "c", "refusal": null, "tool_calls": []}]})"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->chat.messages, Json::parse(R"([{"role": "system", "content": "be brief"},
      {"role": "user", "content": "a\nb", "name": "x"}, {"role": "assistant", "content": "c"}])"));
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "messages"},
      {R"("hi")", "messages"},
      {"[5]", "messages[0]"},
      {R"([{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}])", "messages[1].role"},
      {R"([{"role": "user", "content": null}])", "messages[0].content"},
      {R"([{"role": "user"}])", "messages[0].content"},
      {R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])", "messages[0].content[0]"},
      {R"([{"role": "assistant", "content": "", "tool_calls": [1]}])", "messages[0].tool_calls"},
  };
  for (const auto& [messages, field] : cases)
    EXPECT_EQ(refused_field(Json{{"messages", Json::parse(messages)}}), field) << messages;
}

TEST(OpenAiRequest, Completions) {
  const auto read =
      read_request(Endpoint::kCompletions, Json::parse(R"({"prompt": "A", "max_tokens": 2, "echo": false})"));
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->prompts.size(), 1u);
  EXPECT_EQ(read->prompts[0].text, "A");
  EXPECT_EQ(refused_field(Json::parse(R"({"prompt": ["a", "b"]})"), Endpoint::kCompletions), "prompt");
  EXPECT_EQ(refused_field(Json::parse(R"({"prompt": "a", "echo": true})"), Endpoint::kCompletions), "echo");
  EXPECT_EQ(refused_field(Json::parse(R"({"prompt": "a", "messages": []})"), Endpoint::kCompletions), "messages");
}

TEST(OpenAiAnswer, EndsAndCounts) {
  Completion completion;
  completion.text = "hello";
  completion.stats.prompt_tokens = 3;
  completion.stats.generated_tokens = 2;
  const std::pair<Ended, const char*> ends[] = {{Ended::kEndToken, "stop"},
                                                {Ended::kStopString, "stop"},
                                                {Ended::kTokenLimit, "length"},
                                                {Ended::kContextFull, "length"}};
  for (const auto& [ended, reason] : ends) {
    completion.ended = ended;
    const Json body = answer_body(Endpoint::kChat, {"i", "m", "f", 5}, completion);
    EXPECT_EQ(body["choices"][0]["finish_reason"], reason);
    EXPECT_EQ(body["choices"][0]["message"]["content"], "hello");
    EXPECT_EQ(body["usage"]["total_tokens"], 5);
    EXPECT_EQ(body["object"], "chat.completion");
  }
  EXPECT_EQ(answer_body(Endpoint::kCompletions, {"i", "m", "f", 5}, completion)["choices"][0]["text"], "hello");
}

TEST(OpenAiAnswer, ErrorsSayWhoseTheyAre) {
  EXPECT_EQ(api_error({Code::kInvalidInput, "x"}, "prompt").status, 400);
  EXPECT_EQ(api_error({Code::kDevice, "x"}).status, 500);
  EXPECT_EQ(
      error_body(api_error({Code::kInvalidInput, "x"}, "prompt")),
      Json::parse(R"({"error": {"message": "x", "type": "invalid_request_error", "param": "prompt", "code": null}})"));
}

TEST(BatchLine, Requests) {
  const auto read = read_request_line(
      R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": []}})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->custom_id, "a");
  const std::pair<std::string, const char*> cases[] = {
      {R"({"custom_id": )", "invalid_json_line"},
      {"5", "invalid_json_line"},
      {R"({"custom_id": "a", "x": 1e999})", "invalid_json_line"},
      {R"({"a": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}", "invalid_json_line"},
      {R"({"custom_id": "a\ud800"})", "invalid_json_line"},
      {R"({"method": "POST"})", "missing_required_parameter"},
      {R"({"custom_id": 5})", "missing_required_parameter"},
      {R"({"custom_id": "a", "method": "GET"})", "invalid_method"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/embeddings"})", "invalid_url"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions"})", "missing_required_parameter"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": 5})", "missing_required_parameter"},
  };
  for (const auto& [line, code] : cases) {
    const auto refused = read_request_line(line);
    ASSERT_FALSE(refused) << line.substr(0, 80);
    EXPECT_EQ(refused.error().code, code) << line.substr(0, 80);
  }
  EXPECT_EQ(read_request_line(R"({"a": x})").error().byte, 6u);
  EXPECT_EQ(read_request_line(R"({"custom_id": "b", "method": "GET"})").error().custom_id, "b");
}

TEST(BatchLine, AnswersAreReadBack) {
  const std::string good =
      answer_line(7, "a", 200, Json::parse(R"({"model": "m", "system_fingerprint": "f", "choices": []})"));
  EXPECT_EQ(good.find('\n'), good.size() - 1);
  const auto read = read_answered_line(std::string_view(good).substr(0, good.size() - 1));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->number, 7u);
  EXPECT_EQ(read->custom_id, "a");
  EXPECT_TRUE(read->responded && read->answered);
  EXPECT_EQ(read->model + read->fingerprint, "mf");

  const auto bad = read_answered_line(answer_line(8, "b", 400, error_body({.message = "x"})));
  ASSERT_TRUE(bad);
  EXPECT_TRUE(bad->responded);
  EXPECT_FALSE(bad->answered);
  const auto none = read_answered_line(error_line(9, {"invalid_json_line", "x"}));
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->responded || none->custom_id);

  for (size_t end = 0; end < good.size() - 1; ++end) {
    EXPECT_FALSE(read_answered_line(good.substr(0, end))) << end;
    EXPECT_TRUE(begins_answer(good.substr(0, end))) << end;
  }
  for (const char* other : {"{}", "5", R"({"id": "batch_req_1x", "response": null})", "a letter",
                            R"({"id": "batch_req_1", "custom_id": "a", "response": {}})"})
    EXPECT_FALSE(read_answered_line(other)) << other;
  EXPECT_FALSE(begins_answer("Dear"));
}

}  // namespace
}  // namespace baton::openai

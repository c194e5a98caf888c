// Bodies as a server reads them: what a batch refuses, and more.
#include <gtest/gtest.h>

#include "baton/api/openai.h"

namespace baton::openai {
namespace {

Json asked(std::string_view more = "{}") {
  Json body = Json::parse(R"({"model": "m", "messages": [{"role": "user", "content": "hi"}]})");
  body.update(Json::parse(more));
  return body;
}

ApiRequest served(const Json& body, Endpoint endpoint = Endpoint::kChat) {
  auto read = read_request(endpoint, body, Reader::kServer);
  EXPECT_TRUE(read) << read.error().message;
  return read ? *std::move(read) : ApiRequest();
}

std::string refused(const Json& body, Endpoint endpoint = Endpoint::kChat) {
  const auto read = read_request(endpoint, body, Reader::kServer);
  return read ? "accepted" : read.error().param;
}

TEST(OpenAiServerRequest, WhatOnlyAServerFollows) {
  const ApiRequest read = served(asked(R"({"stream": true, "stream_options": {"include_usage": true}, "n": 3,
      "logprobs": true, "top_logprobs": 4, "logit_bias": {"7": -100, "9": 2.5}, "stop_token_ids": [5],
      "repetition_penalty": 1.25, "ignore_eos": true, "chat_template_kwargs": {"enable_thinking": false, "x": 1}})"));
  EXPECT_EQ(read.model, "m");
  EXPECT_TRUE(read.stream && read.include_usage && read.ignore_eos);
  EXPECT_EQ(read.choices, 3u);
  EXPECT_EQ(read.logprobs, 4u);
  EXPECT_EQ(read.logit_bias, (std::vector<std::pair<int32_t, float>>{{7, -100.0f}, {9, 2.5f}}));
  EXPECT_EQ(read.thinking, false);
  EXPECT_EQ(read.chat.extra, Json::parse(R"({"enable_thinking": false, "x": 1})"));
  CompletionRequest to;
  to.request.stop_ids = {1};
  read.apply(to);
  EXPECT_EQ(to.request.stop_ids, (std::vector<int32_t>{1, 5}));
  EXPECT_EQ(to.request.sampler.repeat_penalty, 1.25f);
  EXPECT_EQ(to.request.sampler.logprobs, 4u);
  EXPECT_EQ(to.request.sampler.logit_bias.size(), 2u);
  EXPECT_TRUE(to.request.ignore_eos);
}

TEST(OpenAiServerRequest, OfABatchTheyAreRefusedStill) {
  for (const char* more : {R"({"stream": true})", R"({"n": 3})", R"({"logprobs": true})", R"({"ignore_eos": true})",
                           R"({"logit_bias": {"7": 1}})", R"({"stop_token_ids": [5]})", R"({"repetition_penalty": 1})",
                           R"({"chat_template_kwargs": {}})", R"({"reasoning_effort": "low"})"})
    EXPECT_FALSE(read_request(Endpoint::kChat, asked(more))) << more;
}

TEST(OpenAiServerRequest, UsageOfAStream) {
  const auto usage = [](const std::string& options) {
    return served(asked(R"({"stream": true, "stream_options": )" + options + "}")).include_usage;
  };
  EXPECT_TRUE(usage(R"({"include_usage": true, "continuous_usage_stats": true})"));
  EXPECT_TRUE(usage(R"({"include_usage": true, "continuous_usage_stats": false, "include_obfuscation": false})"));
  EXPECT_TRUE(usage(R"({"continuous_usage_stats": true})"));
  EXPECT_FALSE(usage(R"({"continuous_usage_stats": false})"));
  EXPECT_FALSE(usage(R"({"include_usage": false, "continuous_usage_stats": true})"));
  EXPECT_FALSE(usage("{}"));
}

TEST(OpenAiServerRequest, ThinkingByDegrees) {
  EXPECT_EQ(served(asked(R"({"reasoning_effort": "none"})")).thinking, false);
  EXPECT_EQ(served(asked(R"({"reasoning_effort": "high"})")).thinking, true);
  // The template's own switch is the nearer one.
  EXPECT_EQ(
      served(asked(R"({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": false}})")).thinking,
      false);
  EXPECT_EQ(served(asked()).thinking, std::nullopt);
}

TEST(OpenAiServerRequest, RefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"n": 0})", "n"},
      {R"({"n": 17})", "n"},
      {R"({"n": 1.5})", "n"},
      {R"({"best_of": 2})", "best_of"},
      {R"({"stream": 1})", "stream"},
      {R"({"stream_options": {"include_usage": true}})", "stream_options"},
      {R"({"stream": true, "stream_options": {"other": true}})", "stream_options"},
      {R"({"stream": true, "stream_options": {"continuous_usage_stats": 1}})", "stream_options"},
      {R"({"top_logprobs": 3})", "top_logprobs"},
      {R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs"},
      {R"({"logprobs": 3})", "logprobs"},
      {R"({"logit_bias": {"a": 1}})", "logit_bias"},
      {R"({"logit_bias": {"5": 101}})", "logit_bias"},
      {R"({"logit_bias": {"05": 1, "5": 1}})", "logit_bias"},
      {R"({"logit_bias": [1]})", "logit_bias"},
      {R"({"stop_token_ids": [-1]})", "stop_token_ids"},
      {R"({"chat_template_kwargs": {"messages": 1}})", "chat_template_kwargs.messages"},
      {R"({"chat_template_kwargs": {"x": [1]}})", "chat_template_kwargs.x"},
      {R"({"chat_template_kwargs": {"enable_thinking": 1}})", "chat_template_kwargs.enable_thinking"},
      {R"({"chat_template": "x"})", "chat_template"},
      {R"({"reasoning_effort": "much"})", "reasoning_effort"},
      {R"({"model": 5})", "model"},
      {R"({"echo": true})", "echo"},
      {R"({"suffix": "x"})", "suffix"},
      {R"({"audio": {}})", "audio"},
      {R"({"modalities": ["text", "audio"]})", "modalities"},
      {R"({"functions": [{"name": "f"}]})", "functions"},
      {R"({"functions": []})", "functions"},
      {R"({"function_call": "auto"})", "function_call"},
      {R"({"repetition_penalty": 1.5, "repeat_penalty": 1.25})", "repeat_penalty"},
      {R"({"response_format": {"type": "text", "schema": {}}})", "response_format.schema"},
      {R"({"response_format": {"type": "json_object", "strict": true}})", "response_format.strict"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "scheme": {}}}})",
       "response_format.json_schema.scheme"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "txt": "b"}]}]})",
       "messages[0].content[0].txt"},
      {R"({"verbosity": "low"})", "verbosity"},
      {R"({"prompt": "x"})", "prompt"},
      {R"({"max_tokens": 0})", "max_tokens"},
      {R"({"repetition_penalty": 0})", "repetition_penalty"},
  };
  for (const auto& [more, field] : cases) EXPECT_EQ(refused(asked(more)), field) << more;
}

TEST(OpenAiServerRequest, MediaAreRefusedByWhatTheyAre) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}})", "images are"},
      {R"({"type": "input_audio", "input_audio": {}})", "audio is"},
      {R"({"type": "file", "file": {}})", "files are"},
  };
  for (const auto& [part, kind] : cases) {
    const Json body = {{"messages", {{{"role", "user"}, {"content", Json::array({Json::parse(part)})}}}}};
    const auto read = read_request(Endpoint::kChat, body, Reader::kServer);
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().message.find(std::string(kind) + " not supported"), std::string::npos)
        << read.error().message;
  }
}

TEST(OpenAiServerRequest, Completions) {
  const auto completions = Endpoint::kCompletions;
  EXPECT_EQ(
      served(Json::parse(R"({"prompt": "A", "echo": true, "logprobs": 0, "max_tokens": 0})"), completions).logprobs,
      0u);
  EXPECT_EQ(served(Json::parse(R"({"prompt": [5, 6]})"), completions).prompts.at(0).ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(served(Json::parse(R"({"prompt": [[5, 6]]})"), completions).prompts.at(0).ids,
            (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(served(Json::parse(R"({"prompt": ["A"]})"), completions).prompts.at(0).text, "A");
  const auto several = served(Json::parse(R"({"prompt": ["A", [7], "B"], "n": 2})"), completions);
  ASSERT_EQ(several.prompts.size(), 3u);
  EXPECT_EQ(several.prompts[1].ids, (std::vector<int32_t>{7}));
  EXPECT_EQ(several.prompts[2].text, "B");
  EXPECT_EQ(several.answers(), 6u);
  EXPECT_EQ(refused({{"prompt", std::vector<std::string>(64, "A")}, {"n", 3}}, completions), "n");
  EXPECT_EQ(refused({{"prompt", std::vector<std::string>(65, "A")}}, completions), "prompt");
  for (const char* prompt : {R"([])", R"(["a", 5])", R"([[1], []])", R"([1, "a"])", R"([-1])", R"([1.5])", "5", "null",
                             R"([[]])", R"([[[1]]])"})
    EXPECT_EQ(refused(Json{{"prompt", Json::parse(prompt)}}, completions), "prompt") << prompt;
  EXPECT_EQ(refused(Json::parse(R"({"prompt": "A", "tools": [{}]})"), completions), "tools");
  EXPECT_EQ(refused(Json::parse(R"({"prompt": "A", "top_logprobs": 2})"), completions), "top_logprobs");
}

}  // namespace
}  // namespace baton::openai

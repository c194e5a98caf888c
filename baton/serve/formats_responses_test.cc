// /v1/responses, by what its documentation says of bodies and events.
#include <gtest/gtest.h>

#include "baton/serve/formats_driver.h"

namespace baton::serve {
namespace {

using openai::Json;

constexpr std::string_view kPlainBody = R"({"model": "m", "input": "hi"})";

Json read_messages_of(std::string_view body) { return read_or_fail(openai_responses(), body).chat.messages; }

TEST(ResponsesBody, TextInstructionsAndSampling) {
  const ApiRequest request =
      read_or_fail(openai_responses(), R"({"model": "m", "input": "hi", "instructions": "Be brief.",
      "max_output_tokens": 9, "temperature": 0.5, "top_p": 0.25, "stream": true, "store": true, "metadata": {"a": "b"},
      "previous_response_id": null, "truncation": "disabled", "background": false, "seed": 3, "top_k": 2,
      "reasoning": {"effort": "none", "summary": "auto"}, "user": "u", "include": ["reasoning.encrypted_content"],
      "text": {"format": {"type": "text"}, "verbosity": "medium"}})");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.chat.messages, Json::parse(R"([{"role": "system", "content": "Be brief."},
                                                   {"role": "user", "content": "hi"}])"));
  EXPECT_EQ(request.tokens_max, 9u);
  EXPECT_EQ(request.temperature, 0.5f);
  EXPECT_EQ(request.top_p, 0.25f);
  EXPECT_EQ(request.seed, 3);
  EXPECT_EQ(request.top_k, 2);
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.thinking, false);
  EXPECT_EQ(request.chat.extra["enable_thinking"], false);
  EXPECT_FALSE(request.logprobs);
  EXPECT_EQ(request.user_data["metadata"], Json::parse(R"({"a": "b"})"));
  EXPECT_EQ(request.user_data["store"], false);
}

TEST(ResponsesBody, ItemsBecomeMessages) {
  EXPECT_EQ(read_messages_of(R"({"input": [
      {"role": "developer", "content": "d"},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"},
                                                      {"type": "input_text", "text": "b"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
      {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
       "content": [{"type": "output_text", "text": "c", "annotations": [], "logprobs": []}]},
      {"role": "user", "content": "e"}], "instructions": "i"})"),
            Json::parse(R"([{"role": "system", "content": "i\n\nd"}, {"role": "user", "content": "a\nb"},
                            {"role": "assistant", "content": "c", "reasoning_content": "hm"},
                            {"role": "user", "content": "e"}])"));
}

TEST(ResponsesBody, CallsAndTheirResults) {
  const Json messages = read_messages_of(R"({"input": [
      {"role": "user", "content": "weather?"},
      {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{\"x\": 1}"},
      {"type": "function_call", "call_id": "call_2", "name": "g", "arguments": "{}", "status": "completed"},
      {"type": "function_call_output", "call_id": "call_1", "output": "sun"},
      {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "rain"}]}]})");
  ASSERT_EQ(messages.size(), 4u) << messages;
  ASSERT_EQ(messages[1]["tool_calls"].size(), 2u) << messages;
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(messages[1]["tool_calls"][1]["function"]["name"], "g");
  EXPECT_EQ(messages[2]["role"], "tool");
  EXPECT_EQ(messages[2]["content"], "sun");
  EXPECT_EQ(messages[3]["content"], "rain");
}

TEST(ResponsesBody, ToolsAndFormats) {
  const ApiRequest tools = read_or_fail(openai_responses(), R"({"input": "hi", "tools": [{"type": "function",
      "name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}, "strict": true}],
      "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false})");
  ASSERT_EQ(tools.chat.tools.size(), 1u);
  EXPECT_EQ(tools.chat.tools[0]["function"]["name"], "f");
  EXPECT_EQ(tools.tool_choice, openai::ToolChoice::kNamed);
  EXPECT_EQ(tools.tool_name, "f");
  EXPECT_FALSE(tools.parallel_tools);
  EXPECT_EQ(tools.user_data["tools"][0]["name"], "f");

  const ApiRequest schema = read_or_fail(openai_responses(), R"({"input": "hi", "text": {"format": {"type":
      "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}}})");
  EXPECT_EQ(schema.format.kind, AnswerFormat::Kind::kJsonSchema);
  EXPECT_EQ(schema.format.schema, Json::parse(R"({"type": "object"})"));
  const ApiRequest object =
      read_or_fail(openai_responses(), R"({"input": "hi", "text": {"format": {"type": "json_object"}}})");
  EXPECT_EQ(object.format.kind, AnswerFormat::Kind::kJsonObject);
  const ApiRequest logprobs = read_or_fail(
      openai_responses(), R"({"input": "hi", "include": ["message.output_text.logprobs"], "top_logprobs": 3})");
  EXPECT_EQ(logprobs.logprobs, 3u);
}

TEST(ResponsesBody, FieldsThatAreRefusedAreNamed) {
  const BadField cases[] = {
      {R"({"previous_response_id": "resp_1"})", "previous_response_id"},
      {R"({"conversation": "c"})", "conversation"},
      {R"({"background": true})", "background"},
      {R"({"truncation": "auto"})", "truncation"},
      {R"({"prompt": {"id": "p"}})", "prompt"},
      {R"({"no_such": null})", "no_such"},
      {R"({"messages": []})", "messages"},
      {R"({"input": null})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": 5})", "input"},
      {R"({"input": ["x"]})", "input[0]"},
      {R"({"input": [{"role": "king", "content": "x"}]})", "input[0].role"},
      {R"({"input": [{"role": "user", "content": null}]})", "input[0].content"},
      {R"({"input": [{"role": "user", "content": "x", "tone": 1}]})", "input[0].tone"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]})",
       "input[0].content[0].type"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]})", "input[0].content[0].type"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_text"}]}]})", "input[0].content[0].text"},
      {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input[0].type"},
      {R"({"input": [{"type": "computer_call"}]})", "input[0].type"},
      {R"({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]})", "input[0].call_id"},
      {R"({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]})",
       "input[0].arguments"},
      {R"({"input": [{"type": "function_call_output", "output": "x"}]})", "input[0].call_id"},
      {R"({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]})", "input[0].call_id"},
      {R"({"input": [{"role": "user", "content": "x"}, {"type": "function_call", "call_id": "c", "name": "a b",
          "arguments": "{}"}]})",
       "input[1].name"},
      {R"({"tools": [{"type": "function", "name": "a b"}]})", "tools[0].name"},
      {R"({"tools": [{"type": "function", "name": "f", "parameters": 5}]})", "tools[0].parameters"},
      {R"({"input": [{"type": "function_call_output", "call_id": "c"}]})", "input[0].output"},
      {R"({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}]})", "input[0].encrypted_content"},
      {R"({"max_output_tokens": 0})", "max_output_tokens"},
      {R"({"max_output_tokens": "5"})", "max_output_tokens"},
      {R"({"max_tokens": 5})", "max_tokens"},
      {R"({"temperature": -1})", "temperature"},
      {R"({"stream": "yes"})", "stream"},
      {R"({"tools": [{"type": "web_search"}]})", "tools[0].type"},
      {R"({"tools": [{"type": "function", "name": "f", "size": 1}]})", "tools[0].size"},
      {R"({"tool_choice": {"type": "mcp"}})", "tool_choice.type"},
      {R"({"tool_choice": {"type": "function"}})", "tool_choice.name"},
      {R"({"text": {"verbosity": "low"}})", "text.verbosity"},
      {R"({"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "more": 1}}})", "text.format.more"},
      {R"({"text": {"format": {"type": "json_schema", "name": "n", "schema": 5}}})", "text.format.schema"},
      {R"({"text": {"format": {"type": "json_schema", "name": "a b", "schema": {}}}})", "text.format.name"},
      {R"({"text": {"format": {"type": "text", "more": 1}}})", "text.format.more"},
      {R"({"text": {"form": 1}})", "text.form"},
      {R"({"reasoning": {"effort": "much"}})", "reasoning.effort"},
      {R"({"reasoning": {"mode": "pro"}})", "reasoning.mode"},
      {R"({"include": ["file_search_call.results"]})", "include[0]"},
      {R"({"top_logprobs": 21})", "top_logprobs"},
      {R"({"metadata": {"a": 1}})", "metadata"},
      {R"({"metadata": "x"})", "metadata"},
      {R"({"instructions": 5})", "instructions"},
  };
  for (const auto& [more, field] : cases) EXPECT_EQ(refused(openai_responses(), with(kPlainBody, more)), field) << more;
  EXPECT_EQ(refused(openai_responses(), Json::array()), "");
}

TEST(ResponsesAnswer, StreamOfText) {
  const ApiRequest request = read_or_fail(openai_responses(), R"({"input": "hi", "stream": true})");
  const auto events = events_of(written(openai_responses(), request, {text_part("Hel"), text_part("lo")}));
  const std::vector<std::string> names = {"response.created",           "response.in_progress",
                                          "response.output_item.added", "response.content_part.added",
                                          "response.output_text.delta", "response.output_text.delta",
                                          "response.output_text.done",  "response.content_part.done",
                                          "response.output_item.done",  "response.completed"};
  ASSERT_EQ(events.size(), names.size());
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].first, names[i]);
    EXPECT_EQ(events[i].second["type"], names[i]);
    EXPECT_EQ(events[i].second["sequence_number"], i);
  }
  EXPECT_EQ(events[0].second["response"]["status"], "in_progress");
  EXPECT_EQ(events[0].second["response"]["id"], "resp_abcdefghijklmnopqrstuvwx");
  EXPECT_EQ(events[0].second["response"]["output"], Json::array());
  EXPECT_EQ(events[2].second["item"], Json::parse(R"({"id": "msg_abcdefghijklmnopqrstuvwx00", "type": "message",
      "status": "in_progress", "role": "assistant", "content": []})"));
  EXPECT_EQ(events[3].second["part"],
            Json::parse(R"({"type": "output_text", "annotations": [], "logprobs": [], "text": ""})"));
  EXPECT_EQ(events[4].second, Json::parse(R"({"type": "response.output_text.delta",
      "item_id": "msg_abcdefghijklmnopqrstuvwx00", "output_index": 0, "delta": "Hel", "logprobs": [],
      "content_index": 0, "sequence_number": 4})"));
  EXPECT_EQ(events[6].second["text"], "Hello");
  EXPECT_EQ(events[7].second["part"]["text"], "Hello");
  EXPECT_EQ(events[8].second["item"]["status"], "completed");
  const Json& last = events[9].second["response"];
  EXPECT_EQ(last["status"], "completed");
  EXPECT_EQ(last["output"][0]["content"][0]["text"], "Hello");
  EXPECT_EQ(last["usage"], Json::parse(R"({"input_tokens": 11,
      "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0}, "output_tokens": 7,
      "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 18})"));
}

TEST(ResponsesAnswer, StreamOfReasoningTextAndTwoCalls) {
  const ApiRequest request = read_or_fail(openai_responses(), R"({"input": "hi", "stream": true})");
  const auto events = events_of(
      written(openai_responses(), request,
              {thought("h"), thought("m"), text_part("I look."), call_part(0, "f"), arguments_part(0, "{\"x\":"),
               arguments_part(0, "1}"), call_part(1, "g"), arguments_part(1, "{}")},
              {.finish = Finish::kToolCalls}));
  std::vector<std::string> names;
  for (const auto& event : events) names.push_back(event.first.substr(std::string("response.").size()));
  EXPECT_EQ(names, (std::vector<std::string>{"created",
                                             "in_progress",
                                             "output_item.added",
                                             "content_part.added",
                                             "reasoning_text.delta",
                                             "reasoning_text.delta",
                                             "reasoning_text.done",
                                             "content_part.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "content_part.added",
                                             "output_text.delta",
                                             "output_text.done",
                                             "content_part.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.done",
                                             "output_item.done",
                                             "completed"}));
  const Json& output = events.back().second["response"]["output"];
  ASSERT_EQ(output.size(), 4u);
  EXPECT_EQ(output[0], Json::parse(R"({"id": "rs_abcdefghijklmnopqrstuvwx00", "type": "reasoning",
      "status": "completed", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]})"));
  EXPECT_EQ(output[2], Json::parse(R"({"id": "fc_abcdefghijklmnopqrstuvwx02", "type": "function_call",
      "status": "completed", "name": "f", "call_id": "call_abcdefghijklmnopqrstuvwx02", "arguments": "{\"x\":1}"})"));
  EXPECT_EQ(output[3]["arguments"], "{}");
  EXPECT_EQ(events[15].second["item"]["arguments"], "");
  EXPECT_EQ(events[15].second["output_index"], 2);
  EXPECT_EQ(events[18].second["arguments"], "{\"x\":1}");
}

TEST(ResponsesAnswer, ACallThatBreaksOffIsIncomplete) {
  const ApiRequest request = read_or_fail(openai_responses(), R"({"input": "hi", "stream": true})");
  const auto events = events_of(written(
      openai_responses(), request,
      {call_part(0, "f"), arguments_part(0, "{\"x\":"), text_part("01}}"), call_part(1, "g"), arguments_part(1, "{}")},
      {.finish = Finish::kToolCalls}));
  const Json& output = events.back().second["response"]["output"];
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[0]["status"], "incomplete");
  EXPECT_EQ(output[1]["status"], "completed");
  EXPECT_EQ(output[2]["status"], "completed");
  for (const auto& [name, event] : events) {
    if (name == "response.output_item.done" && event["output_index"] == 0) {
      EXPECT_EQ(event["item"]["status"], "incomplete");
    }
  }
}

TEST(ResponsesAnswer, WholeAndCutOff) {
  const ApiRequest request = read_or_fail(openai_responses(), R"({"input": "hi", "metadata": {"a": "b"},
      "instructions": "i", "max_output_tokens": 7})");
  const Json whole =
      Json::parse(written(openai_responses(), request, {text_part("Hello")}, {.finish = Finish::kLength}));
  EXPECT_EQ(whole["object"], "response");
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["output"][0]["status"], "incomplete");
  EXPECT_EQ(whole["metadata"]["a"], "b");
  EXPECT_EQ(whole["instructions"], "i");
  EXPECT_EQ(whole["max_output_tokens"], 7);
  EXPECT_EQ(whole["created_at"], 1700000000);
  // An answer of no text is a message all the same.
  const Json empty = Json::parse(written(openai_responses(), request, {}));
  EXPECT_EQ(empty["output"][0]["content"][0]["text"], "");
  EXPECT_EQ(empty["status"], "completed");
}

TEST(ResponsesAnswer, Logprobs) {
  const ApiRequest request = read_or_fail(openai_responses(), R"({"input": "hi", "top_logprobs": 1, "stream": true})");
  const auto writer = openai_responses().writer(request);
  writer->begin(test_head());
  const ShownLogprob top{.token = "b", .bytes = {98}, .id = 2, .logprob = -2};
  const auto events = events_of(
      writer->part(0, text_part("a"), {{.token = "a", .bytes = {97}, .id = 1, .logprob = -0.5, .top = {top}}}));
  EXPECT_EQ(events.back().second["logprobs"], Json::parse(R"([{"token": "a", "logprob": -0.5, "bytes": [97],
      "top_logprobs": [{"token": "b", "logprob": -2.0, "bytes": [98]}]}])"));
  // Of half a character, and of a call: no message of its own.
  EXPECT_EQ(writer->part(0, call_part(0, "f"), {}).find("msg_abcdefghijklmnopqrstuvwx01"), std::string::npos);
  EXPECT_EQ(writer->part(0, text_part(""), {{.token = "c", .bytes = {99}, .id = 3, .logprob = -1}}), "");
  const auto next =
      events_of(writer->part(0, text_part("cd"), {{.token = "d", .bytes = {100}, .id = 4, .logprob = -1}}));
  EXPECT_EQ(next.back().second["logprobs"].size(), 2u);
  std::string rest = writer->end_choice(0, {});
  rest += writer->end(test_tail());
  const auto last = events_of(rest);
  EXPECT_EQ(last.back().second["response"]["output"][0]["content"][0]["logprobs"].size(), 1u);
  EXPECT_EQ(last.back().second["response"]["output"][2]["content"][0]["logprobs"].size(), 2u);
}

TEST(ResponsesAnswer, Errors) {
  const ApiRequest request = read_or_fail(openai_responses(), R"({"input": "hi", "stream": true})");
  const auto writer = openai_responses().writer(request);
  std::string stream = writer->begin(test_head());
  stream += writer->part(0, text_part("a"), {});
  stream += writer->error({.status = 500, .message = "it broke", .type = "server_error", .code = "internal"});
  const auto events = events_of(stream);
  EXPECT_EQ(events.back().first, "response.failed");
  EXPECT_EQ(events.back().second["response"]["error"],
            Json::parse(R"({"code": "server_error", "message": "it broke"})"));
  EXPECT_EQ(events[events.size() - 2].second["type"], "error");
  EXPECT_EQ(events[events.size() - 2].second["message"], "it broke");
  // What only fails later has the client's names.
  const Json body = openai_responses().error_body(
      {.message = "'messages' has 9 tokens; 'response_format.json_schema.schema.x' is odd", .param = "messages"});
  EXPECT_EQ(body["error"]["param"], "input");
  EXPECT_EQ(body["error"]["message"], "'input' has 9 tokens; 'text.format.schema.x' is odd");
}

}  // namespace
}  // namespace baton::serve

// /v1/messages, by what its documentation says of bodies and events.
#include <gtest/gtest.h>

#include "baton/serve/formats/anthropic.h"
#include "baton/serve/formats_driver.h"

namespace baton::serve {
namespace {

using openai::Json;

constexpr std::string_view kPlain =
    R"({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]})";

TEST(MessagesBody, PlainAndSampling) {
  const ApiRequest request = read_or_fail(anthropic_messages(), with(kPlain, R"({"system": [{"type": "text",
      "text": "Be brief.", "cache_control": {"type": "ephemeral"}}], "temperature": 0.5, "top_p": 0.25, "top_k": 3,
      "stop_sequences": ["END"], "stream": true, "metadata": {"user_id": "u"}, "service_tier": "auto"})")
                                                                    .dump());
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.tokens_max, 9u);
  EXPECT_EQ(request.chat.messages, Json::parse(R"([{"role": "system", "content": "Be brief."},
                                                   {"role": "user", "content": "hi"}])"));
  EXPECT_EQ(request.temperature, 0.5f);
  EXPECT_EQ(request.top_p, 0.25f);
  EXPECT_EQ(request.top_k, 3);
  EXPECT_EQ(request.stops, std::vector<std::string>{"END"});
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.thinking, false);  // not asked for
  EXPECT_EQ(read_or_fail(anthropic_messages(),
                         with(kPlain, R"({"thinking": {"type": "enabled", "budget_tokens": 1024}})").dump())
                .thinking,
            true);
  EXPECT_EQ(read_or_fail(anthropic_messages(), with(kPlain, R"({"thinking": {"type": "disabled"}})").dump()).thinking,
            false);
}

TEST(MessagesBody, BlocksBecomeMessages) {
  const ApiRequest request = read_or_fail(anthropic_messages(), R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
          {"type": "text", "text": "I look."},
          {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}},
          {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sun"},
          {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true,
           "content": [{"type": "text", "text": "rain"}]},
          {"type": "text", "text": "and?"}]}]})");
  const Json& messages = request.chat.messages;
  ASSERT_EQ(messages.size(), 5u) << messages;
  EXPECT_EQ(messages[0]["content"], "a\nb");
  EXPECT_EQ(messages[1]["content"], "I look.");
  EXPECT_EQ(messages[1]["reasoning_content"], "hm");
  ASSERT_EQ(messages[1]["tool_calls"].size(), 2u);
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(messages[2]["role"], "tool");
  EXPECT_EQ(messages[2]["content"], "sun");
  EXPECT_EQ(messages[3]["content"], "Error: rain");
  EXPECT_EQ(messages[4], Json::parse(R"({"role": "user", "content": "and?"})"));
}

TEST(MessagesBody, Tools) {
  constexpr std::string_view kTools = R"({"tools": [{"name": "f", "description": "d",
      "input_schema": {"type": "object", "properties": {}}, "cache_control": null}]})";
  const Json body = with(kPlain, kTools);
  const auto with_choice = [&](const char* choice) {
    Json chosen = body;
    chosen["tool_choice"] = Json::parse(choice);
    return read_or_fail(anthropic_messages(), chosen.dump());
  };
  const ApiRequest automatic = with_choice(R"({"type": "auto", "disable_parallel_tool_use": true})");
  EXPECT_EQ(automatic.chat.tools[0]["function"]["name"], "f");
  EXPECT_EQ(automatic.chat.tools[0]["function"]["parameters"]["type"], "object");
  EXPECT_EQ(automatic.tool_choice, openai::ToolChoice::kAuto);
  EXPECT_FALSE(automatic.parallel_tools);
  EXPECT_EQ(with_choice(R"({"type": "any"})").tool_choice, openai::ToolChoice::kRequired);
  EXPECT_EQ(with_choice(R"({"type": "none"})").tool_choice, openai::ToolChoice::kNone);
  const ApiRequest named = with_choice(R"({"type": "tool", "name": "f"})");
  EXPECT_EQ(named.tool_choice, openai::ToolChoice::kNamed);
  EXPECT_EQ(named.tool_name, "f");
}

TEST(MessagesBody, Format) {
  const ApiRequest request = read_or_fail(
      anthropic_messages(),
      with(kPlain, R"({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}})").dump());
  EXPECT_EQ(request.format.kind, AnswerFormat::Kind::kJsonSchema);
  EXPECT_EQ(request.format.schema, Json::parse(R"({"type": "object"})"));
}

TEST(MessagesBody, FieldsThatAreRefusedAreNamed) {
  const BadField cases[] = {
      {R"({"max_tokens": null})", "max_tokens"},
      {R"({"max_tokens": 0})", "max_tokens"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": "hi"})", "messages"},
      {R"({"messages": [{"role": "king", "content": "x"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": []}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": "x", "name": "y"}]})", "messages[0].name"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": [{"type": "document"}]}]})", "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "messages[0].content[0].text"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "citations": [1]}]}]})",
       "messages[0].content[0].citations"},
      {R"({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "i", "name": "n", "input": {}}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]})",
       "messages[0].content[0].tool_use_id"},
      {R"({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
          "content": [{"type": "image"}]}]}]})",
       "messages[0].content[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]})", "messages[1]"},
      {R"({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "n", "input": 5}]},
          {"role": "user", "content": "x"}]})",
       "messages[0].content[0].input"},
      {R"({"messages": [{"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}]})",
       "messages[0].content[0].type"},
      {R"({"system": 5})", "system"},
      {R"({"system": [{"type": "image"}]})", "system[0].type"},
      {R"({"temperature": 7})", "temperature"},
      {R"({"temperature": 1.5})", "temperature"},
      {R"({"top_k": -1})", "top_k"},
      {R"({"stop_sequences": "x"})", "stop_sequences"},
      {R"({"stop_sequences": [""]})", "stop_sequences"},
      {R"({"tools": [{"type": "bash_20250124", "name": "bash"}]})", "tools[0].type"},
      {R"({"tools": [{"name": "f"}]})", "tools[0].input_schema"},
      {R"({"tools": [{"name": "a b", "input_schema": {}}]})", "tools[0].name"},
      {R"({"tools": [{"name": "f", "input_schema": {"properties": 5}}]})", "tools[0].input_schema.properties"},
      {R"({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]})",
       "messages[0].content[0].tool_use_id"},
      {R"({"tools": [{"name": "f", "input_schema": {}, "defer_loading": true}]})", "tools[0].defer_loading"},
      {R"({"tool_choice": {"type": "tool"}})", "tool_choice.name"},
      {R"({"tool_choice": {"type": "must"}})", "tool_choice.type"},
      {R"({"thinking": {"type": "perhaps"}})", "thinking.type"},
      {R"({"thinking": {"type": "enabled", "budget_tokens": 0}})", "thinking.budget_tokens"},
      {R"({"output_config": {"format": {"type": "json_schema"}}})", "output_config.format.schema"},
      {R"({"container": "c"})", "container"},
      {R"({"mcp_servers": [{"url": "x"}]})", "mcp_servers"},
      {R"({"stream": 1})", "stream"},
      {R"({"n": 2})", "n"},
  };
  for (const auto& [more, field] : cases) EXPECT_EQ(refused(anthropic_messages(), with(kPlain, more)), field) << more;
}

TEST(MessagesBody, TokensAreCountedWithoutALimit) {
  Json body = Json::parse(kPlain);
  body.erase("max_tokens");
  EXPECT_FALSE(anthropic_messages().read(body));
  const auto counted = formats::read_count_tokens(body);
  ASSERT_TRUE(counted) << counted.error().message;
  EXPECT_EQ(counted->chat.messages.size(), 1u);
  EXPECT_EQ(formats::count_tokens_body(5), Json::parse(R"({"input_tokens": 5})"));
}

TEST(MessagesAnswer, StreamOfText) {
  const ApiRequest request = read_or_fail(anthropic_messages(), with(kPlain, R"({"stream": true})").dump());
  const auto events = events_of(written(anthropic_messages(), request, {text_part("Hel"), text_part("lo")}));
  const Json expected = Json::parse(R"([
      {"type": "message_start", "message": {"id": "msg_abcdefghijklmnopqrstuvwx", "type": "message",
       "role": "assistant", "model": "m", "content": [], "stop_reason": null, "stop_sequence": null,
       "usage": {"input_tokens": 11, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                 "output_tokens": 0}}},
      {"type": "ping"},
      {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
      {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
      {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
      {"type": "content_block_stop", "index": 0},
      {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
       "usage": {"input_tokens": 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
                 "output_tokens": 7}},
      {"type": "message_stop"}])");
  ASSERT_EQ(events.size(), expected.size());
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].first, expected[i]["type"].get<std::string>());
    EXPECT_EQ(events[i].second, expected[i]);
  }
}

TEST(MessagesAnswer, StreamOfThinkingAndCalls) {
  const ApiRequest request = read_or_fail(anthropic_messages(), with(kPlain, R"({"stream": true})").dump());
  const auto events = events_of(written(anthropic_messages(), request,
                                        {thought("hm"), call_part(0, "f"), arguments_part(0, "{\"x\":"),
                                         arguments_part(0, "1}"), call_part(1, "g"), arguments_part(1, "{}")},
                                        {.finish = Finish::kToolCalls}));
  const Json expected = Json::parse(R"([
      {"type": "content_block_start", "index": 0,
       "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
      {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
      {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": ""}},
      {"type": "content_block_stop", "index": 0},
      {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use",
       "id": "toolu_abcdefghijklmnopqrstuvwx01", "name": "f", "input": {}}},
      {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"x\":"}},
      {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
      {"type": "content_block_stop", "index": 1},
      {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use",
       "id": "toolu_abcdefghijklmnopqrstuvwx02", "name": "g", "input": {}}},
      {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
      {"type": "content_block_stop", "index": 2}])");
  ASSERT_EQ(events.size(), expected.size() + 4);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(events[i + 2].second, expected[i]);
  EXPECT_EQ(events[events.size() - 2].second["delta"]["stop_reason"], "tool_use");
}

TEST(MessagesAnswer, Whole) {
  const ApiRequest request = read_or_fail(anthropic_messages(), with(kPlain, R"({"stop_sequences": ["END"]})").dump());
  const Json whole = Json::parse(written(
      anthropic_messages(), request, {thought("hm"), text_part("a"), call_part(0, "f"), arguments_part(0, "{\"x\":1}")},
      {.finish = Finish::kToolCalls}));
  EXPECT_EQ(whole["content"], Json::parse(R"([{"type": "thinking", "thinking": "hm", "signature": ""},
      {"type": "text", "text": "a"},
      {"type": "tool_use", "id": "toolu_abcdefghijklmnopqrstuvwx02", "name": "f", "input": {"x": 1}}])"));
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  EXPECT_EQ(whole["type"], "message");
  const Json stopped = Json::parse(
      written(anthropic_messages(), request, {text_part("a")}, {.finish = Finish::kStopString, .stop_string = "END"}));
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "END");
  // A call that was cut off is no call with other arguments.
  const Json cut = Json::parse(written(anthropic_messages(), request,
                                       {text_part("a"), call_part(0, "f"), arguments_part(0, "{\"x\":")},
                                       {.finish = Finish::kLength}));
  EXPECT_EQ(cut["content"].size(), 1u);
  EXPECT_EQ(cut["stop_reason"], "max_tokens");
  const Json named = Json::parse(
      written(anthropic_messages(), request, {text_part("a"), call_part(0, "f")}, {.finish = Finish::kStop}));
  EXPECT_EQ(named["content"].size(), 1u);
  EXPECT_EQ(named["stop_reason"], "end_turn");
}

TEST(MessagesAnswer, Errors) {
  const std::pair<int, const char*> types[] = {{400, "invalid_request_error"},
                                               {401, "authentication_error"},
                                               {403, "permission_error"},
                                               {404, "not_found_error"},
                                               {413, "request_too_large"},
                                               {429, "rate_limit_error"},
                                               {500, "api_error"},
                                               {503, "overloaded_error"}};
  for (const auto& [status, type] : types) {
    EXPECT_EQ(anthropic_messages().error_body({.status = status, .message = "m"}),
              Json({{"type", "error"}, {"error", {{"type", type}, {"message", "m"}}}}));
  }
  const ApiRequest request = read_or_fail(anthropic_messages(), with(kPlain, R"({"stream": true})").dump());
  const auto events = events_of(anthropic_messages().writer(request)->error({.status = 500, .message = "it broke"}));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].first, "error");
  EXPECT_EQ(events[0].second["error"]["message"], "it broke");
  AnswerHead head = test_head();
  head.request_id = "req-1";
  const auto writer = anthropic_messages().writer(request);
  writer->begin(head);
  EXPECT_EQ(events_of(writer->error({.status = 500, .message = "m"})).back().second["request_id"], "req-1");
  EXPECT_EQ(events_of(anthropic_messages().writer(request)->keep_alive())[0].first, "ping");
}

}  // namespace
}  // namespace baton::serve

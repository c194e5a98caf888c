// /api/chat and /api/generate, and what is told of models, by Ollama's documentation.
#include <gtest/gtest.h>

#include "baton/serve/formats/ollama.h"
#include "baton/serve/formats/ollama_models.h"
#include "baton/serve/formats_driver.h"

namespace baton::serve {
namespace {

using openai::Json;

constexpr std::string_view kChat = R"({"model": "m", "messages": [{"role": "user", "content": "hi"}]})";
constexpr std::string_view kPrompt = R"({"model": "m", "prompt": "hi"})";

TEST(OllamaBody, OptionsAndWhatIsCommon) {
  const ApiRequest request = read_or_fail(ollama_chat(), with(kChat, R"({"stream": false, "keep_alive": "5m",
      "think": true, "options": {"num_predict": 9, "temperature": 0.5, "top_k": 3, "top_p": 0.25, "min_p": 0.125,
      "seed": 7, "stop": ["END"], "repeat_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": 0.25,
      "num_ctx": 4096, "num_gpu": 1, "num_thread": 8, "mirostat": 0, "use_mmap": true}})")
                                                             .dump());
  EXPECT_FALSE(request.stream);
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.thinking, true);
  EXPECT_EQ(request.tokens_max, 9u);
  EXPECT_EQ(request.temperature, 0.5f);
  EXPECT_EQ(request.top_k, 3);
  EXPECT_EQ(request.top_p, 0.25f);
  EXPECT_EQ(request.min_p, 0.125f);
  EXPECT_EQ(request.seed, 7);
  EXPECT_EQ(request.stops, std::vector<std::string>{"END"});
  EXPECT_EQ(request.repeat_penalty, 1.5f);
  EXPECT_EQ(request.presence_penalty, 0.5f);
  EXPECT_EQ(request.frequency_penalty, 0.25f);
  EXPECT_EQ(request.context_tokens, 4096u);
  const ApiRequest plain = read_or_fail(ollama_chat(), with(kChat, R"({"options": {"num_predict": -1}})").dump());
  EXPECT_TRUE(plain.stream);
  EXPECT_FALSE(plain.tokens_max);
  EXPECT_FALSE(plain.load_only);
}

TEST(OllamaBody, MessagesWithCalls) {
  const Json messages = read_or_fail(ollama_chat(), R"({"model": "m", "messages": [
      {"role": "system", "content": "s"}, {"role": "user", "content": "weather?"},
      {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
          {"function": {"name": "f", "arguments": {"x": 1}}}, {"function": {"name": "g", "arguments": {}}}]},
      {"role": "tool", "content": "rain", "tool_name": "g"},
      {"role": "tool", "content": "sun", "tool_name": "f"}]})")
                            .chat.messages;
  ASSERT_EQ(messages.size(), 5u) << messages;
  EXPECT_EQ(messages[2]["reasoning_content"], "hm");
  EXPECT_EQ(messages[2]["tool_calls"].size(), 2u);
  EXPECT_EQ(messages[3]["role"], "tool");
  EXPECT_EQ(messages[3]["content"], "rain");
  EXPECT_EQ(messages[3]["tool_call_id"], messages[2]["tool_calls"][1]["id"]);
  EXPECT_EQ(messages[4]["tool_call_id"], messages[2]["tool_calls"][0]["id"]);
}

TEST(OllamaBody, PromptsRawAndNot) {
  const ApiRequest chat = read_or_fail(ollama_generate(), with(kPrompt, R"({"system": "s"})").dump());
  EXPECT_EQ(chat.endpoint, openai::Endpoint::kChat);
  EXPECT_EQ(chat.chat.messages, Json::parse(R"([{"role": "system", "content": "s"},
                                                {"role": "user", "content": "hi"}])"));
  const ApiRequest raw =
      read_or_fail(ollama_generate(), with(kPrompt, R"({"raw": true, "options": {"num_predict": 3}})").dump());
  EXPECT_EQ(raw.endpoint, openai::Endpoint::kCompletions);
  EXPECT_EQ(raw.prompts.at(0).text, "hi");
  EXPECT_EQ(raw.tokens_max, 3u);
}

TEST(OllamaBody, FormatsAndTools) {
  EXPECT_EQ(read_or_fail(ollama_generate(), with(kPrompt, R"({"format": "json"})").dump()).format.kind,
            AnswerFormat::Kind::kJsonObject);
  const ApiRequest schema = read_or_fail(ollama_chat(), with(kChat, R"({"format": {"type": "object"}})").dump());
  EXPECT_EQ(schema.format.kind, AnswerFormat::Kind::kJsonSchema);
  EXPECT_EQ(schema.format.schema, Json::parse(R"({"type": "object"})"));
  const ApiRequest tools = read_or_fail(ollama_chat(), with(kChat, R"({"tools": [{"type": "function", "function":
      {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}]})")
                                                           .dump());
  EXPECT_EQ(tools.chat.tools[0]["function"]["name"], "f");
}

TEST(OllamaBody, NoPromptLoadsTheModel) {
  for (const char* body : {R"({"model": "m"})", R"({"model": "m", "messages": []})"}) {
    const ApiRequest request = read_or_fail(ollama_chat(), body);
    EXPECT_TRUE(request.load_only);
    const auto lines = lines_of(written(ollama_chat(), request, {}));
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0]["done_reason"], "load");
    EXPECT_EQ(lines[0]["done"], true);
    EXPECT_EQ(lines[0]["message"], Json::parse(R"({"role": "assistant", "content": ""})"));
    EXPECT_FALSE(lines[0].contains("eval_count"));
  }
  const ApiRequest unload = read_or_fail(ollama_generate(), R"({"model": "m", "prompt": "", "keep_alive": 0})");
  EXPECT_TRUE(unload.load_only);
  EXPECT_EQ(unload.keep_alive, 0);
  EXPECT_EQ(lines_of(written(ollama_generate(), unload, {})).at(0)["done_reason"], "unload");
}

TEST(OllamaBody, KeepAlive) {
  const auto seconds = [](const char* value) {
    const Json body = {{"keep_alive", Json::parse(value)}};
    formats::Body fields(body);
    const auto read = formats::take_keep_alive(fields);
    return fields.failed() ? -99 : read.value_or(-98);
  };
  EXPECT_EQ(seconds("5"), 5);
  EXPECT_EQ(seconds("-1"), -1);
  EXPECT_EQ(seconds("\"5m\""), 300);
  EXPECT_EQ(seconds("\"1h30m\""), 5400);
  EXPECT_EQ(seconds("\"-1s\""), -1);
  EXPECT_EQ(seconds("\"1.5s\""), 1.5);
  EXPECT_EQ(seconds("\"250ms\""), 0.25);
  EXPECT_EQ(seconds("\"0\""), 0);
  for (const char* bad : {"\"\"", "\"5\"", "\"m\"", "\"5 m\"", "\"5d\"", "\"1..5s\"", "\".s\"", "true", "[]"})
    EXPECT_EQ(seconds(bad), -99) << bad;
}

TEST(OllamaBody, FieldsThatAreRefusedAreNamed) {
  const BadField both[] = {
      {R"({"model": ""})", "model"},
      {R"({"model": 5})", "model"},
      {R"({"stream": "no"})", "stream"},
      {R"({"think": "much"})", "think"},
      {R"({"format": "xml"})", "format"},
      {R"({"keep_alive": "soon"})", "keep_alive"},
      {R"({"top_logprobs": 3})", "top_logprobs"},
      {R"({"options": 5})", "options"},
      {R"({"options": {"heat": 1}})", "options.heat"},
      {R"({"options": {"num_predict": 0}})", "options.num_predict"},
      {R"({"options": {"num_predict": -3}})", "options.num_predict"},
      {R"({"options": {"num_ctx": 0}})", "options.num_ctx"},
      {R"({"options": {"temperature": "hot"}})", "options.temperature"},
      {R"({"options": {"top_p": 2}})", "options.top_p"},
      {R"({"options": {"stop": [5]}})", "options.stop"},
      {R"({"options": {"repeat_penalty": -1}})", "options.repeat_penalty"},
      {R"({"options": {"mirostat": 2}})", "options.mirostat"},
      {R"({"options": {"typical_p": 0.5}})", "options.typical_p"},
      {R"({"options": {"vocab_only": true}})", "options.vocab_only"},
      {R"({"no_such": 1})", "no_such"},
  };
  for (const auto& [more, field] : both) {
    EXPECT_EQ(refused(ollama_chat(), with(kChat, more)), field) << more;
    EXPECT_EQ(refused(ollama_generate(), with(kPrompt, more)), field) << more;
  }
  const BadField chat[] = {
      {R"({"messages": "hi"})", "messages"},
      {R"({"messages": [5]})", "messages[0]"},
      {R"({"messages": [{"role": "king", "content": "x"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user", "content": [1]}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]})", "messages[0].images"},
      {R"({"messages": [{"role": "tool", "content": "x"}]})", "messages[0]"},
      {R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": {}}}]}]})",
       "messages[0].tool_calls[0].function.name"},
      {R"({"messages": [{"role": "assistant", "content": "",
          "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]})",
       "messages[0].tool_calls[0].function.arguments"},
      {R"({"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}]})", "messages[0].tool_call_id"},
      {R"({"tools": [{"type": "function", "function": {"name": "a b"}}]})", "tools[0].function.name"},
      {R"({"prompt": "hi"})", "prompt"},
  };
  for (const auto& [more, field] : chat) EXPECT_EQ(refused(ollama_chat(), with(kChat, more)), field) << more;
  const BadField prompt[] = {
      {R"({"images": ["aGk="]})", "images"}, {R"({"template": "{{ .Prompt }}"})", "template"},
      {R"({"suffix": "}"})", "suffix"},      {R"({"context": [1, 2]})", "context"},
      {R"({"width": 64})", "width"},         {R"({"raw": true, "system": "s"})", "system"},
      {R"({"prompt": ["hi"]})", "prompt"},   {R"({"messages": []})", "messages"},
  };
  for (const auto& [more, field] : prompt) EXPECT_EQ(refused(ollama_generate(), with(kPrompt, more)), field) << more;
}

TEST(OllamaAnswer, StreamOfAChat) {
  const ApiRequest request = read_or_fail(ollama_chat(), kChat);
  const auto lines = lines_of(written(ollama_chat(), request, {thought("hm"), text_part("Hel"), text_part("lo")}));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], Json::parse(R"({"model": "m", "created_at": "2023-11-14T22:13:20Z",
      "message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": false})"));
  EXPECT_EQ(lines[2]["message"], Json::parse(R"({"role": "assistant", "content": "lo"})"));
  EXPECT_EQ(lines[3], Json::parse(R"({"model": "m", "created_at": "2023-11-14T22:13:20Z",
      "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop",
      "total_duration": 10000000, "load_duration": 2000000, "prompt_eval_count": 11,
      "prompt_eval_duration": 3000000, "eval_count": 7, "eval_duration": 4500000})"));
}

TEST(OllamaAnswer, CallsAreWholeOrNone) {
  const ApiRequest request = read_or_fail(ollama_chat(), kChat);
  const std::vector<AnswerPart> parts = {call_part(0, "f"), arguments_part(0, "{\"x\":"), arguments_part(0, "1}"),
                                         call_part(1, "g"), arguments_part(1, "{\"y\":")};
  const auto lines = lines_of(written(ollama_chat(), request, parts, {.finish = Finish::kLength}));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["message"], Json::parse(R"({"role": "assistant", "content": "", "tool_calls": [
      {"function": {"index": 0, "name": "f", "arguments": {"x": 1}}}]})"));
  EXPECT_EQ(lines[1]["done_reason"], "length");
  ApiRequest whole = request;
  whole.stream = false;
  const Json answer = Json::parse(written(ollama_chat(), whole, parts, {.finish = Finish::kToolCalls}));
  EXPECT_EQ(answer["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(answer["done_reason"], "stop");
  // One of which there is the name alone.
  const auto named = lines_of(written(ollama_chat(), request, {call_part(0, "f"), text_part("x")}));
  for (const Json& line : named) EXPECT_FALSE(line["message"].contains("tool_calls")) << line;
}

TEST(OllamaAnswer, GenerateWholeAndErrors) {
  const ApiRequest request = read_or_fail(ollama_generate(), with(kPrompt, R"({"stream": false})").dump());
  const std::string text = written(ollama_generate(), request, {thought("hm"), text_part("Hel"), text_part("lo")});
  const Json answer = Json::parse(text);
  EXPECT_EQ(answer["response"], "Hello");
  EXPECT_EQ(answer["thinking"], "hm");
  EXPECT_EQ(answer["done"], true);
  EXPECT_EQ(ollama_generate().writer(request)->content_type(), "application/json");
  const ApiRequest stream = read_or_fail(ollama_generate(), kPrompt);
  EXPECT_EQ(ollama_generate().writer(stream)->content_type(), "application/x-ndjson");
  EXPECT_EQ(lines_of(written(ollama_generate(), stream, {text_part("a")}))[0]["response"], "a");
  EXPECT_EQ(ollama_generate().writer(stream)->error({.message = "it broke"}), "{\"error\":\"it broke\"}\n");
  EXPECT_EQ(ollama_generate().error_body({.message = "'messages' has 9 tokens", .param = "messages"}),
            Json::parse(R"({"error": "'prompt' has 9 tokens"})"));
  EXPECT_EQ(ollama_generate().writer(stream)->keep_alive(), "");
}

formats::OllamaModel model() {
  return {.name = "tiny",
          .digest = "00ff",
          .bytes = 5,
          .changed = 1700000000,
          .family = "qwen3",
          .parameter_size = "28M",
          .quantization = "Q8_0",
          .context_tokens = 512,
          .embedding_length = 64,
          .chat_template = "T",
          .license = {},
          .parameters = {},
          .capabilities = {"completion"},
          .loaded = true,
          .loaded_bytes = 6};
}

TEST(OllamaModels, ListsAndShows) {
  EXPECT_EQ(formats::tags_body({model()}), Json::parse(R"({"models": [{"name": "tiny", "model": "tiny",
      "modified_at": "2023-11-14T22:13:20Z", "size": 5, "digest": "00ff", "details": {"parent_model": "",
      "format": "gguf", "family": "qwen3", "families": ["qwen3"], "parameter_size": "28M",
      "quantization_level": "Q8_0"}}]})"));
  auto idle = model();
  idle.loaded = false;
  const Json loaded = formats::ps_body({model(), idle});
  ASSERT_EQ(loaded["models"].size(), 1u);
  EXPECT_EQ(loaded["models"][0]["size"], 6);
  EXPECT_EQ(loaded["models"][0]["expires_at"], "3000-01-01T00:00:00Z");
  EXPECT_EQ(loaded["models"][0]["size_vram"], 0);
  EXPECT_FALSE(loaded["models"][0].contains("emulated_units"));
  auto on_card = model();
  on_card.device_bytes = 4;
  on_card.emulated_units = {"cuda"};
  EXPECT_EQ(formats::ps_body({on_card})["models"][0]["size_vram"], 4);
  for (const Json& of : {formats::ps_body({on_card})["models"][0], formats::tags_body({on_card})["models"][0],
                         formats::show_body(on_card)})
    EXPECT_EQ(of["emulated_units"], Json::parse(R"(["cuda"])")) << of;
  const Json shown = formats::show_body(model());
  EXPECT_EQ(shown["template"], "T");
  EXPECT_EQ(shown["model_info"]["qwen3.context_length"], 512);
  EXPECT_EQ(shown["capabilities"], Json::parse(R"(["completion"])"));
  EXPECT_EQ(formats::version_body("1.2"), Json::parse(R"({"version": "1.2"})"));
}

TEST(OllamaModels, NamesThatLeadAwayAreRefused) {
  for (const char* name : {"tiny", "tiny:latest", "library/tiny:q8", "hf.co/a/b:Q4_K_M"}) {
    const auto read = formats::read_pull({{"model", name}});
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->model, name);
  }
  const std::string nul("a\0b", 3);
  for (const std::string& name : {std::string("../../etc/passwd"), std::string("/etc/passwd"), std::string("a/../b"),
                                  std::string("a\\b"), std::string("http://a/b"), std::string("~/m"), std::string(""),
                                  std::string("a b"), std::string("a\nb"), nul, std::string(513, 'a')}) {
    const auto read = formats::read_pull({{"model", name}});
    ASSERT_FALSE(read) << name;
    EXPECT_EQ(read.error().param, "model");
    EXPECT_FALSE(formats::read_show({{"name", name}}));
  }
  EXPECT_TRUE(formats::same_model("tiny", "tiny:latest"));
  EXPECT_FALSE(formats::same_model("tiny:q8", "tiny"));
}

TEST(OllamaModels, PullFetchesNothing) {
  const auto request = formats::read_pull({{"name", "tiny"}, {"insecure", true}});
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->stream);
  const auto lines = lines_of(formats::pull_answer(*request));
  EXPECT_EQ(lines.back(), Json::parse(R"({"status": "success"})"));
  const auto error = formats::pull_refusal(*request);
  EXPECT_EQ(error.status, 404);
  EXPECT_NE(error.message.find("tiny"), std::string::npos);
  EXPECT_EQ(formats::no_model("tiny").status, 404);
}

}  // namespace
}  // namespace baton::serve

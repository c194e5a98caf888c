// Bodies of OpenAI's paths and of the text side: what baton/api/openai_*.cc, formats/embeddings.cc and model_routes.cc
// read.
#include <algorithm>
#include <string>
#include <utility>

#include "baton/serve/openapi_schemas.h"

namespace baton::serve::openapi {
namespace {

// Of both chats and completions.
constexpr Field kSampling[] = {
    {"model", R"({"type": "string", "maxLength": 512})"},
    {"max_tokens", R"({"type": "integer", "minimum": 1, "maximum": 2147483647})"},
    {"max_completion_tokens", R"({"type": "integer", "minimum": 1, "maximum": 2147483647})"},
    {"temperature", R"({"type": "number", "minimum": 0, "maximum": 2})"},
    {"top_p", R"({"type": "number", "minimum": 0, "maximum": 1})"},
    {"min_p", R"({"type": "number", "minimum": 0, "maximum": 1})"},
    {"top_k", R"({"type": "integer", "minimum": 0, "maximum": 1073741824})"},
    {"presence_penalty", R"({"type": "number", "minimum": -2, "maximum": 2})"},
    {"frequency_penalty", R"({"type": "number", "minimum": -2, "maximum": 2})"},
    {"repetition_penalty", R"({"type": "number", "minimum": 0.01, "maximum": 100})"},
    {"repeat_penalty", R"({"type": "number", "minimum": 0.01, "maximum": 100})"},
    {"seed", R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})"},
    {"stop", R"({"anyOf": [{"type": "string", "minLength": 1, "maxLength": 4096},
        {"type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1, "maxLength": 4096}}]})"},
    {"stop_token_ids", R"({"type": "array", "maxItems": 64,
        "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}})"},
    {"logit_bias", R"({"type": "object", "maxProperties": 1024, "propertyNames": {"pattern": "^[0-9]+$"},
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}})"},
    {"ignore_eos", R"({"type": "boolean"})"},
    {"n", R"({"type": "integer", "minimum": 1, "maximum": 16})"},
    {"stream", R"({"type": "boolean"})"},
    {"stream_options", R"({"type": "object", "properties": {"include_usage": {"type": ["boolean", "null"]},
        "include_obfuscation": {"type": ["boolean", "null"]}}, "additionalProperties": false})"},
    {"response_format", R"({"$ref": "#/components/schemas/response_format"})"},
    {"regex", R"({"type": "string", "minLength": 1})"},
    {"grammar", R"({"type": "string", "minLength": 1})"},
    {"functions", R"({"enum": [[]]})"},
    {"function_call", R"({"enum": ["none", "auto"]})"},
    {"modalities", R"({"enum": [["text"]]})"},
    {"audio", R"({"type": "null"})"},
    {"verbosity", R"({"type": "null"})"},
    {"web_search_options", R"({"type": "null"})"},
    {"best_of", R"({"enum": [1]})"},
    {"suffix", R"({"enum": [""]})"},
};
constexpr Field kChat[] = {
    {"messages", R"({"type": "array", "minItems": 1, "maxItems": 16384,
        "items": {"$ref": "#/components/schemas/chat_message"}})",
     true},
    {"logprobs", R"({"type": "boolean"})"},
    {"top_logprobs", R"({"type": "integer", "minimum": 0, "maximum": 20})"},
    {"tools", R"({"type": "array", "maxItems": 128, "items": {"$ref": "#/components/schemas/tool"}})"},
    {"tool_choice", R"({"anyOf": [{"enum": ["auto", "none", "required"]}, {"type": "object",
        "required": ["type", "function"], "properties": {"type": {"const": "function"}, "function": {"type": "object",
          "required": ["name"], "properties": {"name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$"}},
          "additionalProperties": {"type": "null"}}}, "additionalProperties": {"type": "null"}}]})"},
    {"parallel_tool_calls", R"({"type": "boolean"})"},
    {"chat_template_kwargs", R"({"type": "object", "maxProperties": 16, "properties": {
        "enable_thinking": {"type": ["boolean", "null"]}}, "propertyNames": {"not": {"enum": ["messages", "tools",
        "add_generation_prompt", "bos_token", "eos_token", "pad_token"]}}, "additionalProperties": {
        "type": ["string", "number", "boolean", "null"], "maxLength": 1024}})"},
    {"reasoning_effort", R"({"enum": ["none", "minimal", "low", "medium", "high", "xhigh"]})"},
    {"echo", R"({"enum": [false]})"},
};
constexpr Field kCompletions[] = {
    {"prompt", R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "maxItems": 1048576,
        "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}}, {"type": "array", "minItems": 1,
        "maxItems": 64, "items": {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "maxItems": 1048576,
        "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}}]}}]})",
     true},
    {"max_tokens", R"({"type": "integer", "minimum": 0, "maximum": 2147483647})"},
    {"max_completion_tokens", R"({"type": "integer", "minimum": 0, "maximum": 2147483647})"},
    {"logprobs", R"({"type": "integer", "minimum": 0, "maximum": 20})"},
    {"echo", R"({"type": "boolean"})"},
    {"tools", R"({"enum": [[]]})"},
    {"tool_choice", R"({"enum": ["none", "auto"]})"},
    {"top_logprobs", R"({"enum": [0]})"},
    {"reasoning_effort", R"({"type": "null"})"},
};
constexpr std::string_view kIgnored =
    "user metadata store service_tier safety_identifier prediction prompt_cache_key prompt_cache_retention";

constexpr Field kTokenize[] = {
    {"model", R"({"type": "string"})"},
    {"content", R"({"type": "string"})"},
    {"prompt", R"({"type": "string"})"},
    {"add_special", R"({"type": "boolean"})"},
    {"add_special_tokens", R"({"type": "boolean"})"},
    {"parse_special", R"({"type": "boolean"})"},
    {"with_pieces", R"({"type": "boolean"})"},
    {"return_token_strs", R"({"type": "boolean"})"},
    {"add_generation_prompt", R"({"type": "boolean"})"},
};
constexpr Field kDetokenize[] = {
    {"model", R"({"type": "string"})"},
    {"tokens", R"({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}})", true},
};
constexpr Field kTemplate[] = {
    {"model", R"({"type": "string"})"},
    {"add_generation_prompt", R"({"type": "boolean"})"},
};
constexpr std::string_view kMessages = "messages tools tool_choice chat_template_kwargs reasoning_effort";

constexpr Field kEmbeddings[] = {
    {"model", R"({"type": "string"})"},
    {"input", R"({"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1, "maxItems": 1048576,
        "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}}, {"type": "array", "minItems": 1,
        "maxItems": 2048, "items": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1,
        "maxItems": 1048576, "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}}]}}]})",
     true},
    {"dimensions", R"({"type": "integer", "minimum": 1, "maximum": 1048576})"},
    {"encoding_format", R"({"enum": ["float", "base64"]})"},
};
constexpr Field kRerank[] = {
    {"model", R"({"type": "string"})"},
    {"query", R"({"type": "string", "minLength": 1})", true},
    {"documents", R"({"$ref": "#/components/schemas/documents"})"},
    {"texts", R"({"$ref": "#/components/schemas/documents"})"},
    {"top_n", R"({"type": "integer", "minimum": 1, "maximum": 2147483647})"},
    {"top_k", R"({"type": "integer", "minimum": 1, "maximum": 2147483647})"},
    {"return_documents", R"({"type": "boolean"})"},
};

// By the names of shared_schemas().
constexpr Field kShared[] = {
    {"text_parts", R"({"type": "array", "items": {"type": "object", "required": ["type", "text"],
        "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}})"},
    {"chat_message", R"({"anyOf": [
        {"type": "object", "required": ["role", "content"], "properties": {
          "role": {"enum": ["system", "developer", "user", "assistant"]},
          "content": {"anyOf": [{"type": "string"}, {"allOf": [{"$ref": "#/components/schemas/text_parts"},
            {"minItems": 1}]}]},
          "name": {"type": ["string", "null"]}, "reasoning_content": {"type": ["string", "null"]},
          "tool_calls": {"enum": [null, []]}, "annotations": {"enum": [null, []]}},
         "additionalProperties": {"type": "null"}},
        {"type": "object", "required": ["role", "tool_calls"], "properties": {
          "role": {"const": "assistant"},
          "content": {"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/components/schemas/text_parts"}]},
          "name": {"type": ["string", "null"]}, "reasoning_content": {"type": ["string", "null"]},
          "annotations": {"enum": [null, []]},
          "tool_calls": {"type": "array", "minItems": 1, "maxItems": 128, "items": {"type": "object",
            "required": ["id", "function"], "properties": {
              "id": {"type": "string", "minLength": 1, "maxLength": 256}, "type": {"enum": ["function", null]},
              "index": {}, "function": {"type": "object", "required": ["name", "arguments"], "properties": {
                "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$"}, "arguments": {"type": ["string", "object"]}},
                "additionalProperties": {"type": "null"}}},
            "additionalProperties": {"type": "null"}}}},
         "additionalProperties": {"type": "null"}},
        {"type": "object", "required": ["role", "content", "tool_call_id"], "properties": {
          "role": {"const": "tool"},
          "content": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/text_parts"}]},
          "tool_call_id": {"type": "string", "minLength": 1, "maxLength": 256}, "name": {"type": ["string", "null"]}},
         "additionalProperties": {"type": "null"}}]})"},
    {"tool", R"({"type": "object", "required": ["type", "function"], "properties": {"type": {"const": "function"},
        "function": {"type": "object", "required": ["name"], "properties": {
          "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$"},
          "description": {"type": ["string", "null"], "maxLength": 16384},
          "parameters": {"type": ["object", "null"]}, "strict": {"type": ["boolean", "null"]}},
          "additionalProperties": {"type": "null"}}},
        "additionalProperties": {"type": "null"}})"},
    {"response_format", R"({"type": "object", "required": ["type"], "properties": {
        "type": {"enum": ["text", "json_object", "json_schema", "regex", "grammar"]}}, "allOf": [
        {"if": {"properties": {"type": {"const": "json_schema"}}}, "then": {"required": ["json_schema"], "properties": {
          "json_schema": {"type": "object", "required": ["schema"], "properties": {
            "name": {"type": ["string", "null"], "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
            "schema": {"type": ["object", "boolean"]}, "strict": {"type": ["boolean", "null"]}}}}}},
        {"if": {"properties": {"type": {"const": "grammar"}}}, "then": {"required": ["grammar"], "properties": {
          "grammar": {"type": "string", "minLength": 1}}}},
        {"if": {"properties": {"type": {"const": "regex"}}}, "then": {"anyOf": [
          {"required": ["regex"], "properties": {"regex": {"type": "string", "minLength": 1}}},
          {"required": ["pattern"], "properties": {"pattern": {"type": "string", "minLength": 1}}}]}}]})"},
    {"documents", R"({"type": "array", "minItems": 1, "maxItems": 2048, "items": {"anyOf": [{"type": "string"},
        {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}},
         "additionalProperties": false}]}})"},
    {"anthropic_text", R"({"type": "object", "required": ["type", "text"], "properties": {"type": {"const": "text"},
        "text": {"type": "string"}, "cache_control": {}, "citations": {"enum": [null, false, "", [], {}]}},
        "additionalProperties": false})"},
    {"anthropic_block", R"({"anyOf": [{"$ref": "#/components/schemas/anthropic_text"},
        {"type": "object", "required": ["type", "id", "name", "input"], "properties": {"type": {"const": "tool_use"},
          "id": {"type": "string", "minLength": 1, "maxLength": 256},
          "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$"}, "input": {"type": "object"}, "cache_control": {},
          "caller": {"enum": [{"type": "direct"}, null]}, "toolset_name": {"enum": [null, false, "", [], {}]}},
         "additionalProperties": false},
        {"type": "object", "required": ["type", "tool_use_id"], "properties": {"type": {"const": "tool_result"},
          "tool_use_id": {"type": "string", "minLength": 1, "maxLength": 256},
          "is_error": {"type": ["boolean", "null"]},
          "content": {"anyOf": [{"type": ["string", "null"]},
            {"type": "array", "items": {"$ref": "#/components/schemas/anthropic_text"}}]},
          "cache_control": {}, "toolset_name": {"enum": [null, false, "", [], {}]}}, "additionalProperties": false},
        {"type": "object", "required": ["type", "thinking"], "properties": {"type": {"const": "thinking"},
          "thinking": {"type": "string"}, "signature": {}}, "additionalProperties": false}]})"},
    {"responses_text", R"({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object",
        "required": ["type", "text"], "properties": {"type": {"enum": ["input_text", "output_text", "text"]},
        "text": {"type": "string"}}}}]})"},
    {"responses_item", R"({"anyOf": [
        {"type": "object", "required": ["role", "content"], "properties": {"type": {"enum": ["message", null]},
          "role": {"enum": ["user", "assistant", "system", "developer"]},
          "content": {"$ref": "#/components/schemas/responses_text"}, "id": {}, "status": {}, "phase": {}},
         "additionalProperties": false},
        {"type": "object", "required": ["type", "call_id", "name", "arguments"], "properties": {
          "type": {"const": "function_call"}, "call_id": {"type": "string", "minLength": 1, "maxLength": 256},
          "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$"}, "arguments": {"type": "string"},
          "id": {}, "status": {}, "caller": {"enum": [{"type": "direct"}, null]},
          "namespace": {"enum": [null, false, "", [], {}]}, "async": {"enum": [null, false, "", [], {}]}},
         "additionalProperties": false},
        {"type": "object", "required": ["type", "call_id", "output"], "properties": {
          "type": {"const": "function_call_output"}, "call_id": {"type": "string", "minLength": 1, "maxLength": 256},
          "output": {"$ref": "#/components/schemas/responses_text"}, "id": {}, "status": {}, "name": {},
          "caller": {"enum": [{"type": "direct"}, null]}, "namespace": {"enum": [null, false, "", [], {}]}},
         "additionalProperties": false},
        {"type": "object", "required": ["type"], "properties": {"type": {"const": "reasoning"}, "id": {}, "status": {},
          "summary": {}, "encrypted_content": {"enum": [null, false, "", [], {}]}, "content": {"anyOf": [
            {"type": ["string", "null"]}, {"type": "array", "items": {"type": "object", "required": ["type", "text"],
              "properties": {"type": {"enum": ["reasoning_text", "text"]}, "text": {"type": "string"}}}}]}},
         "additionalProperties": false}]})"},
};

// Words of a list.
template <class Use>
void for_each_word(std::string_view words, Use use) {
  while (!words.empty()) {
    const size_t size = std::min(words.find(' '), words.size());
    use(std::string(words.substr(0, size)));
    words.remove_prefix(std::min(size + 1, words.size()));
  }
}

Schema or_null(Schema schema) {
  const auto type = schema.find("type"), values = schema.find("enum"), any = schema.find("anyOf");
  if (type != schema.end() && type->is_string()) {
    if (*type != "null") *type = Schema::array({*type, "null"});
  } else if (type != schema.end() && type->is_array()) {
    type->push_back("null");
  } else if (values != schema.end()) {
    values->push_back(nullptr);
  } else if (any != schema.end()) {
    any->push_back({{"type", "null"}});
  } else if (schema.contains("$ref")) {
    return {{"anyOf", Schema::array({std::move(schema), {{"type", "null"}}})}};
  }
  return schema;
}

}  // namespace

void add_fields(Schema& object, std::span<const Field> fields) {
  for (const Field& field : fields) {
    Schema schema = Schema::parse(field.schema);
    object["properties"][std::string(field.name)] = field.required ? std::move(schema) : or_null(std::move(schema));
    if (field.required) object["required"].push_back(field.name);
  }
}

Schema closed_object(std::span<const Field> fields) {
  Schema made = {{"type", "object"}, {"properties", Schema::object()}, {"additionalProperties", false}};
  add_fields(made, fields);
  return made;
}

void add_ignored(Schema& object, std::string_view names) {
  for_each_word(names, [&](const std::string& name) { object["properties"][name] = {{"description", "ignored"}}; });
}

void add_empty(Schema& object, std::string_view names) {
  const Schema nothing = {{"enum", {nullptr, false, "", Schema::array(), Schema::object()}}};
  for_each_word(names, [&](const std::string& name) { object["properties"][name] = nothing; });
}

void add_of_chat(Schema& object, std::string_view names) {
  Schema all = closed_object(kSampling);
  add_fields(all, kChat);
  for_each_word(names, [&](const std::string& name) { object["properties"][name] = all["properties"].at(name); });
}

Schema shared_schemas() {
  Schema made = Schema::object();
  for (const Field& field : kShared) made[std::string(field.name)] = Schema::parse(field.schema);
  return made;
}

Schema openai_body(std::string_view path) {
  if (path == "/v1/chat/completions" || path == "/v1/completions") {
    Schema made = closed_object(kSampling);
    const bool chat = path == "/v1/chat/completions";
    add_fields(made, chat ? std::span<const Field>(kChat) : std::span<const Field>(kCompletions));
    add_ignored(made, kIgnored);
    if (!chat) add_ignored(made, "parallel_tool_calls");
    return made;
  }
  if (path == "/detokenize") return closed_object(kDetokenize);
  if (path != "/tokenize" && path != "/apply-template") return nullptr;
  const bool rendered = path == "/apply-template";
  Schema made = closed_object(rendered ? std::span<const Field>(kTemplate) : std::span<const Field>(kTokenize));
  add_of_chat(made, kMessages);
  if (rendered) {
    made["required"] = Schema::array({"messages"});
  } else {
    const auto with = [](const char* name) { return Schema{{"required", Schema::array({name})}}; };
    made["anyOf"] = Schema::array({with("content"), with("prompt"), with("messages")});
    for (const char* name : {"content", "prompt"}) made["properties"][name] = {{"type", "string"}};
  }
  return made;
}

Schema vectors_body(std::string_view path) {
  if (path == "/v1/embeddings") {
    Schema made = closed_object(kEmbeddings);
    add_ignored(made, "user");
    return made;
  }
  if (path != "/v1/rerank") return nullptr;
  Schema made = closed_object(kRerank);
  add_ignored(made, "user");
  add_empty(made, "max_tokens_per_doc max_chunks_per_doc truncation rank_fields");
  const auto one_of = [](const char* name, const char* other) {
    return Schema{{"required", Schema::array({name})}, {"not", {{"required", Schema::array({other})}}}};
  };
  made["anyOf"] = Schema::array({one_of("documents", "texts"), one_of("texts", "documents")});
  for (const char* name : {"documents", "texts"}) made["properties"][name] = made["properties"][name]["anyOf"][0];
  return made;
}

Schema body_schema(std::string_view path) {
  if (path == "/v1/responses") return responses_body();
  if (path.starts_with("/v1/messages")) return anthropic_body(path);
  if (path.starts_with("/api/")) return ollama_body(path);
  Schema made = openai_body(path);
  return made.is_null() ? vectors_body(path) : made;
}

}  // namespace baton::serve::openapi

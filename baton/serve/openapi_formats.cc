// Bodies of other interfaces: what baton/serve/formats/*_request.cc and ollama_models.cc read.
#include <string>
#include <utility>

#include "baton/serve/openapi_schemas.h"

namespace baton::serve::openapi {
namespace {

constexpr Field kAnthropicFields[] = {
    {"model", R"({"type": "string"})"},
    {"stream", R"({"type": "boolean"})"},
    {"system", R"({"anyOf": [{"type": "string"},
        {"type": "array", "items": {"$ref": "#/components/schemas/anthropic_text"}}]})"},
    {"messages", R"({"type": "array", "minItems": 1, "maxItems": 16384, "items": {"type": "object",
        "required": ["role", "content"], "properties": {"role": {"enum": ["user", "assistant", "system"]},
          "content": {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1,
            "items": {"$ref": "#/components/schemas/anthropic_block"}}]}}, "additionalProperties": false}})",
     true},
    {"tools", R"({"type": "array", "maxItems": 128, "items": {"type": "object", "required": ["name", "input_schema"],
        "properties": {"name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$"},
          "description": {"type": ["string", "null"], "maxLength": 16384}, "type": {"enum": ["custom", null]},
          "input_schema": {"type": "object"}, "strict": {"type": ["boolean", "null"]},
          "allowed_callers": {"enum": [["direct"], null]}, "cache_control": {}, "eager_input_streaming": {},
          "defer_loading": {"enum": [null, false, "", [], {}]}, "input_examples": {"enum": [null, false, "", [], {}]}},
        "additionalProperties": false}})"},
    {"tool_choice", R"({"type": "object", "required": ["type"], "properties": {
        "type": {"enum": ["auto", "any", "tool", "none"]}, "name": {"type": ["string", "null"]},
        "disable_parallel_tool_use": {"type": ["boolean", "null"]}}, "additionalProperties": false,
        "if": {"properties": {"type": {"const": "tool"}}},
        "then": {"required": ["name"], "properties": {"name": {"type": "string"}}}})"},
    {"thinking", R"({"type": "object", "required": ["type"], "properties": {
        "type": {"enum": ["enabled", "adaptive", "disabled"]},
        "budget_tokens": {"type": ["integer", "null"], "minimum": 1, "maximum": 2147483647},
        "display": {"enum": ["summarized", null]}}, "additionalProperties": false})"},
    {"output_config", R"({"type": "object", "properties": {
        "effort": {"enum": ["low", "medium", "high", "xhigh", "max", null]},
        "format": {"type": ["object", "null"], "required": ["schema"], "properties": {
          "type": {"enum": ["json_schema", null]}, "schema": {"type": ["object", "boolean"]}},
          "additionalProperties": false}}, "additionalProperties": false})"},
    {"stop_sequences", R"({"type": "array", "maxItems": 64,
        "items": {"type": "string", "minLength": 1, "maxLength": 4096}})"},
};
constexpr Field kMaxTokens[] = {{"max_tokens", R"({"type": "integer", "minimum": 1, "maximum": 2147483647})", true}};
constexpr Field kMaxTokensMaybe[] = {{"max_tokens", R"({"type": "integer", "minimum": 1, "maximum": 2147483647})"}};

constexpr Field kOllama[] = {
    {"model", R"({"type": "string", "minLength": 1})", true},
    {"keep_alive", R"({"type": ["number", "string"]})"},
};
// Of chats and prompts.
constexpr Field kOllamaAnswer[] = {
    {"stream", R"({"type": "boolean"})"},
    {"think", R"({"enum": [true, false, "low", "medium", "high"]})"},
    {"format", R"({"anyOf": [{"enum": ["", "json"]}, {"type": "object"}]})"},
    {"logprobs", R"({"type": "boolean"})"},
    {"top_logprobs", R"({"type": "integer", "minimum": 0, "maximum": 20})"},
};
constexpr Field kOllamaOptions[] = {
    {"repeat_last_n", R"({"enum": [64]})"},
    {"mirostat", R"({"enum": [0]})"},
    {"tfs_z", R"({"enum": [1]})"},
    {"typical_p", R"({"enum": [1]})"},
    {"penalize_newline", R"({"enum": [true]})"},
    {"num_predict", R"({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 2147483647}, {"enum": [-1, -2]}]})"},
    {"num_ctx", R"({"type": "integer", "minimum": 1, "maximum": 2147483647})"},
    {"repeat_penalty", R"({"type": "number", "minimum": 0.01, "maximum": 100})"},
};
constexpr Field kOllamaChat[] = {
    {"messages", R"({"type": "array", "maxItems": 16384, "items": {"type": "object", "required": ["role"],
        "properties": {"role": {"enum": ["system", "user", "assistant", "tool"]},
          "content": {"type": ["string", "null"]}, "thinking": {"type": ["string", "null"]},
          "tool_name": {"type": ["string", "null"]}, "name": {"type": ["string", "null"]},
          "tool_call_id": {"type": ["string", "null"]}, "images": {"enum": [null, false, "", [], {}]},
          "tool_calls": {"type": ["array", "null"], "items": {"type": "object", "required": ["function"],
            "properties": {"id": {"type": ["string", "null"]}, "type": {"enum": ["function", null]},
              "function": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"},
                "arguments": {"type": ["object", "null"]}, "index": {}, "description": {}},
                "additionalProperties": false}},
            "additionalProperties": false}}},
        "additionalProperties": false}})"},
};
constexpr Field kOllamaGenerate[] = {
    {"prompt", R"({"type": "string"})"},
    {"system", R"({"type": "string"})"},
    {"raw", R"({"type": "boolean"})"},
};
constexpr Field kOllamaEmbed[] = {
    {"input", R"({"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1, "maxItems": 2048,
        "items": {"type": "string", "minLength": 1}}]})",
     true},
    {"truncate", R"({"type": "boolean"})"},
    {"dimensions", R"({"type": "integer", "minimum": 1, "maximum": 1048576})"},
};
constexpr Field kOllamaEmbeddings[] = {{"prompt", R"({"type": "string", "minLength": 1})", true}};
constexpr Field kOllamaName[] = {
    {"model", R"({"type": "string", "minLength": 1, "maxLength": 512})"},
    {"name", R"({"type": "string"})"},
};
constexpr Field kOllamaPull[] = {{"stream", R"({"type": "boolean"})"}};

constexpr Field kResponses[] = {
    {"model", R"({"type": "string"})"},
    {"stream", R"({"type": "boolean"})"},
    {"instructions", R"({"type": "string"})"},
    {"input", R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1,
        "items": {"$ref": "#/components/schemas/responses_item"}}]})",
     true},
    {"tools", R"({"type": "array", "maxItems": 128, "items": {"type": "object", "required": ["type", "name"],
        "properties": {"type": {"const": "function"}, "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$"},
          "description": {"type": ["string", "null"], "maxLength": 16384}, "parameters": {"type": ["object", "null"]},
          "strict": {"type": ["boolean", "null"]}, "output_schema": {}, "allowed_callers": {"enum": [["direct"], null]},
          "defer_loading": {"enum": [null, false, "", [], {}]}, "async": {"enum": [null, false, "", [], {}]}},
        "additionalProperties": false}})"},
    {"tool_choice", R"({"anyOf": [{"enum": ["auto", "none", "required"]}, {"type": "object", "required": ["name"],
        "properties": {"type": {"enum": ["function", null]}, "name": {"type": "string"}},
        "additionalProperties": false}]})"},
    {"text", R"({"type": "object", "properties": {"verbosity": {"enum": ["medium", null]}, "format": {"anyOf": [
        {"type": "null"}, {"type": "object", "required": ["type", "schema"], "properties": {
          "type": {"const": "json_schema"}, "name": {"type": ["string", "null"], "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
          "description": {}, "schema": {"type": ["object", "boolean"]}, "strict": {"type": ["boolean", "null"]}},
          "additionalProperties": false},
        {"allOf": [{"$ref": "#/components/schemas/response_format"},
          {"properties": {"type": {"enum": ["text", "json_object", "regex", "grammar"]}}}]}]}},
        "additionalProperties": false})"},
    {"reasoning", R"({"type": "object", "properties": {"summary": {}, "generate_summary": {}, "context": {},
        "mode": {"enum": ["standard", null]},
        "effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max", null]}},
        "additionalProperties": false})"},
    {"top_logprobs", R"({"type": "integer", "minimum": 0, "maximum": 20})"},
    {"include", R"({"type": "array", "items": {
        "enum": ["message.output_text.logprobs", "reasoning.encrypted_content"]}})"},
    {"metadata", R"({"type": "object", "maxProperties": 16, "propertyNames": {"maxLength": 64},
        "additionalProperties": {"type": "string", "maxLength": 512}})"},
    {"max_output_tokens", R"({"type": "integer", "minimum": 1, "maximum": 2147483647})"},
    {"truncation", R"({"enum": ["disabled"]})"},
};

Schema only_model(std::string_view path) {
  Schema made = closed_object(kOllamaName);
  made["anyOf"] =
      Schema::array({Schema{{"required", Schema::array({"model"})}}, Schema{{"required", Schema::array({"name"})}}});
  if (path == "/api/pull") {
    add_fields(made, kOllamaPull);
    add_ignored(made, "insecure");
    add_empty(made, "username password");
  } else {
    add_ignored(made, "verbose");
    add_empty(made, "system template options");
  }
  return made;
}

Schema options() {
  Schema made = closed_object(kOllamaOptions);
  made["type"] = Schema::array({"object", "null"});
  add_ignored(made,
              "num_keep num_batch num_gpu main_gpu num_thread numa low_vram f16_kv use_mmap use_mlock mirostat_tau "
              "mirostat_eta");
  add_empty(made, "vocab_only logits_all embedding_only");
  add_of_chat(made, "stop temperature top_k top_p min_p seed presence_penalty frequency_penalty");
  return made;
}

}  // namespace

Schema anthropic_body(std::string_view path) {
  Schema made = closed_object(kAnthropicFields);
  add_fields(made,
             path == "/v1/messages" ? std::span<const Field>(kMaxTokens) : std::span<const Field>(kMaxTokensMaybe));
  add_of_chat(made, "temperature top_p top_k");
  add_of_chat(made, kExtensions);
  add_ignored(made, "metadata service_tier inference_geo cache_control speed");
  add_empty(made, "container mcp_servers context_management diagnostics user_profile_id workspace_id");
  return made;
}

Schema ollama_body(std::string_view path) {
  if (path == "/api/show" || path == "/api/pull") return only_model(path);
  Schema made = closed_object(kOllama);
  if (path == "/api/embed" || path == "/api/embeddings") {
    add_fields(made,
               path == "/api/embed" ? std::span<const Field>(kOllamaEmbed) : std::span<const Field>(kOllamaEmbeddings));
    add_ignored(made, "options");
    return made;
  }
  if (path != "/api/chat" && path != "/api/generate") return nullptr;
  add_fields(made, kOllamaAnswer);
  made["properties"]["options"] = options();
  if (path == "/api/chat") {
    add_fields(made, kOllamaChat);
    add_of_chat(made, "tools");
  } else {
    add_fields(made, kOllamaGenerate);
    add_empty(made, "images template suffix context width height steps");
  }
  return made;
}

Schema responses_body() {
  Schema made = closed_object(kResponses);
  add_of_chat(made, "temperature top_p top_k stop parallel_tool_calls");
  add_of_chat(made, kExtensions);
  add_ignored(made,
              "store user safety_identifier service_tier prompt_cache_key prompt_cache_retention prompt_cache_options "
              "stream_options max_tool_calls");
  add_empty(made,
            "previous_response_id conversation prompt context_management background moderation image access_programs "
            "background_options");
  return made;
}

}  // namespace baton::serve::openapi

// Paths from the table of routes, bodies from tables of fields: what baton/api/openai_request.cc reads.
#include "baton/serve/openapi.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <string_view>

#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

struct Field {
  std::string_view name, schema;
  bool required = false;
};

constexpr Field kSampling[] = {
    {"model", R"({"type": "string", "maxLength": 512})"},
    {"temperature", R"({"type": ["number", "null"], "minimum": 0, "maximum": 2})"},
    {"top_p", R"({"type": ["number", "null"], "minimum": 0, "maximum": 1})"},
    {"min_p", R"({"type": ["number", "null"], "minimum": 0, "maximum": 1})"},
    {"top_k", R"({"type": ["integer", "null"], "minimum": 0, "maximum": 1073741824})"},
    {"presence_penalty", R"({"type": ["number", "null"], "minimum": -2, "maximum": 2})"},
    {"frequency_penalty", R"({"type": ["number", "null"], "minimum": -2, "maximum": 2})"},
    {"repetition_penalty", R"({"type": ["number", "null"], "minimum": 0.01, "maximum": 100})"},
    {"seed", R"({"type": ["integer", "null"], "minimum": -9223372036854775808, "maximum": 9223372036854775807})"},
    {"stop", R"({"anyOf": [{"type": ["string", "null"], "minLength": 1, "maxLength": 4096},
        {"type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1, "maxLength": 4096}}]})"},
    {"stop_token_ids",
     R"({"type": ["array", "null"], "maxItems": 64,
        "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}})"},
    {"logit_bias", R"({"type": ["object", "null"], "maxProperties": 1024, "propertyNames": {"pattern": "^[0-9]+$"},
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}})"},
    {"ignore_eos", R"({"type": ["boolean", "null"]})"},
    {"n", R"({"type": ["integer", "null"], "minimum": 1, "maximum": 16})"},
    {"stream", R"({"type": ["boolean", "null"]})"},
    {"stream_options",
     R"({"type": ["object", "null"], "properties": {"include_usage": {"type": "boolean"}},
        "additionalProperties": false})"},
    {"response_format", R"({"type": ["object", "null"]})"},
    {"regex", R"({"type": ["string", "null"]})"},
    {"grammar", R"({"type": ["string", "null"]})"},
    {"user", R"({"description": "ignored"})"},
    {"metadata", R"({"description": "ignored"})"},
};
constexpr Field kChat[] = {
    {"messages", R"({"type": "array", "minItems": 1, "maxItems": 16384, "items": {"type": "object",
        "required": ["role"], "properties": {
          "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
          "content": {"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": {"type": "object",
            "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}}]}}}})",
     true},
    {"max_tokens", R"({"type": ["integer", "null"], "minimum": 1, "maximum": 2147483647})"},
    {"max_completion_tokens", R"({"type": ["integer", "null"], "minimum": 1, "maximum": 2147483647})"},
    {"logprobs", R"({"type": ["boolean", "null"]})"},
    {"top_logprobs", R"({"type": ["integer", "null"], "minimum": 0, "maximum": 20})"},
    {"tools", R"({"type": ["array", "null"], "items": {"type": "object"}})"},
    {"tool_choice", R"({"type": ["string", "object", "null"]})"},
    {"parallel_tool_calls", R"({"type": ["boolean", "null"]})"},
    {"chat_template_kwargs", R"({"type": ["object", "null"], "maxProperties": 16})"},
    {"reasoning_effort", R"({"enum": ["none", "minimal", "low", "medium", "high", "xhigh", null]})"},
};
constexpr Field kCompletions[] = {
    {"prompt", R"({"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1,
        "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}}, {"type": "array", "minItems": 1,
        "maxItems": 64, "items": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1,
        "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}}]}}]})",
     true},
    {"max_tokens", R"({"type": ["integer", "null"], "minimum": 0, "maximum": 2147483647})"},
    {"logprobs", R"({"type": ["integer", "null"], "minimum": 0, "maximum": 20})"},
    {"echo", R"({"type": ["boolean", "null"]})"},
};

void add_fields(Json& schema, std::span<const Field> fields) {
  for (const Field& field : fields) {
    schema["properties"][std::string(field.name)] = Json::parse(field.schema);
    if (field.required) schema["required"].push_back(field.name);
  }
}

// Of other paths any object: what they refuse, they name.
Json body_of(std::string_view path) {
  Json schema = {{"type", "object"}};
  const bool chat = path == "/v1/chat/completions";
  if (chat || path == "/v1/completions") {
    add_fields(schema, chat ? std::span<const Field>(kChat) : std::span<const Field>(kCompletions));
    add_fields(schema, kSampling);
  }
  return {{"required", true}, {"content", {{"application/json", {{"schema", std::move(schema)}}}}}};
}

Json operation_of(const Route& route) {
  Json made = {{"summary", route.summary}};
  if (route.method == "POST") made["requestBody"] = body_of(route.path);
  const char* const form = route.path.starts_with("/api/")          ? "ollama_error"
                           : route.path.starts_with("/v1/messages") ? "anthropic_error"
                                                                    : "error";
  made["responses"] = {{"200", {{"description", "the answer"}}},
                       {"default", {{"$ref", std::string("#/components/responses/") + form}}}};
  if (!route.open) made["security"] = Json::array({{{"key", Json::array()}}, Json::object()});
  return made;
}

Json error_response(Json error, const char* description) {
  Json body = {{"type", "object"}, {"required", Json::array({"error"})}, {"properties", {{"error", std::move(error)}}}};
  return {{"description", description}, {"content", {{"application/json", {{"schema", std::move(body)}}}}}};
}

Json components() {
  const Json text_or_null = {{"type", Json::array({"string", "null"})}};
  Json error = {{"type", "object"},
                {"required", {"message", "type", "param", "code"}},
                {"properties",
                 {{"message", {{"type", "string"}}},
                  {"type", {{"type", "string"}}},
                  {"param", text_or_null},
                  {"code", text_or_null}}}};
  const Json anthropic = {{"type", "object"},
                          {"required", {"message", "type"}},
                          {"properties", {{"message", {{"type", "string"}}}, {"type", {{"type", "string"}}}}}};
  const Json ollama = {{"anyOf", Json::array({{{"type", "string"}}, error})}};
  return {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}},
          {"responses",
           {{"error", error_response(std::move(error), "an error")},
            {"anthropic_error", error_response(anthropic, "an error, as Anthropic's interface has it")},
            {"ollama_error",
             error_response(ollama,
                            "an error, as Ollama's interface has it; as OpenAI's before it is known whose path "
                            "it is")}}}};
}

}  // namespace

Json openapi_document() {
  Json paths = Json::object();
  for (const Route& route : routes()) {
    std::string path(route.path), method(route.method);
    std::transform(method.begin(), method.end(), method.begin(), [](unsigned char c) { return std::tolower(c); });
    Json operation = operation_of(route);
    if (path.ends_with("/*")) {
      path.replace(path.size() - 1, 1, "{name}");
      operation["parameters"] =
          Json::array({{{"name", "name"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
    }
    paths[path][method] = std::move(operation);
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "baton"}, {"version", BATON_VERSION}}},
          {"paths", std::move(paths)},
          {"components", components()}};
}

}  // namespace baton::serve

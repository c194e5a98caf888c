// Paths from the table of routes; what goes in and comes out of them from openapi_*.cc.
#include "baton/serve/openapi.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

#include "baton/serve/openapi_schemas.h"
#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

Json operation_of(const Route& route) {
  Json made = {{"summary", route.summary}};
  if (Json parameters = openapi::query_parameters(route.path); !parameters.empty())
    made["parameters"] = std::move(parameters);
  if (Json body = route.method == "POST" ? openapi::body_schema(route.path) : Json(); !body.is_null())
    made["requestBody"] = {{"required", true}, {"content", {{"application/json", {{"schema", std::move(body)}}}}}};
  Json answer = {{"description", "the answer"}};
  if (Json content = openapi::answer_content(route.method, route.path); !content.is_null())
    answer["content"] = std::move(content);
  const char* const form = route.path.starts_with("/api/")          ? "ollama_error"
                           : route.path.starts_with("/v1/messages") ? "anthropic_error"
                                                                    : "error";
  made["responses"] = {{"200", std::move(answer)},
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
          {"schemas", openapi::shared_schemas()},
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

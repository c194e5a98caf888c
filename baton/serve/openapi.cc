// Paths from the table.
#include "baton/serve/openapi.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

Json operation_of(const Route& route) {
  Json made = {{"summary", route.summary}};
  const Json answer = {{"description", "the answer"}};
  made["responses"] = {{"200", answer}, {"default", {{"description", "an error"}}}};
  if (!route.open) made["security"] = Json::array({{{"key", Json::array()}}, Json::object()});
  return made;
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
          {"components", {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace baton::serve

// The interface as a document: https://spec.openapis.org/oas/v3.1.0, made from the table of routes.
#pragma once

#include <nlohmann/json.hpp>

namespace baton::serve {

nlohmann::ordered_json openapi_document();

}  // namespace baton::serve

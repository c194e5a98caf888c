// JSON schemas as grammars. What is understood is in docs/constrained.md; everything else that would narrow a value is
// refused.
#pragma once

#include <nlohmann/json.hpp>

#include "baton/base/status.h"
#include "baton/grammar/json_grammar.h"

namespace baton::grammar {

inline constexpr size_t kSchemaNodesMax = 50'000;  // values in the schema
inline constexpr int kSchemaDepthMax = 64;         // of values within each other

// A value of `schema`, with its rules in the draft of `pieces`. Errors name the place as a JSON pointer:
// "#/properties/a". kInvalidInput: a keyword with a value that it cannot have, a $ref to nothing. kUnsupported: a
// keyword that is not understood, or too much of something.
Result<ExprId> schema_value(const nlohmann::ordered_json& schema, Draft* draft, JsonPieces* pieces);

}  // namespace baton::grammar

// Calls of tools as grammars, in the forms that families of chat templates ask for.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "baton/base/status.h"
#include "baton/grammar/json_grammar.h"

namespace baton::grammar {

enum class CallForm : uint8_t {
  kTaggedJson,  // <tool_call>\n{"name": N, "arguments": {...}}\n</tool_call>
  kTaggedXml,   // <tool_call>\n<function=N>\n<parameter=P>\nvalue\n</parameter>\n</function>\n</tool_call>
  kBareJson,    // {"name": N, "parameters": {...}}, with "; " between two
};

// A call of one of `tools` (as OpenAI's API has them), or of the one called `name`; `several`: or more of them, one
// behind the other. Arguments fit the tool's schema. Errors name the tool. Values of tags are what AnswerParser makes
// of them: a parameter of type string is plain text.
Result<ExprId> tool_calls(CallForm form, const nlohmann::ordered_json& tools, const std::string& name, bool several,
                          Draft* draft, JsonPieces* pieces);

}  // namespace baton::grammar

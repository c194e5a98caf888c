// Per operation: parameters, the rules about them, and the shape of the result. Private to the checker of MIL programs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "baton/unit/apple/mil_graph.h"

namespace baton::apple {

// What the checks of one statement read and add to.
struct OpContext {
  Graph& graph;
  Diagnostics& diagnostics;
  const std::unordered_map<std::string, int32_t>& names;
  const MilStatement& statement;
  std::string_view opset;

  std::string where() const;
  tl::unexpected<Error> refuse(Rule rule, std::string_view detail) const;
  Status report(Rule rule, std::string_view detail) const;
  const MilArgument* argument(std::string_view parameter) const;
  // Index of the value a parameter names; -1 when the parameter is absent. Names are known to exist.
  int32_t value(std::string_view parameter) const;
  const GraphValue& at(int32_t index) const { return graph.values[static_cast<size_t>(index)]; }
};

// Checks a statement that is not `const` and returns its op, without `out`; `*type` is the inferred type of the result.
// A constexpr operation yields no op: `*computed` receives the fp16 constant.
Result<std::optional<GraphOp>> check_op(const OpContext& context, MilTensorType* type, std::vector<uint16_t>* computed);

// Whether the operation takes a parameter of this name.
bool is_parameter(std::string_view op, std::string_view parameter);

// Operations that are refused by name wherever they appear.
Status check_forbidden(const OpContext& context);

}  // namespace baton::apple

// Checks every executor makes before a step.
#include "baton/unit/unit.h"

#include <fmt/format.h>

namespace baton {

Status check_tokens(const Model& model, const SequenceState& state, std::span<const int32_t> tokens) {
  if (tokens.empty()) return fail(Code::kInvalidInput, "no tokens to process");
  if (tokens.size() > state.tokens_max() - state.position()) {
    return fail(Code::kOutOfMemory,
                fmt::format("{} tokens at position {} do not fit a state of {} tokens; ask for a larger context (-c)",
                            tokens.size(), state.position(), state.tokens_max()));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= model.program.vocab) {
      return fail(Code::kInvalidInput, fmt::format("token {} at index {} is outside the vocabulary of {}", tokens[i], i,
                                                   model.program.vocab));
    }
  }
  return {};
}

Result<LoadPlan> Unit::plan(const Model&) const {
  return fail(Code::kUnsupported, fmt::format("unit '{}' makes no programs of a model", name()));
}

}  // namespace baton

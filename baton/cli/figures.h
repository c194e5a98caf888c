// What is said of an answer beside its text.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "baton/api/runtime.h"
#include "baton/cli/command.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/progress.h"

namespace baton::cli {

// For Runtime::prepare_proof: what is measured and what cannot be proven is said on stderr. Borrows both; `meter` is
// made when measuring begins.
ProofEvents proof_events(const InterruptScope& interrupts, std::optional<Progress>& meter);
// What the units were asked for and did not give, and what was to be proven and was not, on stderr.
void log_warnings(const Completion& completion);
// The figures of one answer: as JSON fields, and as lines for people.
OrderedJson figures_json(const Completion& completion);
// null: nothing was rounded.
OrderedJson rounding_json(const std::optional<RoundingError>& rounding);
// `model`: who answered.
std::string figures_text(const Completion& completion, std::string_view model);

}  // namespace baton::cli

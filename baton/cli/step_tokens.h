// --step-tokens, of commands that answer many requests at once.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>

#include "baton/base/status.h"

namespace baton::cli {

inline constexpr uint32_t kStepTokensMin = 128;  // a piece of a prompt, and 64 that decode

inline void add_step_tokens(CLI::App& app, uint32_t& tokens) {
  app.add_option("--step-tokens", tokens,
                 "tokens of a step, prefilled and decoded together, at most: fewer make answers come more evenly while "
                 "prompts are prefilled, and these slower; 128 at least, or 0: by time (docs/batch.md)")
      ->capture_default_str()
      ->check(CLI::Range(0, 65536));
}

// kInvalidInput: too few.
inline Status check_step_tokens(uint32_t tokens) {
  if (tokens == 0 || tokens >= kStepTokensMin) return {};
  return fail(Code::kInvalidInput, fmt::format("--step-tokens {}: {} at least, or 0: prompts are prefilled in pieces "
                                               "of 64, so that no answer shows them",
                                               tokens, kStepTokensMin));
}

}  // namespace baton::cli

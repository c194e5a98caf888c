// The flags of the length of an answer, and of how its tokens are drawn.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "baton/cli/command.h"
#include "baton/engine/request.h"

namespace baton::cli {

struct SamplingFlags {
  float temperature = 0.0f;  // run: the same answer each time; chat sets its own
  int32_t top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  float repeat_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
  int32_t repeat_last_n = 64;
  int64_t seed = -1;  // -1: from the clock
  int32_t predict = -1;
  bool ignore_eos = false;
  std::vector<std::string> stops;

  void add_to(CLI::App& app);
  uint64_t settled_seed();  // fixes `seed` when it is -1
  void apply(Request& request) const;
  OrderedJson json() const;  // what the draws follow
};

}  // namespace baton::cli

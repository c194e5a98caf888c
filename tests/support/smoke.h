// Sizes of large tests: full in a plain run, small where each step costs many times more (sanitizers, an emulated CPU).
// scripts/test.sh sets BATON_SMOKE=1 for those runs.
#pragma once

#include <cstdlib>

namespace baton {

inline bool smoke_run() {
  const char* value = std::getenv("BATON_SMOKE");
  return value != nullptr && value[0] == '1';
}

// A count of seeds, prompts or rounds: `full`, or `smoke` in a smoke run.
inline int scaled(int full, int smoke) { return smoke_run() ? smoke : full; }

}  // namespace baton

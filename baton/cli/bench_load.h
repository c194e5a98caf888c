// From the start of a process to its first token.
#pragma once

#include <cstdint>
#include <vector>

#include "baton/base/status.h"
#include "baton/cli/bench_flags.h"

namespace baton::cli {

inline constexpr uint32_t kLoadPrompt = 13;  // tokens

struct LoadRow {
  std::vector<double> ms;
  std::vector<double> peak_memory_bytes;
  int32_t token = 0;
  bool emulated = false;
};

// Each repetition in a child of its own.
Result<LoadRow> measure_load(const BenchFlags& flags);

}  // namespace baton::cli

// Other processes of the bench: peers, and the program itself, each run in a process of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "baton/base/status.h"

namespace baton::cli {

struct ChildRun {
  std::string output;        // of stdout
  double first_line_ms = 0;  // from just before the start to the first line of output; 0: there was none
  double wall_ms = 0;        // to its end
};

// Runs `words` (the program, found on PATH, and its arguments) to its end, without a shell. kNotFound when it cannot be
// started; kDevice when it fails, with the end of its stderr.
Result<ChildRun> run_child(std::span<const std::string> words);

}  // namespace baton::cli

// `baton state show FILE`.
#pragma once

#include <string>

namespace baton::cli {

struct ShowStateFlags {
  std::string in, state_key;
  bool json = false;
};

// Lists what a state file holds, on standard output; the exit code.
int show_state(const ShowStateFlags& flags);

}  // namespace baton::cli

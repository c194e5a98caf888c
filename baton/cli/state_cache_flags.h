// --state-cache: states of prompts that outlive the program.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "baton/api/runtime.h"

namespace baton::cli {

struct StateCacheFlags {
  std::string folder;  // empty: none
  uint64_t bytes = uint64_t{4} << 30;
  const StateKey* key = nullptr;  // of --state-key
  std::string checkpoint_dtype = "f32";

  void add_to(CLI::App& app);
  // --checkpoint-dtype, of commands whose requests may reuse any state.
  void add_dtype_to(CLI::App& app);
  bool bf16() const { return checkpoint_dtype == "bf16"; }
  void apply(RuntimeOptions& options) const;
  // When the bound that was given made the folder lose states as it was opened.
  void warn_of_removed(const Runtime& runtime) const;
};

// What an engine keeps of checkpoints in memory where nothing else bounds it: a sixteenth of what is free.
uint64_t checkpoint_bytes();

// Writes what the runtime keeps into its cache; nothing more can be asked of it. An error is a warning: the answers are
// there. `interrupted`: asked before each.
void save_to_cache(Runtime& runtime, const std::function<bool()>& interrupted);

}  // namespace baton::cli

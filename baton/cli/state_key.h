// --state-key: the key of states on disk.
#pragma once

#include <optional>
#include <string>

#include "baton/state/state_key.h"

namespace baton::cli {

// Nothing for an empty path. What is wrong with the file's permissions is said on stderr.
Result<std::optional<StateKey>> read_state_key(const std::string& path);

inline const StateKey* pointer_to(const std::optional<StateKey>& key) { return key ? &*key : nullptr; }

}  // namespace baton::cli

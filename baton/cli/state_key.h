// --state-key: the key of states on disk.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "baton/state/state_key.h"

namespace baton::cli {

// Nothing for an empty path. What is wrong with the file's permissions is said on stderr.
Result<std::optional<StateKey>> read_state_key(const std::string& path);

// An error of reading the state in `path`, with the flag that mends it where it was sealed with a key and none was
// given.
Error with_key_flag(Error error, const std::filesystem::path& path, const std::optional<StateKey>& key);

inline const StateKey* pointer_to(const std::optional<StateKey>& key) { return key ? &*key : nullptr; }

}  // namespace baton::cli

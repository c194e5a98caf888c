// Where a user's caches are: what is there can be made again, and may be lost, damaged or not writable at any time.
#pragma once

#include <filesystem>

namespace baton {

// XDG_CACHE_HOME/baton or HOME/.cache/baton, on macOS HOME/Library/Caches/baton; empty when none of these is set to an
// absolute path. Not created here.
std::filesystem::path cache_folder();

}  // namespace baton

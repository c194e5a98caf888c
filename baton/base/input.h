// What a person gives as input.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "baton/base/status.h"

namespace baton {

// A file of any kind, to its end, whatever size the system states for it (/proc, pipes,
// FIFOs), or standard input for "-". Waits for who writes it. Refused when there are more than `bytes_max`.
Result<std::string> read_input(const std::filesystem::path& path, size_t bytes_max);

}  // namespace baton

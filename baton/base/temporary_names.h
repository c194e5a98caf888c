// Names of files and folders in the making, which the end of the process removes: `remove_temporary_files`.
#pragma once

#include <filesystem>

namespace baton {

// The slot of the name, or -1 when none is free: then only a signal leaves it behind.
int keep_temporary_name(const std::filesystem::path& name);
// -1 does nothing.
void forget_temporary_name(int slot);

}  // namespace baton

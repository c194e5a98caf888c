// Writes files of a model's folder: whole, by rename, without waiting for the disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "baton/base/status.h"

namespace baton::apple {

// The parts one after another. A reader sees the old file or the whole new one; after a power cut perhaps neither,
// which is right for what can be made again.
Status write_plain_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts);
inline Status write_plain_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  return write_plain_file(path, std::span<const std::span<const std::byte>>(&bytes, 1));
}

}  // namespace baton::apple

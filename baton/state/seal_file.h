// Sealed states in files: `--save-state` and `--load-state`. A file is the sealed block, nothing else. It holds the
// prompt's token ids in the clear: it is written for its owner only, and to be treated as the prompt itself.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "baton/base/status.h"
#include "baton/state/seal.h"

namespace baton {

// A file's block, verified, and the view into it. Movable: the view stays valid.
struct SealedFile {
  std::vector<std::byte> block;
  SealedView view;
};

// Atomic: a reader sees the old file or the whole new one. Mode 0600.
Status write_seal_file(const std::filesystem::path& path, std::span<const std::byte> block);

// Checks the header in place, then copies the file and verifies the copy: what is used later is what was verified, even
// if the file changes meanwhile. Reads nothing and allocates nothing for a file whose header or length is not expected.
// Errors as open_seal, with the path in front.
Result<SealedFile> read_seal_file(const std::filesystem::path& path, const SealExpectation& expected);

}  // namespace baton

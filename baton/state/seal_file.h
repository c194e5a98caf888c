// Sealed states in files: `--save-state` and `--load-state`. A file is the sealed block, nothing else. It holds the
// prompt's token ids in the clear: it is written for its owner only, and to be treated as the prompt itself.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "baton/base/status.h"
#include "baton/state/seal.h"
#include "baton/state/state_key.h"

namespace baton {

// A file's block, verified, and the view into it. Movable: the view stays valid.
struct SealedFile {
  std::vector<std::byte> block;
  SealedView view;
};

// Atomic: a reader sees the old file or the whole new one. Mode 0600. `key`: with a MAC under it.
Status write_seal_file(const std::filesystem::path& path, std::span<const std::byte> block,
                       const StateKey* key = nullptr);

// Checks the header in place, then copies the file and verifies the copy: what is used later is what was verified, even
// if the file changes meanwhile. Reads nothing and allocates nothing for a file whose header or length is not expected.
// With a `key` the file must carry a MAC under it (checked in place, and again in the copy), without one it must carry
// none. The block of the result has none. Errors as open_seal and check_mac, with the path in front.
Result<SealedFile> read_seal_file(const std::filesystem::path& path, const SealExpectation& expected,
                                  const StateKey* key = nullptr);

}  // namespace baton

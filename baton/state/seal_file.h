// Sealed states in files: `--save-state` and `--load-state`. A file is the sealed block, nothing else, and neither
// written nor read as a whole. It holds the prompt's token ids in the clear: it is written for its owner only, and to
// be treated as the prompt itself.
#pragma once

#include <filesystem>
#include <memory>

#include "baton/base/file.h"
#include "baton/base/status.h"
#include "baton/state/seal_stream.h"
#include "baton/state/state_key.h"

namespace baton {

// A file that was verified once, and what it holds. The source keeps it open and reads it again, with all checks that a
// reader makes and, where there was a key, the MAC's: what is used is what is verified then, even if the file has
// changed.
struct SealedFile {
  SealSource source;  // without the MAC
  SealedView view;    // its sections have no bytes
};

// Atomic: a reader sees the old file or the whole new one. Mode 0600. `key`: with a MAC under it. Asks the source
// twice, as the header with the checksums of the sections comes first, in a pipe too and in what a MAC is made over:
// no such file can be written while its state is made. So what is wrong with the state itself is said before there is
// a file. The source's sections come in order; kInternal when it is not the same both times.
Status write_seal_file(const std::filesystem::path& path, const SealSource& source, const StateKey* key = nullptr);

// Verifies the whole file. One whose header or length is not expected is not read any further. With a `key` the file
// must carry a MAC under it, which is checked before anything else is said, without one it must carry none. Errors as
// open_seal and check_mac, with the path in front.
Result<SealedFile> read_seal_file(const std::filesystem::path& path, const SealExpectation& expected,
                                  const StateKey* key = nullptr);

}  // namespace baton

// Sealed states in files: `--save-state` and `--load-state`. A file is the sealed block, nothing else, and neither
// written nor read as a whole. It holds the prompt's token ids in the clear: it is written for its owner only, and to
// be treated as the prompt itself.
#pragma once

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "baton/base/output_file.h"
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

// A sealed state on its way into a file: taken while it is there, put in its place later. Gone without a commit, and
// with the process.
class SealFile {
 public:
  // `key`: with a MAC under it; borrowed.
  explicit SealFile(std::filesystem::path path, const StateKey* key = nullptr) : path_(std::move(path)), key_(key) {}

  // Once. Asks the source twice, as the header with the checksums of the sections comes first, in a pipe too and in
  // what a MAC is made over: no such file can be written while its state is made. So what is wrong with the state
  // itself is said before there is a file. The source gives each byte once and in order, then the header again, in
  // pieces of any size; kInternal when it does not, or is not the same both times. What the file refuses is no error
  // here: commit says it. What would be written in place (a device, a pipe) is held in memory until then.
  Status take(const SealSource& source);
  bool taken() const { return taken_; }
  // Behind a take that went well. Atomic: a reader sees the old file or the whole new one. Mode 0600.
  Status commit();

 private:
  Status put(std::span<const std::byte> bytes);

  const std::filesystem::path path_;
  const StateKey* const key_;
  bool taken_ = false;
  Status refused_;                  // by the file
  std::optional<OutputFile> file_;  // none: written in place
  std::vector<std::byte> held_;     // for that
};

// At once.
Status write_seal_file(const std::filesystem::path& path, const SealSource& source, const StateKey* key = nullptr);

// A file's stream, of which nothing is known yet but that it carries a MAC where there is a `key` (kMismatch,
// kCorrupt); keeps it open. Who takes the stream verifies it; the MAC is checked behind the last section, before the
// last header. Without a key a file that carries one is refused by its header. Errors of the file.
Result<SealSource> seal_file_source(const std::filesystem::path& path, const StateKey* key = nullptr);

// Verifies the whole file. One whose header or length is not expected is not read any further. With a `key` the file
// must carry a MAC under it, which is checked before anything else is said, without one it must carry none. Errors as
// open_seal and check_mac, with the path in front.
Result<SealedFile> read_seal_file(const std::filesystem::path& path, const SealExpectation& expected,
                                  const StateKey* key = nullptr);

}  // namespace baton

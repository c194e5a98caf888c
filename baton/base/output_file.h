// Files that a program writes: whole or not at all, in the place that was meant, and gone when the program ends early.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "baton/base/status.h"

namespace baton {

// Permissions before the umask.
inline constexpr unsigned kModeShared = 0644, kModeOwner = 0600;

// A file in the making: `commit` syncs it and puts it in its place, so that a reader sees the old file or the whole new
// one. Destroyed without a commit, or ended with the process, it leaves nothing behind. Move-only.
//
// Symbolic links are followed: what they name is written, and they stay. A file that is replaced keeps its permissions,
// unless the mode is kModeOwner. Devices, FIFOs and the process's own descriptors (/dev/stdout, /dev/fd/3) are written
// in place, as they come; folders, disks and sockets are refused.
//
// Where the system has files without a name (O_TMPFILE), the file gets one only in `commit`. Elsewhere it is
// `.baton-XXXXXXXXXXXXXXXX.tmp` in the same folder until then; see `remove_temporary_files`.
class OutputFile {
 public:
  enum class Temporary { kUnnamed, kNamed };  // kNamed: also where it could be without (for tests)
  static Result<OutputFile> create(const std::filesystem::path& path, unsigned mode = kModeShared,
                                   Temporary temporary = Temporary::kUnnamed);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  Status write(std::span<const std::byte> bytes);
  Status commit();

 private:
  OutputFile() = default;
  Status open_named(const std::filesystem::path& folder, unsigned mode);
  bool open_unnamed(const std::filesystem::path& folder, unsigned mode);
  void remove_temporary();

  std::filesystem::path path_;       // as given: what messages name
  std::filesystem::path target_;     // behind its links; empty: written in place
  std::filesystem::path temporary_;  // empty: has no name
  int slot_ = -1;                    // of `temporary_` among those a signal removes
  int descriptor_ = -1;
};

// Whether an OutputFile of the path would be written in place. False also for what cannot be written.
bool written_in_place(const std::filesystem::path& path);

// All at once, through an OutputFile. kModeOwner for what users wrote.
Status write_output(const std::filesystem::path& path, std::span<const std::byte> bytes, unsigned mode);

// Whether both names lead to one regular file (hard links too), or will once it is made. What holds nothing that could
// be lost is never the same: devices, FIFOs, folders.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

// Unlinks the temporary files that have a name. For the handler of a signal that ends the process: async-signal-safe.
void remove_temporary_files();

// For programs: SIGINT, SIGTERM, SIGHUP and SIGQUIT remove the temporary files and end the process with 128 + signal. A
// signal that was ignored (nohup) stays ignored.
void install_end_signals();

}  // namespace baton

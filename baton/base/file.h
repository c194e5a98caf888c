// Files: read-only mappings of model files, whole small files, atomic writes. Errors name the path and the system's
// reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "baton/base/status.h"

namespace baton {

// What tells one version of a file from another. `changed_ns` (ctime) moves with every write and, unlike the time of
// modification, cannot be set back.
struct FileIdentity {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0, changed_ns = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
// Of what the path leads to now.
Result<FileIdentity> file_identity(const std::filesystem::path& path);

// A read-only private mapping of a whole regular file; move-only. Not a directory, FIFO or device: those are refused.
// If the file shrinks while mapped the system raises SIGBUS on access: `install_bus_error_message` turns it into
// exit 1.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  // Of the file when it was mapped.
  const FileIdentity& identity() const { return identity_; }

  // The pages wholly inside `part` take no memory until they are read again. A part outside this mapping is left alone.
  void release(std::span<const std::byte> part) const;
  // As memcpy of a part of this mapping, but read from the file: for who goes over all of it once, as no pages of the
  // process come and go, which takes longer than the copy where threads share it. An error where memcpy would raise
  // SIGBUS. Any thread.
  Status copy(std::span<const std::byte> part, std::byte* to) const;
  bool holds(std::span<const std::byte> part) const;

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  FileIdentity identity_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;
};

// A file open for reading at any place, by any number of threads; move-only.
class FileReader {
 public:
  static Result<FileReader> open(const std::filesystem::path& path);
  FileReader(FileReader&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileReader& operator=(FileReader&&) = delete;
  ~FileReader();

  // Fills all of `into`; an error when the file ends before.
  Status read_at(uint64_t offset, std::span<std::byte> into) const;

 private:
  FileReader(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Refused when larger than `bytes_max`: for headers, configs and other small files.
Result<std::string> read_file(const std::filesystem::path& path, size_t bytes_max);

// A file that nobody named (caches beside a model), in the making: written under a temporary name in the same folder;
// `commit` syncs and renames, so that a reader sees the old file or the whole new one. Unlike an OutputFile it never
// follows a link: who put one there (a model's folder may hold any) would choose what is overwritten. Destroyed without
// a commit it leaves nothing behind. Move-only.
class FileWriter {
 public:
  // `mode`: permissions before the umask.
  static Result<FileWriter> create(const std::filesystem::path& path, unsigned mode = 0644);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  Status write(std::span<const std::byte> bytes);
  Status commit();

 private:
  FileWriter() = default;
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

// All at once, through an OutputFile; readable by the owner only (states hold what users wrote).
Status write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

// For programs: a fault on a mapped page prints one line (a model file changed while in use) and exits with 1.
void install_bus_error_message();

}  // namespace baton

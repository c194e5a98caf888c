// POSIX files.
#include "baton/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>

#include "baton/base/descriptor.h"
#include "baton/base/fault.h"
#include "baton/base/output_file.h"

namespace baton {
namespace {

tl::unexpected<Error> system_failure(const std::filesystem::path& path, const char* doing) {
  const int number = errno;
  const Code code = number == ENOENT ? Code::kNotFound : number == ENOMEM ? Code::kOutOfMemory : Code::kInvalidInput;
  return fail(code, fmt::format("{}: cannot {}: {}", path.string(), doing, std::strerror(number)));
}

// O_NONBLOCK: opening a FIFO must not wait for a writer; it is refused below by its type.
Result<int> open_regular(const std::filesystem::path& path, struct stat* info) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_failure(path, "open");
  if (::fstat(fd, info) != 0) {
    auto failure = system_failure(path, "stat");
    ::close(fd);
    return failure;
  }
  if (!S_ISREG(info->st_mode)) {
    ::close(fd);
    return fail(Code::kInvalidInput, fmt::format("{}: is {}, not a regular file", path.string(),
                                                 S_ISDIR(info->st_mode) ? "a folder" : "a device, pipe or socket"));
  }
  return fd;
}

FileIdentity identity_of(const struct stat& info) {
#if defined(__APPLE__)
  const auto modified = info.st_mtimespec, changed = info.st_ctimespec;
#else
  const auto modified = info.st_mtim, changed = info.st_ctim;
#endif
  const auto nanoseconds = [](const struct timespec& time) {
    return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  };
  return {static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino), static_cast<uint64_t>(info.st_size),
          nanoseconds(modified), nanoseconds(changed)};
}

extern "C" void on_bus_error(int) {
  static constexpr char kText[] =
      "baton: a mapped file became shorter while it was in use; start again with the whole file\n";
  remove_temporary_files();
  [[maybe_unused]] const auto written = ::write(2, kText, sizeof(kText) - 1);
  ::_exit(1);
}

Status read_all(int descriptor, const std::filesystem::path& path, uint64_t offset, std::span<std::byte> into) {
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t count =
        ::pread(descriptor, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure(path, "read");
    if (count == 0) {
      return fail(Code::kCorrupt, fmt::format("{}: ends at byte {}, more was expected", path.string(), offset + done));
    }
    done += static_cast<size_t>(count);
  }
  return {};
}

}  // namespace

Result<FileIdentity> file_identity(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return system_failure(path, "stat");
  return identity_of(info);
}

Result<FileReader> FileReader::open(const std::filesystem::path& path) {
  struct stat info {};
  BATON_TRY(const int fd, open_regular(path, &info));
  return FileReader(path, fd);
}

FileReader::~FileReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status FileReader::read_at(uint64_t offset, std::span<std::byte> into) const {
  if (BATON_FAULT(kFileRead)) {
    errno = EIO;
    return system_failure(path_, "read");
  }
  BATON_OK(read_all(descriptor_, path_, offset, into));
  if (BATON_FAULT(kFileDamage) && !into.empty()) into[into.size() / 2] ^= std::byte{1};
  return {};
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  struct stat info {};
  MappedFile file;
  BATON_TRY(file.descriptor_, open_regular(path, &info));
  file.path_ = path;
  file.identity_ = identity_of(info);
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ == 0) return file;
  void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, file.descriptor_, 0);
  if (data == MAP_FAILED) return system_failure(path, "map");
  file.data_ = static_cast<const std::byte*>(data);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      identity_(other.identity_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(identity_, other.identity_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

bool MappedFile::holds(std::span<const std::byte> part) const {
  const std::less_equal<const std::byte*> before;
  return data_ != nullptr && before(data_, part.data()) && before(part.data() + part.size(), data_ + size_);
}

Status MappedFile::copy(std::span<const std::byte> part, std::byte* to) const {
  BATON_CHECK(holds(part));
  return read_all(descriptor_, path_, static_cast<uint64_t>(part.data() - data_), {to, part.size()});
}

void MappedFile::release(std::span<const std::byte> part) const {
  if (!holds(part)) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = static_cast<size_t>(part.data() - data_);
  const size_t begin = (first + page - 1) / page * page, end = (first + part.size()) / page * page;
  // The mapping is read-only and private: what is dropped is the file's own content. A refusal only costs memory.
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> read_file(const std::filesystem::path& path, size_t bytes_max) {
  struct stat info {};
  BATON_TRY(const int fd, open_regular(path, &info));
  const Descriptor owner(fd);
  if (static_cast<uint64_t>(info.st_size) > bytes_max) {
    return fail(Code::kInvalidInput, fmt::format("{}: {} bytes, more than the {} such a file may have", path.string(),
                                                 info.st_size, bytes_max));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure(path, "read");
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  text.resize(done);
  return text;
}

Result<FileWriter> FileWriter::create(const std::filesystem::path& path, unsigned mode) {
  static std::atomic<unsigned> number{0};
  FileWriter writer;
  writer.path_ = path;
  writer.temporary_ = path;
  writer.temporary_ += fmt::format(".{}-{}.tmp", ::getpid(), number++);
  // O_EXCL: never through a link that someone else put there.
  writer.descriptor_ = ::open(writer.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (writer.descriptor_ < 0) return system_failure(writer.temporary_, "create");
  return writer;
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileWriter::~FileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Status FileWriter::write(std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure(temporary_, "write");
    done += static_cast<size_t>(count);
  }
  return {};
}

Status FileWriter::commit() {
  if (::fsync(descriptor_) != 0) return system_failure(temporary_, "sync");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return system_failure(path_, "replace");
  ::close(std::exchange(descriptor_, -1));
  return {};
}

Status write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  return write_output(path, bytes, kModeOwner);
}

void install_bus_error_message() {
  struct sigaction action {};
  action.sa_handler = on_bus_error;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace baton

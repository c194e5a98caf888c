// POSIX: links followed one by one, files without a name where the system has them, and a table of names for signals.
#include "baton/base/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "baton/base/fault.h"
#include "baton/base/random.h"
#include "baton/base/temporary_names.h"

namespace baton {
namespace {

tl::unexpected<Error> output_failure(const std::filesystem::path& path, const char* doing) {
  const int number = errno;
  const Code code = number == ENOENT   ? Code::kNotFound
                    : number == ENOMEM ? Code::kOutOfMemory
                    : number == EINTR  ? Code::kCancelled  // while a FIFO waited for its reader
                                       : Code::kInvalidInput;
  return fail(code, fmt::format("{}: cannot {}: {}", path.string(), doing, std::strerror(number)));
}

constexpr int kLinksMax = 40;       // as the kernel
constexpr int kNameAttempts = 100;  // of 2^64 names

// Names that the handler of a signal unlinks. Who takes a name out of its slot owns it: when that was the handler, the
// process is at its end, and the name is left alone.
std::atomic<char*> temporary_names[64] = {};

// Short, whatever the length of the name it will get.
std::string temporary_name() {
  static std::atomic<uint64_t> number{0};
  const auto now = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  Random random(now ^ (static_cast<uint64_t>(::getpid()) << 40) ^ (number++ << 20));
  return fmt::format(".baton-{:016x}.tmp", random.next());
}

std::string descriptor_link(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// Where an output goes, behind all links.
struct Target {
  std::filesystem::path path;
  bool exists = false;
  unsigned permissions = 0;
  bool in_place = false;
  int descriptor = -1;  // in place: this process's own
};

// N of /dev/fd/N and what else names a descriptor of this process, or -1. A file behind it must not be opened again: a
// second opening begins at its start.
int own_descriptor(const std::filesystem::path& path) {
  const std::string text = path.lexically_normal().string();
  const std::string mine = fmt::format("/proc/{}/fd/", ::getpid());
  for (const std::string_view folder :
       {std::string_view("/dev/fd/"), std::string_view("/proc/self/fd/"), std::string_view(mine)}) {
    int fd = -1;
    if (!text.starts_with(folder)) continue;
    const auto [end, error] = std::from_chars(text.data() + folder.size(), text.data() + text.size(), fd);
    if (error == std::errc() && end == text.data() + text.size()) return fd;
  }
  return -1;
}

Result<Target> find_target(const std::filesystem::path& given) {
  if (given.empty()) return fail(Code::kInvalidInput, "an output file without a name");
  Target target{.path = given};
  for (int links = 0; links < kLinksMax; ++links) {
    target.descriptor = own_descriptor(target.path);
    target.in_place = target.descriptor >= 0;
    if (target.in_place) return target;
    struct stat info {};
    if (::lstat(target.path.c_str(), &info) != 0) {
      if (errno == ENOENT) return target;  // to be made; a missing folder is found then
      return output_failure(given, "open");
    }
    if (S_ISLNK(info.st_mode)) {
      std::error_code error;
      const auto next = std::filesystem::read_symlink(target.path, error);
      if (error)
        return fail(Code::kInvalidInput, fmt::format("{}: cannot follow: {}", given.string(), error.message()));
      target.path = target.path.parent_path() / next;  // an absolute one replaces it
      continue;
    }
    target.exists = true;
    target.permissions = info.st_mode & 0777u;
    target.in_place = !S_ISREG(info.st_mode);
    if (S_ISDIR(info.st_mode) || S_ISBLK(info.st_mode) || S_ISSOCK(info.st_mode)) {
      const char* what = S_ISDIR(info.st_mode) ? "a folder" : S_ISBLK(info.st_mode) ? "a disk" : "a socket";
      return fail(Code::kInvalidInput, fmt::format("{}: is {}, not a file that can be written", given.string(), what));
    }
    return target;
  }
  return fail(Code::kInvalidInput, fmt::format("{}: cannot follow: too many links", given.string()));
}

// Where a file that is not there yet would be made.
std::filesystem::path place_to_be(std::filesystem::path path) {
  std::error_code error;
  for (int links = 0; links < kLinksMax && std::filesystem::is_symlink(path, error); ++links)
    path = path.parent_path() / std::filesystem::read_symlink(path, error);
  return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
}

extern "C" void on_end_signal(int number) {
  remove_temporary_files();
  ::_exit(128 + number);
}

}  // namespace

int keep_temporary_name(const std::filesystem::path& name) {
  char* text = ::strdup(name.c_str());
  if (text == nullptr) return -1;
  for (size_t i = 0; i < std::size(temporary_names); ++i) {
    char* none = nullptr;
    if (temporary_names[i].compare_exchange_strong(none, text)) return static_cast<int>(i);
  }
  std::free(text);
  return -1;
}

void forget_temporary_name(int slot) {
  if (slot >= 0) std::free(temporary_names[static_cast<size_t>(slot)].exchange(nullptr));
}

Result<OutputFile> OutputFile::create(const std::filesystem::path& path, unsigned mode, Temporary temporary) {
  OutputFile writer;
  writer.path_ = path;
  BATON_TRY(Target target, find_target(path));
  if (target.in_place) {
    writer.descriptor_ = target.descriptor >= 0 ? ::fcntl(target.descriptor, F_DUPFD_CLOEXEC, 3)
                                                : ::open(target.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (writer.descriptor_ < 0) return output_failure(path, "open");
    return writer;
  }
  writer.target_ = std::move(target.path);
  if (target.exists && ::access(writer.target_.c_str(), W_OK) != 0) return output_failure(path, "write");
  const auto folder = writer.target_.has_parent_path() ? writer.target_.parent_path() : std::filesystem::path(".");
  const unsigned made = target.exists && mode != kModeOwner ? target.permissions : mode;
  if (temporary == Temporary::kNamed || !writer.open_unnamed(folder, made)) {
    BATON_OK(writer.open_named(folder, made));
  }
  // What is replaced keeps its permissions whatever the umask takes away.
  if (made != mode && ::fchmod(writer.descriptor_, made) != 0) return output_failure(path, "set the permissions of");
  return writer;
}

bool OutputFile::open_unnamed([[maybe_unused]] const std::filesystem::path& folder, [[maybe_unused]] unsigned mode) {
#if defined(O_TMPFILE)
  descriptor_ = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  if (descriptor_ < 0) return false;
  if (::access(descriptor_link(descriptor_).c_str(), F_OK) == 0) return true;
  ::close(std::exchange(descriptor_, -1));  // no /proc: it could never be given a name
#endif
  return false;
}

Status OutputFile::open_named(const std::filesystem::path& folder, unsigned mode) {
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    temporary_ = folder / temporary_name();
    slot_ = keep_temporary_name(temporary_);
    // O_EXCL: never through a link that someone else put there, and never into what another run left.
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor_ >= 0) return {};
    const int number = errno;
    forget_temporary_name(std::exchange(slot_, -1));
    errno = number;
    if (number != EEXIST) break;
  }
  auto failure = output_failure(path_, "create");
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) {
    failure.value().message += fmt::format(" (there is no folder {})", folder.string());
  }
  return failure;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::move(other.temporary_)),
      slot_(std::exchange(other.slot_, -1)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(target_, other.target_);
  std::swap(temporary_, other.temporary_);
  std::swap(slot_, other.slot_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  remove_temporary();
}

void OutputFile::remove_temporary() {
  if (temporary_.empty()) return;
  ::unlink(temporary_.c_str());
  temporary_.clear();
  forget_temporary_name(std::exchange(slot_, -1));
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    if (const int number = BATON_FAULT(kFileFull) ? ENOSPC : BATON_FAULT(kFileWrite) ? EIO : 0; number != 0) {
      errno = number;
      return output_failure(path_, "write");
    }
    const size_t left = bytes.size() - done, most = BATON_FAULT(kFileShort) ? (left + 1) / 2 : left;
    const ssize_t count = ::write(descriptor_, bytes.data() + done, most);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      struct pollfd entry {
        descriptor_, POLLOUT, 0
      };
      ::poll(&entry, 1, 1000);
      continue;
    }
    if (count < 0) return output_failure(path_, "write");
    done += static_cast<size_t>(count);
  }
  return {};
}

Status OutputFile::commit() {
  if (target_.empty()) {
    if (::close(std::exchange(descriptor_, -1)) != 0) return output_failure(path_, "write");
    return {};
  }
  if (::fsync(descriptor_) != 0) return output_failure(path_, "write");
  if (BATON_FAULT(kFileReplace)) {
    errno = EIO;
    return output_failure(path_, "replace");
  }
  const bool unnamed = temporary_.empty();
  const std::string link = descriptor_link(descriptor_);
  const auto name_it = [&](const std::filesystem::path& name) {
    return ::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  if (unnamed && name_it(target_)) {
    ::close(std::exchange(descriptor_, -1));
    return {};
  }
  // A file that exists cannot be linked over, only renamed over.
  for (int attempt = 0; unnamed && temporary_.empty(); ++attempt) {
    if (errno != EEXIST || attempt == kNameAttempts) return output_failure(path_, "name");
    temporary_ = target_.parent_path() / temporary_name();
    slot_ = keep_temporary_name(temporary_);
    if (name_it(temporary_)) break;
    const int number = errno;
    forget_temporary_name(std::exchange(slot_, -1));
    temporary_.clear();
    errno = number;
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return output_failure(path_, "replace");
  temporary_.clear();
  forget_temporary_name(std::exchange(slot_, -1));
  ::close(std::exchange(descriptor_, -1));
  return {};
}

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  struct stat first {};
  struct stat second {};
  const bool first_there = ::stat(a.c_str(), &first) == 0, second_there = ::stat(b.c_str(), &second) == 0;
  if (first_there != second_there) return false;
  if (first_there) return S_ISREG(first.st_mode) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
  return place_to_be(a) == place_to_be(b);
}

bool written_in_place(const std::filesystem::path& path) {
  const auto target = find_target(path);
  return target && target->in_place;
}

Status write_output(const std::filesystem::path& path, std::span<const std::byte> bytes, unsigned mode) {
  BATON_TRY(OutputFile writer, OutputFile::create(path, mode));
  BATON_OK(writer.write(bytes));
  return writer.commit();
}

void remove_temporary_files() {
  constexpr int kDepthMax = 8;
  const char* names[std::size(temporary_names)];
  size_t count = 0;
  for (std::atomic<char*>& slot : temporary_names) {
    if (const char* name = slot.exchange(nullptr)) names[count++] = name;
  }
  // A folder goes when it is empty: what is in it may stand before or behind it.
  for (int depth = 0; depth < kDepthMax; ++depth) {
    for (size_t i = 0; i < count; ++i) {
      if (::unlink(names[i]) != 0) ::rmdir(names[i]);
    }
  }
}

void install_end_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = on_end_signal;
    ::sigaction(number, &action, nullptr);
  }
}

}  // namespace baton

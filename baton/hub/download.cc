// Pieces come in any order and are written in theirs: those behind the first wait in memory.
#include "baton/hub/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace baton::hub {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStepMs = 100, kLooksMax = 3, kHopsMax = 16;
constexpr size_t kReadBytes = 1 << 20;

tl::unexpected<Error> system_error(const std::filesystem::path& path) {
  const int why = errno;
  const char* const more = why == ENOSPC || why == EDQUOT ? ": make room, then pull again: it goes on from there" : "";
  return fail(Code::kInvalidInput, fmt::format("{}: {}{}", path.string(), std::strerror(why), more));
}

}  // namespace

struct Download::Piece {
  uint64_t from = 0, bytes = 0;  // of the file
  uint64_t got = 0;
  std::string held;  // of `got`, what is not written yet
  std::unique_ptr<Exchange> exchange;
  uint64_t skips = 0;  // bytes of this exchange that are there already
  bool checked = false;
  int tries = 0;
  Clock::time_point not_before{};

  bool done() const { return got == bytes; }
};

Download::Download(Http& http, const Remote& remote, const Watch& watch, RemoteFile file,
                   std::function<Result<RemoteFile>()> look, DownloadLimits limits, Progress progress)
    : http_(http),
      remote_(remote),
      watch_(watch),
      file_(std::move(file)),
      look_(std::move(look)),
      limits_(limits),
      progress_(std::move(progress)),
      sum_(sum_kind(file_.etag), file_.bytes) {}

Download::~Download() {
  drop_pieces();
  if (fd_ >= 0) ::close(fd_);
}

Status Download::fetch_into(const std::filesystem::path& part) {
  BATON_OK(open(part));
  BATON_OK(fetch());
  return finish();
}

Status Download::begin_anew() {
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) return system_error(part_);
  sum_ = Sum(sum_kind(file_.etag), file_.bytes);
  written_ = next_ = 0;
  return {};
}

// What an earlier pull left is summed as it is read.
Status Download::open(const std::filesystem::path& part) {
  part_ = part;
  fd_ = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  struct stat info {};
  if (fd_ < 0 || ::fstat(fd_, &info) != 0) return system_error(part_);
  if (!S_ISREG(info.st_mode)) return fail(Code::kInvalidInput, fmt::format("{}: is no file: remove it", part.string()));
  if (static_cast<uint64_t>(info.st_size) > file_.bytes) return begin_anew();
  std::string buffer(kReadBytes, '\0');
  while (written_ < static_cast<uint64_t>(info.st_size)) {
    if (watch_.stops()) return fail(Code::kCancelled, "interrupted");
    const ssize_t count = ::read(fd_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return system_error(part_);
    sum_.add(std::as_bytes(std::span(buffer.data(), static_cast<size_t>(count))));
    written_ += static_cast<uint64_t>(count);
  }
  next_ = written_;
  return {};
}

// It ends where this ended, or what is behind its end would not be what was summed.
Status Download::write(std::string_view bytes) {
  BATON_OK(check_own(part_));
  sum_.add(std::as_bytes(std::span(bytes.data(), bytes.size())));
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(part_);
    written_ += static_cast<uint64_t>(count);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

void Download::drop_pieces() {
  for (const auto& piece : pieces_) {
    if (piece->exchange) http_.take_back(*piece->exchange);
  }
  pieces_.clear();
  next_ = written_;
}

void Download::add_pieces() {
  const size_t pieces_max = mode_ == Mode::kWhole ? 1 : size_t{2} * std::max<uint32_t>(limits_.connections, 1);
  while (pieces_.size() < pieces_max && next_ < file_.bytes) {
    auto piece = std::make_unique<Piece>();
    piece->from = next_;
    const uint64_t left = file_.bytes - next_;
    piece->bytes = mode_ == Mode::kWhole ? left : std::min(left, std::max<uint64_t>(limits_.piece_bytes, 1));
    next_ += piece->bytes;
    pieces_.push_back(std::move(piece));
  }
}

void Download::start_pieces() {
  const auto runs = [](const auto& piece) { return piece->exchange != nullptr; };
  auto running = static_cast<uint32_t>(std::count_if(pieces_.begin(), pieces_.end(), runs));
  const auto now = Clock::now();
  for (const auto& piece : pieces_) {
    if (running >= std::max<uint32_t>(limits_.connections, 1)) return;
    if (piece->exchange || piece->done() || now < piece->not_before) continue;
    piece->exchange = std::make_unique<Exchange>();
    Exchange& exchange = *piece->exchange;
    exchange.url = file_.url;
    exchange.token = remote_.token_for(file_.url);
    const uint64_t from = piece->from + piece->got, end = piece->from + piece->bytes;
    const bool all = from == 0 && end == file_.bytes;
    piece->checked = false;
    piece->skips = 0;
    if (mode_ == Mode::kWhole) {
      piece->skips = from;
    } else if (!all) {
      exchange.range = {from, end - 1};
    }
    http_.start(exchange);
    ++running;
  }
}

// What came for a piece since it was looked at.
Status Download::take(Piece& piece) {
  Exchange& exchange = *piece.exchange;
  const int good = exchange.range ? 206 : 200;
  if (exchange.status == good && !exchange.body.empty()) {
    if (exchange.range && !piece.checked) {
      const std::string& told = exchange.header("content-range");
      const std::string wanted = fmt::format("bytes {}-", piece.from + piece.got);
      const size_t slash = told.rfind('/');
      const bool size_same = slash == std::string::npos || told.substr(slash + 1) == "*" ||
                             told.substr(slash + 1) == fmt::format("{}", file_.bytes);
      if (!told.empty() && (!told.starts_with(wanted) || !size_same))
        return fail(Code::kCorrupt, fmt::format("{}: asked for {}, told of '{}': the file changed, pull again",
                                                file_.path, wanted, told.substr(0, 80)));
      piece.checked = true;
    }
    std::string_view bytes = exchange.body;
    const uint64_t skipped = std::min<uint64_t>(piece.skips, bytes.size());
    piece.skips -= skipped;
    bytes.remove_prefix(static_cast<size_t>(skipped));
    if (bytes.size() > piece.bytes - piece.got)
      return fail(Code::kCorrupt,
                  fmt::format("{}: more bytes came than the {} that the hub told of", file_.path, file_.bytes));
    piece.held.append(bytes);
    piece.got += bytes.size();
    if (!bytes.empty()) piece.tries = 0;
    exchange.body.clear();
  }
  // All of it instead of a part: the server knows no ranges.
  if (exchange.range && exchange.status == 200 && (!exchange.body.empty() || exchange.ended)) {
    watch_.say(fmt::format("{}: no parts of files are sent here: it comes as a whole", file_.path));
    mode_ = Mode::kWhole;
    again_ = true;
    return {};
  }
  return exchange.ended ? take_ended(piece) : Status();
}

Status Download::take_ended(Piece& piece) {
  const int good = piece.exchange->range ? 206 : 200;
  if (piece.done()) {
    piece.exchange.reset();
    return {};
  }
  if (piece.exchange->status != good && piece.exchange->error.empty()) return take_other_status(piece);
  if (piece.exchange->error.empty()) piece.exchange->error = "the connection ended too early";
  return fail_or_wait(piece);
}

Status Download::take_other_status(Piece& piece) {
  const Exchange& exchange = *piece.exchange;
  const int status = exchange.status;
  if (status >= 301 && status <= 308 && status != 304) {
    BATON_TRY(file_.url, Remote::next_url(exchange));
    if (++hops_ > kHopsMax) return fail(Code::kInvalidInput, fmt::format("{}: sent on and on", file_.path));
    piece.exchange.reset();
    return {};
  }
  if (status == 416 && mode_ == Mode::kPieces) {
    watch_.say(fmt::format("{}: there is no such part of it: it is fetched from its beginning", file_.path));
    mode_ = Mode::kWhole;
    again_ = true;
    return begin_anew();
  }
  // Addresses of a store are good for a while.
  if ((status == 401 || status == 403 || status == 404 || status == 410) && looks_ < kLooksMax) {
    ++looks_;
    BATON_TRY(const RemoteFile now, look_());
    if (now.etag != file_.etag || now.bytes != file_.bytes)
      return fail(Code::kMismatch, fmt::format("{}: changed while it was fetched: pull again", file_.path));
    const bool moved = now.url != file_.url;
    file_.url = now.url;
    if (moved) {
      piece.exchange.reset();
      return {};
    }
  }
  if (may_pass(exchange)) return fail_or_wait(piece);
  return fail(Code::kUnavailable, fmt::format("{}: {}", file_.path, what_happened(exchange)));
}

Status Download::fail_or_wait(Piece& piece) {
  const std::string why = what_happened(*piece.exchange);
  if (++piece.tries >= kTriesMax)
    return fail(Code::kUnavailable, fmt::format("{}: {}, {} times; `baton pull` goes on from {} bytes", file_.path, why,
                                                piece.tries, written_));
  const auto wait = wait_before(*piece.exchange, piece.tries - 1, watch_.retry_ms);
  watch_.say(fmt::format("{}: {}: again in {:.1f} s", file_.path, why, static_cast<double>(wait.count()) / 1e3));
  piece.not_before = Clock::now() + wait;
  piece.exchange.reset();
  return {};
}

Status Download::write_front() {
  while (!pieces_.empty()) {
    Piece& piece = *pieces_.front();
    if (!piece.held.empty()) {
      BATON_OK(write(piece.held));
      piece.held.clear();
    }
    if (!piece.done() || piece.exchange) return {};
    pieces_.pop_front();
  }
  return {};
}

Status Download::fetch() {
  while (written_ < file_.bytes) {
    if (watch_.stops()) return fail(Code::kCancelled, "interrupted");
    add_pieces();
    start_pieces();
    http_.step(kStepMs);
    Status taken;
    for (const auto& piece : pieces_) {
      if (piece->exchange && taken) taken = take(*piece);
      if (again_) break;
    }
    if (!again_) {
      BATON_OK(write_front());
    }
    BATON_OK(taken);
    if (std::exchange(again_, false)) drop_pieces();
    uint64_t done = written_;
    for (const auto& piece : pieces_) done += piece->held.size();
    if (progress_) progress_(done);
    const auto runs = [](const auto& piece) { return piece->exchange != nullptr; };
    if (!pieces_.empty() && std::none_of(pieces_.begin(), pieces_.end(), runs)) {  // all wait for a further try
      BATON_OK(pause(std::chrono::milliseconds(20), watch_));
    }
  }
  return {};
}

// `path` is what is open here, with all that was written and no more.
Status Download::check_own(const std::filesystem::path& path) const {
  struct stat own {};
  struct stat there {};
  if (::fstat(fd_, &own) != 0) return system_error(path);
  const bool same = ::lstat(path.c_str(), &there) == 0 && own.st_dev == there.st_dev && own.st_ino == there.st_ino;
  if (same && static_cast<uint64_t>(own.st_size) == written_) return {};
  return fail(Code::kMismatch, fmt::format("{}: another program {} {} while it was fetched: pull again", file_.path,
                                           same ? "wrote into" : "removed or replaced", path.string()));
}

Status Download::finish() {
  if (::fsync(fd_) != 0 && errno != EINVAL) return system_error(part_);
  BATON_OK(check_own(part_));
  const std::string sum = sum_.finish();
  if (sum.empty() || sum == file_.etag) return {};
  ::unlink(part_.c_str());
  return fail(Code::kCorrupt, fmt::format("{}: its {} is {}, and the hub tells {}: what came is deleted; pull again",
                                          file_.path, sum.size() == 64 ? "SHA-256" : "git sum", sum, file_.etag));
}

Status Download::move_to(const std::filesystem::path& blob) {
  BATON_OK(check_own(part_));
  if (::rename(part_.c_str(), blob.c_str()) != 0) return system_error(blob);
  const Status own = check_own(blob);
  if (!own) ::rename(blob.c_str(), part_.c_str());  // it is another's that came between
  return own;
}

}  // namespace baton::hub

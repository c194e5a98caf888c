// Append, and never half a line.
#include "baton/cli/batch_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "baton/base/output_file.h"
#include "baton/cli/command.h"

namespace baton::cli {
namespace {

constexpr const char* kRemedy = "give another OUT, or remove this one to begin again";

tl::unexpected<Error> output_failure(const std::string& path, const char* doing, int number) {
  return fail(Code::kInvalidInput, fmt::format("{}: cannot {}: {}", path, doing, std::strerror(number)));
}

}  // namespace

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      regular_(other.regular_),
      bytes_(other.bytes_),
      torn_bytes_(other.torn_bytes_),
      responded_(std::move(other.responded_)),
      reported_(std::move(other.reported_)) {}

BatchOutput::~BatchOutput() {
  if (fd_ >= 0) ::close(fd_);
}

Result<BatchOutput> BatchOutput::open(const std::string& path, const std::string& model,
                                      const std::string& fingerprint) {
  if (path == "-") return BatchOutput("standard output", -1, false);
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  const bool regular = kind == std::filesystem::file_type::not_found || kind == std::filesystem::file_type::regular;
  const int flags = regular ? O_RDWR | O_APPEND | O_CREAT : O_WRONLY | O_NOCTTY;
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, kModeShared);
  if (fd < 0) {
    const int number = errno;
    auto failed = output_failure(path, "open", number);
    return number == EINTR ? fail(Code::kCancelled, std::move(failed.value().message)) : failed;
  }
  BatchOutput output(path, fd, regular);
  if (!regular) return output;
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return fail(Code::kInvalidInput,
                fmt::format("{}: another batch writes to it; wait for it, or give another OUT", path));
  BATON_OK(output.read_answers(model, fingerprint));
  return output;
}

Status BatchOutput::read_answers(const std::string& model, const std::string& fingerprint) {
  BATON_TRY(LineReader reader, LineReader::open(path_, kBatchLineBytesMax));
  Line line;
  while (true) {
    BATON_TRY(const auto outcome, reader.next(line, -1));
    if (outcome == LineReader::Outcome::kNone) return fail(Code::kCancelled, path_ + ": interrupted");
    if (outcome == LineReader::Outcome::kEnd) break;
    if (!line.whole) {
      if (line.too_long || !openai::begins_answer(line.text))
        return fail(Code::kInvalidInput,
                    fmt::format("{}: line {} is no answer of a batch; {}", path_, line.number, kRemedy));
      torn_bytes_ = line.text.size();
      break;
    }
    BATON_OK(take(line, model, fingerprint));
    bytes_ = line.offset + line.text.size() + 1;
  }
  return {};
}

Status BatchOutput::cut_torn_line() {
  if (torn_bytes_ > 0 && ::ftruncate(fd_, static_cast<off_t>(bytes_)) != 0)
    return output_failure(path_, "cut off the torn last line", errno);
  return {};
}

Status BatchOutput::take(const Line& line, const std::string& model, const std::string& fingerprint) {
  const auto refuse = [&](const std::string& why) {
    return fail(Code::kInvalidInput, fmt::format("{}: line {} {}; {}", path_, line.number, why, kRemedy));
  };
  const auto answer = openai::read_answered_line(line.text);
  if (!answer) return refuse("is no answer of a batch");
  if (answer->answered && answer->model != model)
    return refuse(
        fmt::format("was answered by {}, and -m is {}: give -m {} to go on", answer->model, model, answer->model));
  if (answer->answered && answer->fingerprint != fingerprint)
    return refuse(
        fmt::format("was answered by other units, context, flags of sampling or file of weights ({}, now {}): give "
                    "those to go on",
                    answer->fingerprint, fingerprint));
  if (!answer->responded) {
    reported_.insert(answer->number);
  } else if (!responded_.emplace(*answer->custom_id, answer->answered).second) {
    return refuse(fmt::format("answers '{}' a second time", *answer->custom_id));
  }
  return {};
}

Status BatchOutput::check_requests(const std::string& requests) const {
  std::unordered_set<std::string_view> missing;
  for (const auto& [id, answered] : responded_) missing.insert(id);
  BATON_TRY(LineReader reader, LineReader::open(requests, kBatchLineBytesMax));
  Line line;
  while (!missing.empty()) {
    BATON_TRY(const auto outcome, reader.next(line, -1));
    if (outcome == LineReader::Outcome::kNone) return fail(Code::kCancelled, requests + ": interrupted");
    if (outcome == LineReader::Outcome::kEnd) break;
    if (const auto id = openai::custom_id_of(line.text)) missing.erase(*id);
  }
  if (missing.empty()) return {};
  return fail(Code::kInvalidInput,
              fmt::format("{}: answers '{}', which {} does not ask: it belongs to other requests; {}", path_,
                          *missing.begin(), requests, kRemedy));
}

Status BatchOutput::add(std::string_view line) {
  if (fd_ < 0) return print(line) ? Status() : fail(Code::kInvalidInput, path_ + ": cannot write");
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t count = ::write(fd_, line.data() + done, line.size() - done);
    if (count >= 0) {
      done += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      const int number = errno;
      // What was written of it is no line. Where this fails too, the next run cuts it off.
      if (regular_ && done > 0 && ::ftruncate(fd_, static_cast<off_t>(bytes_)) != 0)
        return output_failure(path_, "write", number);
      return output_failure(path_, "write", number);
    }
  }
  bytes_ += line.size();
  return {};
}

Status BatchOutput::finish() {
  if (fd_ < 0) return {};
  if (regular_ && ::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) return output_failure(path_, "write", errno);
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) return output_failure(path_, "write", errno);
  return {};
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r") == std::string_view::npos; }

Result<std::optional<uint64_t>> count_lines(const std::string& path) {
  std::error_code error;
  if (path == "-" || !std::filesystem::is_regular_file(path, error)) return std::nullopt;
  BATON_TRY(LineReader reader, LineReader::open(path, kBatchLineBytesMax));
  Line line;
  uint64_t count = 0;
  while (true) {
    BATON_TRY(const auto outcome, reader.next(line, -1));
    if (outcome == LineReader::Outcome::kNone) return fail(Code::kCancelled, path + ": interrupted");
    if (outcome == LineReader::Outcome::kEnd) return count;
    if (line.too_long || !is_blank(line.text)) ++count;
  }
}

}  // namespace baton::cli

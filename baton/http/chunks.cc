// The states of a chunked body, line by line; see chunks.h.
#include "baton/http/chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

namespace baton::http {
namespace {

constexpr size_t kLineMax = 1024;             // a size with its extensions, or a line of the trailer
constexpr uint64_t kOverheadMax = 16 * 1024;  // extensions and trailer of one body

}  // namespace

std::optional<Refusal> ChunkReader::put_line(std::string_view& bytes, bool& whole) {
  const size_t end = std::min(bytes.find('\n'), bytes.size());
  const bool ends = end < bytes.size();
  if (line_.size() + end > kLineMax) return bad_request("a line of the chunked body is too long");
  line_.append(bytes.substr(0, end));
  bytes.remove_prefix(ends ? end + 1 : end);
  // A CR is the line's last but for one byte that is not here yet.
  const size_t carriage = line_.find('\r');
  if (carriage != line_.npos && carriage + 1 < line_.size()) {
    return bad_request("a line of the chunked body has a CR inside");
  }
  if (!ends) return std::nullopt;
  if (line_.empty() || line_.back() != '\r') return bad_request("a line of the chunked body ends without CR");
  line_.pop_back();
  whole = true;
  return std::nullopt;
}

std::optional<Refusal> ChunkReader::end_line(const Limits& limits, size_t body_bytes) {
  if (part_ == Part::kDataEnd) {
    if (!line_.empty()) return bad_request("a chunk is longer than its size");
    part_ = Part::kSize;
    return std::nullopt;
  }
  if (part_ == Part::kTrailer) {
    overhead_ += line_.size();
    if (overhead_ > kOverheadMax) return bad_request("the trailer of the chunked body is too long");
    if (!line_.empty()) return check_field_line(line_);
    part_ = Part::kDone;
    return std::nullopt;
  }
  const auto [end, error] = std::from_chars(line_.data(), line_.data() + line_.size(), left_, 16);
  const auto digits = static_cast<size_t>(end - line_.data());
  if (error == std::errc::result_out_of_range || (error == std::errc() && left_ > limits.body_bytes_max - body_bytes)) {
    return Refusal{413, fmt::format("the body is larger than {} bytes", limits.body_bytes_max)};
  }
  if (error != std::errc() || digits > 16) return bad_request("the size of a chunk is no hexadecimal number");
  const std::string_view extension = std::string_view(line_).substr(digits);
  if (!extension.empty() && !trimmed(extension).starts_with(';')) {
    return bad_request("the size of a chunk is followed by something else");
  }
  if (has_control(extension)) return bad_request("an extension of a chunk has a control character");
  overhead_ += line_.size() - digits;
  if (overhead_ > kOverheadMax) return bad_request("the extensions of the chunked body are too long");
  part_ = left_ == 0 ? Part::kTrailer : Part::kData;
  return std::nullopt;
}

std::optional<Refusal> ChunkReader::put(std::string_view& bytes, const Limits& limits, std::string& body) {
  while (!bytes.empty() && !done()) {
    if (part_ == Part::kData) {
      const auto size = static_cast<size_t>(std::min<uint64_t>(bytes.size(), left_));
      body.append(bytes.substr(0, size));
      bytes.remove_prefix(size);
      left_ -= size;
      if (left_ == 0) part_ = Part::kDataEnd;
      continue;
    }
    bool whole = false;
    if (auto refusal = put_line(bytes, whole)) return refusal;
    if (!whole) continue;
    if (auto refusal = end_line(limits, body.size())) return refusal;
    line_.clear();
  }
  return std::nullopt;
}

}  // namespace baton::http

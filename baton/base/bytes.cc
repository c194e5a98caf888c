// ByteReader: the one place where offsets into untrusted files are computed.
#include "baton/base/bytes.h"

#include <fmt/format.h>

namespace baton {

Result<std::span<const std::byte>> ByteReader::take(uint64_t count, std::string_view what) {
  if (count > remaining()) {
    return fail(Code::kCorrupt, fmt::format("offset {}: {} needs {} bytes, {} remain (file truncated or damaged)",
                                            offset_, what, count, remaining()));
  }
  const auto taken = bytes_.subspan(offset_, count);
  offset_ += count;
  return taken;
}

Result<std::string_view> ByteReader::read_string(std::string_view what, uint64_t bytes_max) {
  const uint64_t start = offset_;
  BATON_TRY(const uint64_t length, read<uint64_t>(what));
  if (length > bytes_max) {
    offset_ = start;
    return fail(Code::kCorrupt,
                fmt::format("offset {}: {} is {} bytes long, more than {}", start, what, length, bytes_max));
  }
  auto bytes = take(length, what);
  if (!bytes) {
    offset_ = start;
    return fail(std::move(bytes).error());
  }
  return as_text(*bytes);
}

Result<uint64_t> ByteReader::read_count(std::string_view what, uint64_t element_bytes_min) {
  const uint64_t start = offset_;
  BATON_TRY(const uint64_t count, read<uint64_t>(what));
  if (count > remaining() / element_bytes_min) {
    const uint64_t left = remaining();
    offset_ = start;
    return fail(Code::kCorrupt,
                fmt::format("offset {}: {} of {} cannot fit in the {} bytes that remain", start, what, count, left));
  }
  return count;
}

}  // namespace baton

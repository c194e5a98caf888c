// Reads a chunked body (RFC 9112, section 7.1), strictly: hexadecimal sizes, CR LF and no other line end, extensions
// and trailers without control characters, which are read and forgotten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "baton/http/head.h"

namespace baton::http {

class ChunkReader {
 public:
  // Takes from the front of `bytes` what belongs to the body, and appends its data to `body`.
  std::optional<Refusal> put(std::string_view& bytes, const Limits& limits, std::string& body);
  bool done() const { return part_ == Part::kDone; }

 private:
  enum class Part : uint8_t { kSize, kData, kDataEnd, kTrailer, kDone };
  // The next whole line without its end; none: more bytes are needed.
  std::optional<Refusal> put_line(std::string_view& bytes, bool& whole);
  std::optional<Refusal> end_line(const Limits& limits, size_t body_bytes);

  std::string line_;
  uint64_t left_ = 0;      // of the chunk's data
  uint64_t overhead_ = 0;  // bytes of extensions and trailers
  Part part_ = Part::kSize;
};

}  // namespace baton::http

// Fuzzes the reading of requests from the wire. However the bytes are cut, the same must come out; and what is taken
// for a request keeps what server.h says of it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "baton/http/request_reader.h"

namespace {

using baton::http::Limits;
using baton::http::Request;
using baton::http::RequestReader;
using Progress = RequestReader::Progress;

void require(bool condition) {
  if (!condition) std::abort();
}

// In pieces of `step` bytes; gives back what was left when the reader was done.
Progress read(RequestReader& reader, std::string_view& bytes, size_t step) {
  Progress progress = Progress::kMore;
  while (!bytes.empty() && progress == Progress::kMore) {
    std::string_view piece = bytes.substr(0, step);
    const size_t given = piece.size();
    progress = reader.put(piece);
    require(progress != Progress::kMore || piece.empty());
    bytes.remove_prefix(given - piece.size());
  }
  return progress;
}

void check(const Request& request, const Limits& limits) {
  require(!request.method.empty() && !request.path.empty() && request.path[0] == '/');
  require(request.path.find('\0') == request.path.npos);
  require(("/" + request.path + "/").find("/../") == std::string::npos);
  require(("/" + request.path + "/").find("/./") == std::string::npos);
  require(request.body.size() <= limits.body_bytes_max);
  size_t bytes = 0;
  for (const auto& [name, value] : request.headers) {
    require(!name.empty() &&
            std::none_of(name.begin(), name.end(), [](char c) { return c <= ' ' || (c >= 'A' && c <= 'Z'); }));
    require(value.find_first_of(std::string_view("\r\n\0", 3)) == value.npos);
    bytes += name.size() + value.size();
  }
  require(bytes <= limits.header_bytes_max);
  require(!request.header("content-length") || !request.header("transfer-encoding"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Limits limits;
  limits.header_bytes_max = 2048;
  limits.body_bytes_max = 4096;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string_view whole_left = input;
  RequestReader whole(limits);
  const Progress progress = read(whole, whole_left, std::max<size_t>(input.size(), 1));
  for (const size_t step : {size_t{1}, 2 + size % 7}) {
    std::string_view left = input;
    RequestReader reader(limits);
    require(read(reader, left, step) == progress);
    if (progress == Progress::kRefused) {
      require(reader.refusal().status == whole.refusal().status && reader.refusal().message == whole.refusal().message);
      require(reader.refusal().status >= 400 && reader.refusal().status < 500);
    } else {
      const Request &a = reader.request(), &b = whole.request();
      require(a.path == b.path && a.query == b.query && a.headers == b.headers && a.body == b.body);
    }
    if (progress == Progress::kDone) require(left == whole_left);
  }
  if (progress == Progress::kDone) check(whole.request(), limits);
  return 0;
}

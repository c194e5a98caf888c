// Requests over libcurl, several at once on one thread. Nothing is followed or tried again here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton::hub {

struct Exchange {
  std::string url;
  std::string token;  // sent when not empty
  bool head = false;
  std::optional<std::pair<uint64_t, uint64_t>> range;  // first and last byte
  size_t body_max = size_t{16} << 20;                  // held at once in `body`: who takes bytes out of it makes room

  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  uint64_t received = 0;  // of the body, in all
  bool ended = false;
  bool too_large = false;
  std::string error;  // what the network did; empty: an answer came to its end

  const std::string& header(const std::string& name) const;
  bool whole() const { return ended && error.empty() && !too_large; }
};

class Http {
 public:
  // kUnsupported: this build has no libcurl.
  static Result<std::unique_ptr<Http>> create();
  virtual ~Http() = default;
  // It lives until it has ended or is taken back.
  virtual void start(Exchange& exchange) = 0;
  virtual void take_back(Exchange& exchange) = 0;
  // Moves what there is to move; waits for it at most so long.
  virtual void step(int wait_ms) = 0;
};

// scheme://host:port in lower case, with the port that it has by itself; empty: no http or https.
std::string origin_of(std::string_view url);
// What a Location means, seen from the URL it came for; empty: nothing that is http or https.
std::string absolute_url(std::string_view from, std::string_view location);

}  // namespace baton::hub

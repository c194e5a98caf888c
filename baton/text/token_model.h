// What makes ids of a pre-token: merges, scores or longest pieces. Immutable after creation; any thread may use it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of one pre-token: UTF-8, or any bytes where takes_bytes(). kInvalidInput for what has no token
  // when there is no unknown token.
  virtual Status encode(std::string_view piece, std::vector<int32_t>* out) const = 0;
  // Whether bytes that are no UTF-8 have ids; where not, they count as U+FFFD.
  virtual bool takes_bytes() const { return false; }
  // Those ids.
  virtual Status encode_bytes(std::string_view bytes, std::vector<int32_t>* out) const { return encode(bytes, out); }
};

}  // namespace baton
